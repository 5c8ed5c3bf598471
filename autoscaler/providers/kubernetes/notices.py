"""Notices about pods, from a watch: evictions, preemptions, node losses, deletions, and ends.

The API server keeps no messages, so each is received once. After a restart of the controller, or a gap in the
watch, the list that follows shows the pods as they are.

A pod is terminated if the watch reported its end or its removal, and the API server does not have it any more.
A missing pod alone proves nothing. Nor does the report of a removal alone: a watch with a label selector also
reports a pod as deleted that lost the label (Kubernetes documentation, "API Concepts").
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from autoscaler.controller.ports.clock import Clock
from autoscaler.controller.ports.notices import Message, Notice
from autoscaler.controller.ports.provider import ProviderError
from autoscaler.model.events import ListedMachine
from autoscaler.model.identifiers import ProviderMachineId, Seconds
from autoscaler.model.interruptions import NoticeKind
from autoscaler.providers.kubernetes import paths
from autoscaler.providers.kubernetes.answers import (
    disruption_notice,
    identity,
    listed_machine,
    pod_notice,
    removed_machine,
)
from autoscaler.providers.kubernetes.api_server import ApiServer
from autoscaler.providers.kubernetes.background import Background
from autoscaler.providers.kubernetes.ownership import identity_of
from autoscaler.providers.kubernetes.settings import KubernetesSettings
from autoscaler.providers.kubernetes.statuses import pod_state
from autoscaler.providers.kubernetes.watch import Change, PodWatch

AT_ONCE = 10
"""Messages of one `receive`."""

MOST_REMOVED = 5000
"""Ended or removed pods that are remembered, the last ones. Others are missing in two complete lists."""


class PodNotices:
    """Implements `NoticeQueue` for one namespace."""

    def __init__(self, api: ApiServer, settings: KubernetesSettings, clock: Clock) -> None:
        self._api = api
        self._settings = settings
        self._clock = clock
        self._watch = PodWatch(api, settings)
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
            pod = await self._pod(machine)
            if pod is not None:
                found.append(listed_machine(self._settings, pod))
            elif machine in self._removed:
                found.append(self._removed[machine])
        return tuple(found)

    def note_deletion(self, answer: Mapping[str, Any]) -> None:
        """Remember what the API server's answer shows of a pod that was deleted: its end, or its disruption.

        While the watch is down, this answer may be the last that shows it. The notice follows when the watch
        shows that the pod is gone. The answer is the pod (Kubernetes API reference, "Delete a Pod"), or a
        Status, whose `status` is a text.
        """
        if not isinstance(answer.get("status"), Mapping):
            return
        machine = identity(answer).machine
        if machine in self._removed:
            # The watch was faster.
            return
        notice = pod_notice(self._settings, answer, self._clock.now())
        if pod_state(answer).terminated:
            self._remember(machine, answer)
        elif notice is not None and notice.kind is not NoticeKind.STATE_CHANGE:
            self._announced[machine] = notice
        else:
            return
        self._watch.note_existing(machine)

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
            announced = self._announced.pop(change.machine, None)
            if change.removed is not None:
                self._remember(change.machine, change.removed)
            elif said is NoticeKind.STATE_CHANGE:
                # A pod that was listed as gone before has been reported.
                return None
            elif said is None and announced is not None:
                # The watch broke between the announcement and the deletion.
                return announced
            return Notice(
                NoticeKind.STATE_CHANGE, (change.machine,), self._clock.now(), "does not exist"
            )
        if pod_state(change.pod).terminated:
            # The garbage collection of a lost node's pods removes them right after it has written why.
            self._remember(change.machine, change.pod)
        announced = disruption_notice(change.pod, self._clock.now())
        if announced is not None:
            self._announced[change.machine] = announced
        else:
            self._announced.pop(change.machine, None)
        notice = pod_notice(self._settings, change.pod, self._clock.now())
        if notice is None or self._said.get(change.machine) is notice.kind:
            return None
        self._said[change.machine] = notice.kind
        return notice

    def _remember(self, machine: ProviderMachineId, pod: Mapping[str, Any]) -> None:
        known, found = self._removed.get(machine), removed_machine(self._settings, pod)
        # A pod that has ended may be deleted later: the first sight shows whether it was deleted before.
        self._removed[machine] = found if known is None else replace(found, deleted=known.deleted)
        if len(self._removed) > MOST_REMOVED:
            del self._removed[next(iter(self._removed))]
