"""Requests to the cluster as its administrator: nodes, namespaces, quotas, and pods' statuses.

Plays what lies outside the autoscaler: the operator, kubelets, and other users of the cluster.
"""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from typing import Any

import aiohttp

from lab.kubernetes.cluster import Cluster

_PAUSE = 0.05
"""Seconds between two looks at an object."""


class RequestFailedError(Exception):
    """The API server refused a request of the administrator. The message is its answer."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class Administrator:
    """Sends requests with all rights."""

    def __init__(self, cluster: Cluster) -> None:
        self.credentials = cluster.credentials
        self.url = cluster.url
        token = cluster.credentials.tokens["admin"]
        context = ssl.create_default_context(cafile=str(cluster.credentials.ca))
        self._session = aiohttp.ClientSession(
            headers={"Authorization": f"Bearer {token}"},
            connector=aiohttp.TCPConnector(ssl=context, limit=20),
        )

    async def close(self) -> None:
        """Release the connections."""
        await self._session.close()

    async def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        content_type: str = "application/json",
        user: str = "",
    ) -> Any:
        """Return the answer to one request, which may be in the name of a user. Raises RequestFailedError."""
        data = None if body is None else json.dumps(body)
        headers = {"Content-Type": content_type} | ({"Impersonate-User": user} if user else {})
        async with self._session.request(
            method, self.url + path, data=data, headers=headers
        ) as answer:
            text = await answer.text()
            if answer.status >= 300:
                raise RequestFailedError(f"{method} {path}: {answer.status} {text}", answer.status)
            return json.loads(text)

    async def watch(self, path: str, version: str) -> AsyncIterator[Any]:
        """Yield the changes of a collection after a version, until the API server ends the watch.

        Raises RequestFailedError, aiohttp.ClientError.
        """
        url = f"{self.url}{path}?watch=1&resourceVersion={version}"
        async with self._session.get(url, timeout=aiohttp.ClientTimeout(total=None)) as answer:
            if answer.status >= 300:
                raise RequestFailedError(f"watch {path}: {answer.status}", answer.status)
            async for line in _lines(answer.content):
                yield json.loads(line)

    async def create(self, collection: str, body: Any) -> Any:
        """Create an object in a collection, such as `/api/v1/nodes`."""
        return await self.request("POST", collection, body)

    async def patch(self, path: str, body: Any) -> Any:
        """Merge `body` into an object (JSON merge patch)."""
        return await self.request("PATCH", path, body, "application/merge-patch+json")

    async def until(self, path: str, holds: Callable[[Any], bool], patience: float = 600.0) -> Any:
        """Return the object at this path once it exists and `holds`.

        `patience` is how long to wait, in seconds. Raises TimeoutError.
        """
        async with asyncio.timeout(patience):
            while True:
                with suppress(RequestFailedError):
                    found = await self.request("GET", path)
                    if holds(found):
                        return found
                await asyncio.sleep(_PAUSE)

    async def gone(self, path: str, patience: float = 600.0) -> None:
        """Return once there is no object at this path. Raises TimeoutError."""
        async with asyncio.timeout(patience):
            while True:
                try:
                    await self.request("GET", path)
                except RequestFailedError:
                    return
                await asyncio.sleep(_PAUSE)

    async def add_node(
        self,
        name: str,
        resources: dict[str, str],
        labels: dict[str, str] | None = None,
        taints: list[dict[str, str]] | None = None,
        arch: str = "amd64",
    ) -> None:
        """Add a node that kwok plays. `resources` is its capacity, such as `nvidia.com/gpu: "8"`."""
        capacity = {"cpu": "128", "memory": "1Ti", "ephemeral-storage": "4Ti", "pods": "250"}
        capacity |= resources
        own = {"kubernetes.io/os": "linux", "kubernetes.io/arch": arch}
        node = {
            "metadata": {
                "name": name,
                "labels": own | {"kubernetes.io/hostname": name} | (labels or {}),
            },
            "spec": {"taints": taints or []},
            "status": {"capacity": capacity, "allocatable": capacity},
        }
        await self.create("/api/v1/nodes", node)

    async def scheduler_knows(self, node: str) -> None:
        """Return once the scheduler may use a node that accepts pods. Raises TimeoutError after ten minutes.

        It reads nodes from a cache, which follows a moment later. Until then, it refuses pods for a new node.
        The pod asked for here fits no node: only its CPU is wrong once this node is known.
        """
        found = await self.request("GET", f"/api/v1/nodes/{node}")
        taints = found["spec"].get("taints") or ()
        tolerations = [{"key": one["key"], "operator": "Exists"} for one in taints]
        container = {"name": "probe", "image": "probe", "resources": {"requests": {"cpu": "1M"}}}
        spec = {
            "nodeSelector": {"kubernetes.io/hostname": node},
            "tolerations": tolerations,
            "containers": [container],
        }
        pods, message = "/api/v1/namespaces/default/pods", ""
        async with asyncio.timeout(600.0):
            while "Insufficient cpu" not in message:
                made = await self.create(
                    pods, {"metadata": {"generateName": "probe-"}, "spec": spec}
                )
                path = f"{pods}/{made['metadata']['name']}"
                shown = await self.until(path, lambda pod: pod["status"].get("conditions"))
                message = shown["status"]["conditions"][0].get("message", "")
                await self.request("DELETE", path)


def accepts_pods(node: Mapping[str, Any]) -> bool:
    """Return whether a node is ready, and the controllers have removed the taints of a new node.

    Before that, the scheduler refuses pods for it (Kubernetes documentation, "Taints and Tolerations").
    """
    taints = node["spec"].get("taints") or ()
    return is_ready(node) and not any(
        one["key"].startswith("node.kubernetes.io/") for one in taints
    )


def is_ready(node: Mapping[str, Any]) -> bool:
    """Return whether a node's condition Ready is True."""
    conditions = node.get("status", {}).get("conditions") or ()
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


async def _lines(stream: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Yield the lines of an answer. A pod's line may be longer than aiohttp's own limit for lines."""
    rest = b""
    async for piece in stream.iter_any():
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            yield line
