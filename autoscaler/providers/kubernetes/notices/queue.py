"""Notices about pods, from all answers of the API server: evictions, preemptions, lost nodes, deletions, ends.

The API server keeps no messages, so each is received once. Any answer may be the last that shows why a pod
ends: a watch breaks, a list expires after its first page, a deletion removes the pod. So what an answer shows
of a pod becomes a notice, whatever was asked for.

An end that an answer shows is recorded as it is. A missing pod alone proves nothing. Nor does the report of a
removal alone: a watch with a label selector also reports a pod as deleted that lost the label (Kubernetes
documentation, "API Concepts"). So a pod that was removed before its end is read again.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any, Generic, TypeVar

from autoscaler.controller.ports.capabilities import Message, Notice
from autoscaler.controller.ports.clock import Clock
from autoscaler.controller.ports.provider import provider_errors
from autoscaler.model.events import ListedMachine
from autoscaler.model.identifiers import ProviderMachineId, Seconds
from autoscaler.model.machines.interruptions import NoticeKind
from autoscaler.providers.kubernetes.api.server import ApiServer
from autoscaler.providers.kubernetes.identity import ownership
from autoscaler.providers.kubernetes.identity.ownership import metadata_of
from autoscaler.providers.kubernetes.listing.ends import is_disruption_revoked
from autoscaler.providers.kubernetes.listing.machines import (
    disruption_notice,
    identity,
    listed_machine,
    pod_notice,
    removed_machine,
)
from autoscaler.providers.kubernetes.listing.pods import read_pod
from autoscaler.providers.kubernetes.listing.statuses import pod_state
from autoscaler.providers.kubernetes.notices.watch import Change, PodWatch
from autoscaler.providers.kubernetes.settings import KubernetesSettings

MOST_WAITING = 5000
"""Maximum number of items that `take` has not returned yet. Reading stops until it returns some."""

T = TypeVar("T")


class Background(Generic[T]):
    """An iterator that is read continuously, from the first `take` on."""

    def __init__(self, iterate: Callable[[], AsyncGenerator[T, None]]) -> None:
        self._iterate = iterate
        self._items: asyncio.Queue[T] = asyncio.Queue(MOST_WAITING)
        self._arrived = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def take(self, most: int, wait: Seconds) -> list[T]:
        """Return up to `most` items; wait up to `wait` seconds (real time) for the first.

        If the iterator failed, raises its error after all earlier items were returned. The next call starts
        the iterator again.
        """
        if self._task is None:
            self._task = asyncio.create_task(self._read())
        if self._items.empty():
            await self._wait(self._task, wait)
        found: list[T] = []
        while len(found) < most and not self._items.empty():
            found.append(self._items.get_nowait())
        if not found and self._task.done():
            task, self._task = self._task, None
            await task
        return found

    def put(self, item: T) -> None:
        """Add an item that did not come from the iterator. Drops it if too many wait."""
        if not self._items.full():
            self._items.put_nowait(item)
            self._arrived.set()

    async def close(self) -> None:
        """End the task. Idempotent."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            # An error of the iterator does not matter any more. A cancellation of the caller does.
            await asyncio.gather(task, return_exceptions=True)

    async def _wait(self, task: asyncio.Task[None], wait: Seconds) -> None:
        self._arrived.clear()
        arrival = asyncio.create_task(self._arrived.wait())
        try:
            await asyncio.wait({arrival, task}, timeout=wait, return_when=asyncio.FIRST_COMPLETED)
        finally:
            arrival.cancel()

    async def _read(self) -> None:
        async with aclosing(self._iterate()) as items:
            async for item in items:
                await self._items.put(item)
                self._arrived.set()


AT_ONCE = 10
"""Messages of one `receive`."""

MOST_REMOVED = 5000
"""Ended or removed pods that are remembered, the last ones. Others are missing in two complete lists."""


class ObservedApi:
    """Implements `ApiServer`. Calls `see` with each pod of the fleet in an answer, such as a page of a list."""

    def __init__(
        self,
        api: ApiServer,
        settings: KubernetesSettings,
        see: Callable[[Mapping[str, Any]], None],
    ) -> None:
        self._api, self._settings, self._see = api, settings, see
        self.text, self.lines, self.close = api.text, api.lines, api.close

    async def request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> Any:
        """Return the JSON of the answer to one request (see `ApiServer`)."""
        answer = await self._api.request(method, path, query, body)
        shown = answer if isinstance(answer, Mapping) else {}
        for found in shown.get("items") or (shown,):
            if self._is_pod_of_fleet(found):
                self._see(found)
        return answer

    def _is_pod_of_fleet(self, found: Mapping[str, Any]) -> bool:
        """Return True for a pod with its status. The answer to its creation has the metadata alone."""
        if metadata_of(found, "labels").get(ownership.FLEET) != self._settings.fleet:
            return False
        return found["metadata"].get("namespace") == self._settings.namespace and "status" in found


