"""Plays the kubelets of a few nodes: the containers of their pods are processes on this host.

kwok leaves nodes with the label `KUBELET` alone, and their pods. Each node has a lease, which is renewed as a
kubelet does, so that the node stays ready.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Self

import aiohttp

from lab.kubernetes.admin import Administrator, RequestFailedError, accepts_pods, is_ready
from lab.kubernetes.containers import Runtime
from lab.kubernetes.kubelet_logs import KubeletLogs
from lab.kubernetes.pod_worker import PodWorker
from lab.kubernetes.servers import KUBELET

RENEWED_EVERY = 2.0
"""Real seconds between renewals of a lease. A kubelet's are 10 s (KubeletConfiguration): tests wait for one."""

_RETRY = 0.2
_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"


class KubeletFailedError(Exception):
    """A task of a kubelet failed. The message says how."""


class Kubelet:
    """The kubelets of all nodes that it adds. Use it as an async context manager. `logs` serves their logs.

    `scale` is lab seconds per real second. The end of the context kills all containers.
    """

    def __init__(
        self,
        admin: Administrator,
        runtime: Runtime,
        scale: float,
        observe: Callable[[Mapping[str, Any], bool], None] = lambda _pod, _deleted: None,
    ) -> None:
        """`observe` is called with each change of a pod of any node, and whether the pod is deleted."""
        self.runtime = runtime
        self._observe = observe
        self._shown: dict[str, Mapping[str, Any]] = {}
        self._admin = admin
        self._scale = scale
        self._nodes: set[str] = set()
        self._workers: dict[str, PodWorker] = {}
        self._seen: frozenset[str] = frozenset()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._loops: list[asyncio.Task[None]] = []
        self.logs = KubeletLogs(admin.credentials, runtime, self._pod_of)

    async def __aenter__(self) -> Self:
        """Begin to follow the pods, and to serve their logs."""
        await self.logs.__aenter__()
        self._loops = [asyncio.create_task(one()) for one in (self._follow, self._renew)]
        return self

    async def __aexit__(self, *_: object) -> None:
        """Kill all containers and delete the nodes, so that no pod is left waiting on them.

        Raises KubeletFailedError if a task failed, such as with a request that the API server refused.
        """
        tasks = [*self._loops, *self._tasks.values(), *self._stopping()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.logs.__aexit__()
        await self.runtime.close()
        for name in self._nodes:
            with suppress(aiohttp.ClientError, RequestFailedError, TimeoutError):
                await self._admin.request("DELETE", f"/api/v1/nodes/{name}")
        self.check()

    def check(self) -> None:
        """Raise KubeletFailedError if a task failed: its pods would never end."""
        for task in [*self._loops, *self._tasks.values(), *self._stopping()]:
            if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                raise KubeletFailedError(repr(error)) from error

    def _stopping(self) -> list[asyncio.Task[None]]:
        return [one.stopping for one in self._workers.values() if one.stopping is not None]

    async def add_node(
        self,
        name: str,
        resources: dict[str, str],
        labels: dict[str, str] | None = None,
        taints: list[dict[str, str]] | None = None,
        arch: str = "amd64",
    ) -> None:
        """Add a node (see `Administrator.add_node`), run its pods, and wait until it accepts some."""
        lease = {"metadata": {"name": name}, "spec": self._lease(name)}
        await self._admin.create(_LEASES, lease)
        self._nodes.add(name)
        own = {KUBELET: "processes", **(labels or {})}
        await self._admin.add_node(name, resources, own, taints, arch)
        path = f"/api/v1/nodes/{name}"
        await self._report(path)
        await self._admin.until(path, accepts_pods)
        await self._admin.scheduler_knows(name)

    def pods(self) -> tuple[str, ...]:
        """Return the names of the pods whose containers have not ended."""
        return tuple(worker.name for worker in self._workers.values())

    async def run_out_of_memory(self, name: str) -> None:
        """Kill the containers of a pod, as the kernel does at their memory limit."""
        for worker in list(self._workers.values()):
            if worker.name == name:
                await worker.kill(out_of_memory=True)

    async def restart(self, *, with_nodes: bool = False) -> None:
        """Admit all pods again, as a kubelet does that starts. With the nodes, all containers end before."""
        for worker in list(self._workers.values()):
            await worker.admit_again(node_restarted=with_nodes)

    async def _follow(self) -> None:
        """List and watch the pods, from the beginning after each failure."""
        while True:
            with suppress(aiohttp.ClientError, RequestFailedError, TimeoutError):
                found = await self._admin.request("GET", "/api/v1/pods")
                shown = {pod["metadata"]["uid"]: pod for pod in found["items"]}
                for pod in shown.values():
                    self._see(pod)
                for uid in set(self._shown) - set(shown):
                    self._see(self._shown[uid], deleted=True)
                version = found["metadata"]["resourceVersion"]
                async for change in self._admin.watch("/api/v1/pods", version):
                    if change["type"] == "ERROR":
                        break
                    self._see(change["object"], deleted=change["type"] == "DELETED")
            await asyncio.sleep(_RETRY)

    def _see(self, pod: Mapping[str, Any], *, deleted: bool = False) -> None:
        """Start the containers of a new pod on one of the nodes, or stop those of a deleted one."""
        metadata, uid = pod["metadata"], pod["metadata"]["uid"]
        self._shown[uid] = pod
        if deleted:
            del self._shown[uid]
        self._observe(pod, deleted)
        if pod["spec"].get("nodeName") not in self._nodes:
            return
        leaving = deleted or metadata.get("deletionTimestamp") is not None
        worker = self._workers.get(uid)
        if worker is None and not deleted and (leaving or uid not in self._seen):
            worker = PodWorker(self._admin, self.runtime, pod, self._scale)
            self._workers[uid] = worker
            self._tasks[uid] = asyncio.create_task(self._work(uid, worker))
        if worker is None and deleted:
            self.runtime.remove(pod)
        if worker is not None and leaving:
            grace = 0.0 if deleted else float(metadata.get("deletionGracePeriodSeconds") or 0)
            worker.stop(grace)

    def _pod_of(self, namespace: str, name: str) -> Mapping[str, Any] | None:
        """Return a pod on one of the nodes."""
        for pod in self._shown.values():
            metadata = pod["metadata"]
            if (metadata["namespace"], metadata["name"]) == (namespace, name):
                return pod if pod["spec"].get("nodeName") in self._nodes else None
        return None

    async def _work(self, uid: str, worker: PodWorker) -> None:
        # A pod may be deleted while its last status is on its way. Then nothing runs any more.
        ended, self._seen = uid in self._seen, self._seen | {uid}
        await (worker.delete() if ended else worker.run())
        del self._workers[uid], self._tasks[uid]

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(RENEWED_EVERY)
            for name in sorted(self._nodes):
                with suppress(aiohttp.ClientError, RequestFailedError, TimeoutError):
                    await self._admin.patch(f"{_LEASES}/{name}", {"spec": self._lease(name)})
                    path = f"/api/v1/nodes/{name}"
                    if not is_ready(await self._admin.request("GET", path)):
                        await self._report(path)

    async def _report(self, path: str) -> None:
        """Report a node as ready.

        The controllers set Ready to Unknown when they have seen no heartbeat for 50 s, as during an outage of
        the API server. A heartbeat alone does not undo it: kubelet reports its status again when the API
        server's differs (`tryUpdateNodeHealth` in pkg/controller/nodelifecycle/node_lifecycle_controller.go,
        `tryUpdateNodeStatus` in pkg/kubelet/kubelet_node_status.go).
        """
        ready = {
            "type": "Ready",
            "status": "True",
            "reason": "KubeletReady",
            "message": "kubelet is posting ready status",
            "lastHeartbeatTime": _now(),
            "lastTransitionTime": _now(),
        }
        status = {
            "conditions": [ready],
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self.logs.port}},
        }
        await self._admin.patch(f"{path}/status", {"status": status})

    @staticmethod
    def _lease(name: str) -> dict[str, Any]:
        return {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": _now(".%fZ")}


def _now(end: str = "Z") -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S" + end)
