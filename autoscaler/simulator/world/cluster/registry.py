"""The pods of a cluster with their versions, as the API server keeps them in etcd.

Objects are plain JSON and never changed: a change stores a new object. Source: Kubernetes documentation,
"API Concepts": resource versions, efficient detection of changes.
"""

import asyncio
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from autoscaler.model.identifiers import Instant, Seconds

Object = Mapping[str, Any]
Key = tuple[str, str]
"""Namespace and name."""

REMEMBERED: Seconds = 300.0
"""How long etcd keeps old versions (API Concepts: "by default, ... the last 5 minutes")."""


class Event(NamedTuple):
    """A change as watches show it."""

    version: int
    at: Instant
    kind: str
    pod: Object


def key_of(pod: Object) -> Key:
    """Return a pod's namespace and name."""
    return pod["metadata"]["namespace"], pod["metadata"]["name"]


def timestamp(moment: Instant) -> str:
    """Return a time as the API server writes it: to the second."""
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Registry:
    """All pods. `listeners` are called with each change: the new object, or None and the last one."""

    def __init__(self, now: Callable[[], Instant]) -> None:
        self.pods: dict[Key, Object] = {}
        self.version = 1
        self.oldest = 1
        """Changes after this version are known. A watch from an earlier one gets 410."""
        self.listeners: list[Callable[[Object | None, Object], None]] = []
        self._now = now
        self._events: list[Event] = []
        self._made = 0
        self._readers: set[asyncio.Event] = set()

    @property
    def moment(self) -> str:
        """Return the time as the cluster's controllers write it."""
        return timestamp(self._now())

    def create(self, pod: Object) -> Object:
        """Add a pod with a UID of its own. The caller has checked that its name is free."""
        self._made += 1
        metadata = {
            **pod["metadata"],
            "uid": f"{self._made:08x}-0000-4000-8000-000000000000",
            "creationTimestamp": self.moment,
        }
        # The API server fills in nothing else: kubelet and the scheduler write the rest later.
        status = {"phase": "Pending", "qosClass": "Guaranteed"}
        return self._store("ADDED", {**pod, "metadata": metadata, "status": status})

    def change(
        self,
        pod: Object,
        metadata: Object | None = None,
        spec: Object | None = None,
        status: Object | None = None,
    ) -> Object:
        """Store new values of some fields of a pod that exists."""
        changed = {
            **pod,
            "metadata": {**pod["metadata"], **(metadata or {})},
            "spec": {**pod["spec"], **(spec or {})},
            "status": {**pod["status"], **(status or {})},
        }
        return self._store("MODIFIED", changed)

    def remove(self, pod: Object) -> None:
        """Remove a pod: its name is free again."""
        del self.pods[key_of(pod)]
        last = self._record("DELETED", pod)
        for listener in self.listeners:
            listener(None, last)

    def current(self, pod: Object) -> Object | None:
        """Return the pod as it is now, or None if it was removed. Its name may have another pod."""
        found = self.pods.get(key_of(pod))
        return found if found and found["metadata"]["uid"] == pod["metadata"]["uid"] else None

    def events_after(self, version: int) -> list[Event]:
        """Return the changes after a version that is still known."""
        found = []
        for event in reversed(self._events):
            if event.version <= version:
                break
            found.append(event)
        return found[::-1]

    def drop_history(self) -> None:
        """Forget all changes so far (etcd compaction)."""
        self.oldest = self.version
        self._events.clear()
        self.wake()

    def compact(self) -> None:
        """Forget the changes that are too old."""
        until = self._now() - REMEMBERED
        while self._events and self._events[0].at < until:
            self.oldest = self._events.pop(0).version

    async def changed(self, seconds: Seconds) -> None:
        """Return after the next change, a call of `wake`, or this time."""
        event = asyncio.Event()
        self._readers.add(event)
        try:
            async with asyncio.timeout(seconds):
                await event.wait()
        except TimeoutError:
            pass
        finally:
            self._readers.discard(event)

    def wake(self) -> None:
        """Wake everything that waits in `changed`."""
        for event in self._readers:
            event.set()

    def _store(self, kind: str, pod: Object) -> Object:
        stored = self._record(kind, pod)
        self.pods[key_of(stored)] = stored
        for listener in self.listeners:
            listener(stored, stored)
        return stored

    def _record(self, kind: str, pod: Object) -> Object:
        self.version += 1
        metadata = {**pod["metadata"], "resourceVersion": str(self.version)}
        stored = {**pod, "metadata": metadata}
        self._events.append(Event(self.version, self._now(), kind, stored))
        self.wake()
        return stored
