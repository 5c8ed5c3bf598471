"""Follows a fleet's pods: a list, then a watch from its version, and a new list if the watch cannot go on.

Sources: Kubernetes documentation, "API Concepts": efficient detection of changes. A watch ends after its
timeout or with its connection, and goes on from the last version that was read. Bookmarks move this version
while nothing changes. After 410 the changes since then are unknown, so the pods are listed again.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any, NamedTuple

from autoscaler.controller.ports.provider import OutcomeUnknownError, ProviderError
from autoscaler.model.identifiers import ProviderMachineId
from autoscaler.providers.kubernetes.api import paths
from autoscaler.providers.kubernetes.api.errors import error_of
from autoscaler.providers.kubernetes.api.server import ApiServer
from autoscaler.providers.kubernetes.identity.ownership import selector
from autoscaler.providers.kubernetes.listing.machines import identity
from autoscaler.providers.kubernetes.listing.pods import PAGE, list_pods
from autoscaler.providers.kubernetes.settings import KubernetesSettings

WATCH_SECONDS = 300
"""How long the API server keeps one watch open."""

_MARGIN = 30.0
"""Seconds after which the provider closes a watch that the API server did not end in time."""


class _Event(NamedTuple):
    kind: str
    pod: Mapping[str, Any]
    version: str


def _event(line: bytes) -> _Event:
    """Return one event of a watch. Raises ProviderError, OutcomeUnknownError for an error's event."""
    try:
        found = json.loads(line)
        kind, content = str(found["type"]), found["object"]
        if kind != "ERROR":
            return _Event(kind, content, str(content["metadata"]["resourceVersion"]))
        error = error_of(int(content.get("code", 500)), content)
    except (AttributeError, KeyError, TypeError, ValueError) as problem:
        raise OutcomeUnknownError(f"not an event of a watch: {line[:100]!r}") from problem
    raise error


class Change(NamedTuple):
    """A pod as it is now. `pod` is None if it does not exist any more.

    `removed` is then its last state, or None if only a list did not show it.
    """

    machine: ProviderMachineId
    pod: Mapping[str, Any] | None
    removed: Mapping[str, Any] | None = None


class PodWatch:
    """Follows the pods of one fleet in one namespace."""

    def __init__(
        self, api: ApiServer, settings: KubernetesSettings, seconds: int = WATCH_SECONDS
    ) -> None:
        self._api = api
        self._settings = settings
        self._seconds = seconds
        self._version: str | None = None
        self._known: set[ProviderMachineId] = set()
        self._read = 0
        self.lists = 0
        """Complete lists so far."""

    async def changes(self) -> AsyncGenerator[Change, None]:
        """Yield changes without end; after a list, all pods and those that disappeared.

        Raises ProviderError, OutcomeUnknownError. The next call goes on where the last one ended.
        """
        while True:
            if self._version is None:
                for number, change in enumerate(await self._list(), 1):
                    yield change
                    if number % PAGE == 0:
                        # Thousands of pods in one step would hold the event loop.
                        await asyncio.sleep(0)
            before = self._read
            try:
                async with aclosing(self._watch()) as changes:
                    async for change in changes:
                        yield change
            except OutcomeUnknownError:
                # The connection broke. If it carried anything, a new one probably does, too.
                if self._read == before:
                    raise
            if self._version is not None and self._read == before:
                # Perhaps the API server does not know this version. A list has another one.
                self._version = None
                raise OutcomeUnknownError("the watch ended without an event or a bookmark")

    def note_existing(self, machine: ProviderMachineId) -> None:
        """Note that a pod existed a moment ago. If the next list lacks it, it has disappeared."""
        self._known.add(machine)

    async def _list(self) -> list[Change]:
        found = await list_pods(self._api, self._settings)
        pods = {identity(pod).machine: pod for pod in found.pods}
        changes = [Change(machine, None) for machine in sorted(self._known - set(pods))]
        changes += [Change(machine, pod) for machine, pod in pods.items()]
        self._known, self._version = set(pods), found.version
        self.lists += 1
        return changes

    async def _watch(self) -> AsyncGenerator[Change, None]:
        """Yield changes until the API server ends the watch, or does not know the version any more."""
        query = {
            "labelSelector": selector(self._settings.fleet),
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version or "",
            "timeoutSeconds": str(self._seconds),
        }
        path = paths.pods(self._settings.namespace)
        try:
            async with self._api.lines(path, query, self._seconds + _MARGIN) as lines:
                async for line in lines:
                    try:
                        event = _event(line)
                    except (ProviderError, OutcomeUnknownError):
                        # The API server could send this error again for this version. A list has a newer one.
                        self._version = None
                        raise
                    self._read += 1
                    self._version = event.version
                    if event.kind != "BOOKMARK":
                        yield self._change(event.kind, event.pod)
        except ProviderError as error:
            if error.code not in ("Expired", "Gone"):
                raise
            self._version = None

    def _change(self, kind: str, pod: Mapping[str, Any]) -> Change:
        machine = identity(pod).machine
        if kind == "DELETED":
            self._known.discard(machine)
            return Change(machine, None, pod)
        self._known.add(machine)
        return Change(machine, pod)
