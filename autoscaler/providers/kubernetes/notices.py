"""Notices about pods, from a watch: evictions, preemptions, node losses, deletions, and ends.

The API server keeps no messages, so `settle` has nothing to do. After a restart of the controller, or a gap
in the watch, the list that follows shows the pods as they are.
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from autoscaler.controller.ports.clock import Clock
from autoscaler.controller.ports.notices import Message, Notice
from autoscaler.controller.ports.provider import ProviderError
from autoscaler.model.events import ListedMachine
from autoscaler.model.identifiers import ProviderMachineId, Seconds
from autoscaler.model.interruptions import NoticeKind
from autoscaler.providers.kubernetes import paths
from autoscaler.providers.kubernetes.answers import identity, listed_machine, pod_notice
from autoscaler.providers.kubernetes.api_server import ApiServer
from autoscaler.providers.kubernetes.background import Background
from autoscaler.providers.kubernetes.ownership import identity_of
from autoscaler.providers.kubernetes.settings import KubernetesSettings
from autoscaler.providers.kubernetes.watch import Change, PodWatch

AT_ONCE = 10
"""Messages of one `receive`."""


class PodNotices:
    """Implements `NoticeQueue` for one namespace."""

    def __init__(self, api: ApiServer, settings: KubernetesSettings, clock: Clock) -> None:
        self._api = api
        self._settings = settings
        self._clock = clock
        self._watch = PodWatch(api, settings)
        self._said: dict[ProviderMachineId, NoticeKind] = {}
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
        """Do nothing: the API server keeps no messages."""

    async def shown(self, machines: Sequence[ProviderMachineId]) -> tuple[ListedMachine, ...]:
        """Return these pods as the API server shows them now (see `NoticeQueue`)."""
        found = [await self._pod(machine) for machine in machines]
        return tuple(listed_machine(self._settings, pod) for pod in found if pod is not None)

    async def close(self) -> None:
        """End the watch. Idempotent."""
        await self._background.close()

    async def _pod(self, machine: ProviderMachineId) -> Mapping[str, Any] | None:
        known = identity_of(machine)
        if known is None:
            return None
        try:
            pod = await self._api.request("GET", paths.pod(self._settings.namespace, known.name))
        except ProviderError as error:
            if error.code == "NotFound":
                return None
            raise
        return pod if identity(pod) == known else None

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
            # A pod that was listed as gone before has been reported.
            if said is NoticeKind.STATE_CHANGE:
                return None
            return Notice(
                NoticeKind.STATE_CHANGE, (change.machine,), self._clock.now(), "does not exist"
            )
        notice = pod_notice(change.machine, change.pod, self._clock.now())
        if notice is None or self._said.get(change.machine) is notice.kind:
            return None
        self._said[change.machine] = notice.kind
        return notice
