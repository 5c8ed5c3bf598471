"""The API server of a simulated cluster: pods, nodes, logs and token reviews, with the faults of the schedule.

Sources: Kubernetes documentation, "API Concepts" (lists in pages, watches, bookmarks, 410 Gone) and
"API Priority and Fairness" (429 with Retry-After); apiserver's `registry/generic/registry/store.go` (quotas are
checked before the name) and `registry/rest/delete.go` (preconditions), and the pods' `CheckGracefulDelete`: a
pod without a node, or one that has ended, is removed at once.
"""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from autoscaler.model.identifiers import Instant, Seconds
from autoscaler.simulator.world.cluster.nodes import ENDED, Node
from autoscaler.simulator.world.cluster.registry import Object, Registry, timestamp
from autoscaler.simulator.world.cluster.tokens import review
from autoscaler.simulator.world.fault_schedule import FaultSchedule
from autoscaler.simulator.world.processes import send
from autoscaler.simulator.world.schedule import FaultKind

LATENCY: Seconds = 0.05
BOOKMARK_EVERY: Seconds = 60.0
RETRY_AFTER: Seconds = 1.0
CLIENT_TIMEOUT: Seconds = 30.0
"""Seconds after which the provider's client closes the connection."""

_SHORT = (0, 2, 1)
"""Page sizes during the fault SHORT_PAGES. The API server drops the pods that a selector excludes from a full
page (API reference, `ListOptions.limit`: "may return fewer ... (up to zero items)")."""


_ETCD = "etcdserver: request timed out"
_WEBHOOK = (
    'Internal error occurred: failed calling webhook "pods.example": failed to call webhook: Post '
    '"https://pods.example.svc:443": context deadline exceeded'
)


class RefusedConnectionError(Exception):
    """No connection: nothing was sent."""


class BrokenConnectionError(Exception):
    """The connection broke, or the client's time was over: the request may have been carried out."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer: an object, or a `Status` from 300 on. `text` is that of logs."""

    status: int
    body: Mapping[str, Any]
    retry_after: Seconds | None = None
    text: str = ""


@dataclass(frozen=True, slots=True)
class Admission:
    """What the world adds to requests. Each function may record a violation.

    `creating` is called before a pod is stored, and `deleting` with the pod and the body of the request.
    `log` returns what a pod's containers wrote.
    """

    creating: Callable[[Object], None]
    deleting: Callable[[Object, Object], None]
    log: Callable[[Object], str]