@provider_errors
class PodNotices:
    """Implements `NoticeQueue` for one namespace."""

    def __init__(self, api: ApiServer, settings: KubernetesSettings, clock: Clock) -> None:
        self.api: ApiServer = ObservedApi(api, settings, self._see)
        """The API server. All requests about pods go through this object, so that no answer is overlooked."""
        self._settings = settings
        self._clock = clock
        self._watch = PodWatch(self.api, settings)
        self._said: dict[ProviderMachineId, NoticeKind] = {}
        self._removed: dict[ProviderMachineId, ListedMachine] = {}
        self._announced: dict[ProviderMachineId, Notice] = {}
        self._background: Background[Notice] = Background(self._notices)
        self._numbers = 0

    async def receive(self, wait: Seconds) -> tuple[Message, ...]:
        """Return up to ten messages. Waits up to `wait` seconds for the first (see `NoticeQueue`)."""
        found = []
        for notice in await self._background.take(AT_ONCE, wait):
            self._numbers += 1
            found.append(Message(str(self._numbers), str(self._numbers), notice))
        return tuple(found)

    async def settle(self, receipts: Sequence[str]) -> None:
        """Do nothing: no message is received again (see `NoticeQueue`)."""

    async def shown(self, machines: Sequence[ProviderMachineId]) -> tuple[ListedMachine, ...]:
        """Return these pods as the API server shows them now (see `NoticeQueue`)."""
        found = []
        for machine in machines:
            pod = await read_pod(self.api, self._settings.namespace, machine)
            if pod is not None:
                found.append(listed_machine(self._settings, pod))
            elif machine in self._removed:
                found.append(self._removed[machine])
        return tuple(found)

    async def close(self) -> None:
        """End the watch. Idempotent."""
        await self._background.close()

    def _see(self, pod: Mapping[str, Any]) -> None:
        """Pass on what an answer shows of a pod, if it is new. An older answer may come after the removal."""
        machine = identity(pod).machine
        if machine in self._removed:
            return
        notice = self._notice(Change(machine, pod))
        if notice is not None:
            self._background.put(notice)
        if notice is not None or machine in self._announced:
            # If the next list lacks the pod, the pod has disappeared.
            self._watch.note_existing(machine)

    async def _notices(self) -> AsyncGenerator[Notice, None]:
        async with aclosing(self._watch.changes()) as changes:
            async for change in changes:
                notice = self._notice(change)
                if notice is not None:
                    yield notice

    def _notice(self, change: Change) -> Notice | None:
        """Return what a change means, or None if it means nothing new."""
        if change.pod is None:
            said = self._said.pop(change.machine, None)
            announced = self._announced.pop(change.machine, None)
            if change.removed is not None:
                self._remember(change.machine, change.removed)
            elif said is NoticeKind.STATE_CHANGE:
                # A pod that was listed as gone before has been reported.
                return None
            elif said is None and announced is not None:
                # The watch broke between the announcement and the deletion.
                return announced
            notice = Notice(
                NoticeKind.STATE_CHANGE, (change.machine,), self._clock.now(), "does not exist"
            )
            ended = change.removed is not None and pod_state(change.removed).terminated
            return replace(notice, ended=self._removed[change.machine]) if ended else notice
        announced = disruption_notice(change.pod, self._clock.now())
        if announced is not None:
            self._announced[change.machine] = announced
        elif is_disruption_revoked(change.pod):
            self._announced.pop(change.machine, None)
        found = pod_notice(self._settings, change.pod, self._clock.now())
        ended = pod_state(change.pod).terminated
        new_end = ended and change.machine not in self._removed
        if ended:
            # The garbage collection of a lost node's pods removes them right after it has written why.
            self._remember(change.machine, change.pod)
        else:
            # It was not removed: it had lost its label.
            self._removed.pop(change.machine, None)
        known = found is not None and self._said.get(change.machine) is found.kind
        if found is None or (known and not new_end):
            return None
        self._said[change.machine] = found.kind
        return replace(found, ended=self._removed[change.machine]) if ended else found

    def _remember(self, machine: ProviderMachineId, pod: Mapping[str, Any]) -> None:
        known, found = self._removed.get(machine), removed_machine(self._settings, pod)
        # A pod that has ended may be deleted later: the first sight shows whether it was deleted before.
        self._removed[machine] = found if known is None else replace(found, deleted=known.deleted)
        if len(self._removed) > MOST_REMOVED:
            del self._removed[next(iter(self._removed))]