class ApiServer:
    """Answers requests by those rules of the real API server that the provider relies on."""

    def __init__(
        self,
        registry: Registry,
        nodes: Mapping[str, Node],
        fault_schedule: FaultSchedule,
        admission: Admission,
        now: Callable[[], Instant],
    ) -> None:
        self._registry = registry
        self._nodes = nodes
        self._fault_schedule = fault_schedule
        self._admission = admission
        self._now = now
        self._pages: dict[str, tuple[int, list[Object]]] = {}
        self._numbers = itertools.count(1)
        self._sizes = itertools.cycle(_SHORT)
        self._errors = itertools.cycle((_ETCD, _WEBHOOK))

    async def answer(
        self, method: str, path: str, query: Mapping[str, str], body: Object
    ) -> Answer:
        """Return the answer to one request. Raises RefusedConnectionError, BrokenConnectionError."""
        hit = self._fault_schedule.hit
        if hit(FaultKind.API_DOWN):
            raise RefusedConnectionError
        if hit(FaultKind.API_THROTTLED):
            await asyncio.sleep(LATENCY)
            text = "Too many requests, please try again later."
            return _status(429, "TooManyRequests", text, RETRY_AFTER)
        if hit(FaultKind.API_5XX):
            await asyncio.sleep(LATENCY)
            creates = method == "POST" and path.endswith("/pods")
            return _status(500, "InternalError", next(self._errors) if creates else _ETCD)
        answer = self._sent(method, path, query, body)
        slow = hit(FaultKind.API_SLOW)
        wait = LATENCY if slow is None else float(slow.target)
        await asyncio.sleep(min(wait, CLIENT_TIMEOUT))
        if wait >= CLIENT_TIMEOUT or hit(FaultKind.API_SWALLOWED):
            raise BrokenConnectionError
        return answer

    async def watch(
        self, path: str, query: Mapping[str, str], limit: Seconds
    ) -> AsyncIterator[bytes]:
        """Yield the lines of a watch. Raises BrokenConnectionError, RefusedConnectionError."""
        await asyncio.sleep(LATENCY)
        if self._fault_schedule.active(FaultKind.API_DOWN):
            raise RefusedConnectionError
        registry, loop = self._registry, asyncio.get_running_loop()
        registry.compact()
        version, ends = int(query["resourceVersion"]), loop.time() + float(query["timeoutSeconds"])
        breaks, bookmark = loop.time() + limit, loop.time() + BOOKMARK_EVERY
        wanted = _selected(path, query)
        while loop.time() < ends:
            if version < registry.oldest:
                yield _line("ERROR", _expired().body)
                return
            for event in registry.events_after(version):
                version = event.version
                if wanted(event.pod):
                    await self._trouble(breaks)
                    yield _line(event.kind, event.pod)
            if loop.time() >= bookmark and "allowWatchBookmarks" in query:
                bookmark = loop.time() + BOOKMARK_EVERY
                await self._trouble(breaks)
                yield _line("BOOKMARK", {"kind": "Pod", "metadata": _version(version)})
            await registry.changed(max(0.0, min(ends, bookmark) - loop.time()))
            if self._fault_schedule.active(FaultKind.API_DOWN):
                raise BrokenConnectionError

    async def _trouble(self, breaks: Seconds) -> None:
        """Break a watch, or let it hang until the client breaks it. Raises BrokenConnectionError."""
        if self._fault_schedule.hit(FaultKind.WATCH_SILENT):
            await asyncio.sleep(max(0.0, breaks - asyncio.get_running_loop().time()))
            raise BrokenConnectionError
        if self._fault_schedule.hit(FaultKind.WATCH_BREAKS):
            raise BrokenConnectionError

    def _sent(self, method: str, path: str, query: Mapping[str, str], body: Object) -> Answer:
        """Carry a request out. Raises BrokenConnectionError if it changes something and was not sent."""

        def effect() -> Answer:
            return self._carried_out(method, path, query, body)

        if method == "GET" or path.endswith("/tokenreviews"):
            return effect()
        return send(effect, BrokenConnectionError)

    def _carried_out(
        self, method: str, path: str, query: Mapping[str, str], body: Object
    ) -> Answer:
        parts = path.strip("/").split("/")
        if method == "POST" and parts[-1] == "tokenreviews":
            return self._reviewed(body)
        if method == "GET" and parts[-1] == "nodes":
            return Answer(200, {"items": [node.shown() for node in self._nodes.values()]})
        if parts[-1] == "pods":
            if method == "GET":
                return self._list(path, query)
            return self._create(parts[-2], query, body)
        log = parts[-1] == "log"
        namespace, name = (parts[-4], parts[-2]) if log else (parts[-3], parts[-1])
        pod = self._registry.pods.get((namespace, name))
        if pod is None:
            return _status(404, "NotFound", f'pods "{name}" not found')
        if method == "DELETE":
            return self._delete(pod, body)
        if method == "PATCH":
            return self._patch(pod, body)
        return self._log(pod) if log else Answer(200, pod)

    def _list(self, path: str, query: Mapping[str, str]) -> Answer:
        following = query.get("continue")
        if following is None:
            wanted = _selected(path, query)
            found = (self._registry.version, [p for p in self._registry.pods.values() if wanted(p)])
        elif following not in self._pages or self._fault_schedule.hit(FaultKind.LIST_EXPIRED):
            return _expired()
        else:
            found = self._pages.pop(following)
        version, pods = found
        size = int(query.get("limit", len(pods)))
        if self._fault_schedule.active(FaultKind.SHORT_PAGES):
            self._fault_schedule.hits[FaultKind.SHORT_PAGES] += 1
            size = min(size, next(self._sizes))
        metadata = _version(version)
        if len(pods) > size:
            metadata["continue"] = f"page-{next(self._numbers)}"
            self._pages[metadata["continue"]] = (version, pods[size:])
        return Answer(200, {"metadata": metadata, "items": pods[:size]})

    def _create(self, namespace: str, query: Mapping[str, str], body: Object) -> Answer:
        name = body["metadata"]["name"]
        if self._fault_schedule.hit(FaultKind.POD_QUOTA):
            text = f'pods "{name}" is forbidden: exceeded quota: runners, requested: pods=1, '
            return _status(403, "Forbidden", f"{text}used: pods=20, limited: pods=20")
        if (namespace, name) in self._registry.pods:
            return _status(409, "AlreadyExists", f'pods "{name}" already exists')
        if "dryRun" in query:
            return Answer(201, body)
        self._admission.creating(body)
        return Answer(201, self._registry.create(body))

    def _patch(self, pod: Object, body: Object) -> Answer:
        uid = (body.get("metadata") or {}).get("uid", pod["metadata"]["uid"])
        if uid != pod["metadata"]["uid"]:
            return _status(409, "Conflict", f"Precondition failed: UID in precondition: {uid}")
        return Answer(200, self._registry.change(pod, metadata=_merged(pod, body)))

    def _delete(self, pod: Object, body: Object) -> Answer:
        uid = (body.get("preconditions") or {}).get("uid")
        metadata = pod["metadata"]
        if uid not in (None, metadata["uid"]):
            text = f"the UID in the precondition ({uid}) does not match the UID in record"
            return _status(409, "Conflict", f"Operation cannot be fulfilled on pods: {text}")
        self._admission.deleting(pod, body)
        return Answer(200, self.delete(pod))

    def delete(self, pod: Object) -> Object:
        """Delete a pod as the API server does: gracefully if it may run. Return it."""
        if "nodeName" not in pod["spec"] or pod["status"]["phase"] in ENDED:
            self._registry.remove(pod)
            return pod
        if "deletionTimestamp" in pod["metadata"]:
            return pod
        grace = pod["spec"].get("terminationGracePeriodSeconds", 30)
        moment = timestamp(self._now() + grace)
        return self._registry.change(
            pod, metadata={"deletionTimestamp": moment, "deletionGracePeriodSeconds": grace}
        )

    def _log(self, pod: Object) -> Answer:
        if not pod["status"].get("containerStatuses"):
            return _status(400, "BadRequest", "container is waiting to start: ContainerCreating")
        return Answer(200, {}, text=self._admission.log(pod))

    def _reviewed(self, body: Object) -> Answer:
        if self._fault_schedule.hit(FaultKind.REVIEW_FAILS):
            return _status(500, "InternalError", "the authenticator has timed out")
        pods = self._registry.pods.values()
        return Answer(201, {"status": review(body["spec"], pods)})


def _selected(path: str, query: Mapping[str, str]) -> Callable[[Object], bool]:
    """Return whether a pod is in a collection and matches the selector of a request."""
    parts = path.strip("/").split("/")
    namespace = parts[-2] if parts[-3] == "namespaces" else None
    key, _, value = query.get("labelSelector", "").partition("=")

    def wanted(pod: Object) -> bool:
        metadata = pod["metadata"]
        return namespace in (None, metadata["namespace"]) and (
            not key or (metadata.get("labels") or {}).get(key) == value
        )

    return wanted


def _merged(pod: Object, body: Object) -> dict[str, Any]:
    """Return labels and annotations after a merge patch."""
    patch = body.get("metadata") or {}
    return {
        kind: {**(pod["metadata"].get(kind) or {}), **patch[kind]}
        for kind in ("labels", "annotations")
        if kind in patch
    }


def _version(version: int) -> dict[str, str]:
    return {"resourceVersion": str(version)}


def _line(kind: str, content: Object) -> bytes:
    return json.dumps({"type": kind, "object": content}).encode() + b"\n"


def _expired() -> Answer:
    return _status(410, "Expired", "The provided version or token is too old")


def _status(code: int, reason: str, text: str, retry_after: Seconds | None = None) -> Answer:
    body = {"kind": "Status", "code": code, "reason": reason, "message": text}
    return Answer(code, body, retry_after)
