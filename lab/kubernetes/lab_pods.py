"""A laboratory's part on Kubernetes: a cluster with a namespace for runner pods, whose agents really run."""

import asyncio
import json
import secrets
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autoscaler.controller.system import SystemClock
from autoscaler.providers.kubernetes.identity import ownership
from lab.kubernetes.admin import Administrator
from lab.kubernetes.cluster import Cluster
from lab.kubernetes.containers import Runtime
from lab.kubernetes.kubelet import Kubelet
from lab.kubernetes.namespaces import ACCOUNT, make_namespace

PROVIDER = "cluster"
"""The provider's name in fleet.yaml."""


@dataclass(frozen=True, slots=True)
class LabNode:
    """A node. `resources` are those of its device plugins, such as `amd.com/gpu: "8"`."""

    resources: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    arch: str = "amd64"


@dataclass(slots=True)
class LabPod:
    """One pod. Times are Unix seconds of lab time. `bound_at` is when the scheduler chose its node."""

    name: str
    uid: str
    sku: str
    launched_at: float
    phase: str = "Pending"
    bound_at: float | None = None
    ended_at: float | None = None

    @property
    def id(self) -> str:
        """The provider's ID of the machine."""
        return f"{self.name}.{self.uid}"

    def billed_seconds(self, now: float) -> float:
        """Return the lab seconds for which the pod had its resources, up to `now`."""
        if self.bound_at is None:
            return 0.0
        return (now if self.ended_at is None else self.ended_at) - self.bound_at


class LabPods:
    """The namespace, and every pod that was ever in it. Iterable.

    `folder` becomes the folder of the nodes' containers, and of the cluster if none is given. A cluster that is
    given must run, and is left running.
    """

    def __init__(
        self,
        folder: Path,
        clock: SystemClock,
        nodes: Sequence[LabNode],
        cluster: Cluster | None = None,
    ) -> None:
        self.namespace = f"runners-{secrets.token_hex(4)}"
        self.kubelet: Kubelet
        self.admin: Administrator
        self.peak = 0
        self._folder = folder
        self._clock = clock
        self._nodes = nodes
        self._cluster = cluster
        self._kubeconfig = ""
        self._pods: dict[str, LabPod] = {}
        self._closing = AsyncExitStack()

    async def start(self) -> None:
        """Start the cluster and its nodes. Raises ProgramMissingError, ProgramFailedError, TimeoutError."""
        async with AsyncExitStack() as stack:
            cluster = self._cluster
            if cluster is None:
                place = self._folder / "cluster"
                place.mkdir()
                cluster = Cluster(place)
                stack.push_async_callback(asyncio.to_thread, cluster.close)
                await _in_thread(cluster.start)
            self._cluster = cluster
            self.admin = Administrator(cluster)
            stack.push_async_callback(self.admin.close)
            token = await make_namespace(self.admin, self.namespace)
            self._kubeconfig = str(cluster.kubeconfig(self.namespace, token, self.namespace))
            runtime = Runtime(self._folder / "containers", self._clock.scale)
            kubelet = Kubelet(self.admin, runtime, self._clock.scale, self._see)
            self.kubelet = await stack.enter_async_context(kubelet)
            for number, node in enumerate(self._nodes):
                name = f"{self.namespace}-{number}"
                labels = {"pool": self.namespace, **node.labels}
                await kubelet.add_node(name, dict(node.resources), labels, arch=node.arch)
            self._closing = stack.pop_all()

    async def close(self) -> None:
        """Stop everything that was started. Idempotent."""
        await self._closing.aclose()

    def send_through(self, url: str) -> None:
        """Have the controller, once it is started again, use the API server at this address."""
        file = Path(self._kubeconfig)
        content = json.loads(file.read_text())
        content["clusters"][0]["cluster"]["server"] = url
        file.write_text(json.dumps(content))

    @property
    def section(self) -> dict[str, Any]:
        """The provider's section in fleet.yaml."""
        cluster = {
            "kubeconfig": self._kubeconfig,
            "context": self.namespace,
            "namespace": self.namespace,
            "provisioner": False,
        }
        return {"kubernetes": cluster}

    def __iter__(self) -> Iterator[LabPod]:
        """Iterate over all pods, also those that are gone."""
        return iter(self._pods.values())

    def find(self, machine: str) -> LabPod | None:
        """Return the pod with the provider's ID of this machine."""
        return next((pod for pod in self if pod.id == machine), None)

    @property
    def alive(self) -> int:
        """The number of pods that have not ended."""
        return sum(one.ended_at is None for one in self)

    def check(self) -> None:
        """Raise KubeletFailedError if the kubelet failed: then pods never end, and are not seen."""
        self.kubelet.check()

    def left(self) -> list[LabPod]:
        """Return the pods that exist."""
        return [pod for pod in self if pod.phase != "gone"]

    def hours(self) -> float:
        """Return the lab hours for which all pods have had their resources up to now."""
        now = self._clock.now()
        return sum(pod.billed_seconds(now) for pod in self) / 3600

    def calls(self) -> Counter[str]:
        """Return how often the controller sent each request, from the audit log, such as `get pods/log`."""
        user = f"system:serviceaccount:{self.namespace}:{ACCOUNT}"
        events = self._cluster.audit_events() if self._cluster is not None else []
        mine = [one for one in events if one["user"]["username"] == user and "objectRef" in one]
        return Counter(f"{one['verb']} {_resource(one['objectRef'])}" for one in mine)

    def _see(self, found: Mapping[str, Any], deleted: bool) -> None:
        """Update the `LabPod` from a pod that a list or a watch event returned."""
        metadata = found["metadata"]
        if metadata["namespace"] != self.namespace:
            return
        now, uid = self._clock.now(), metadata["uid"]
        sku = (metadata.get("annotations") or {}).get(ownership.SKU, "?")
        pod = self._pods.setdefault(uid, LabPod(metadata["name"], uid, sku, now))
        pod.phase = "gone" if deleted else found["status"]["phase"]
        if pod.bound_at is None and found["spec"].get("nodeName"):
            pod.bound_at = now
        if pod.ended_at is None and pod.phase in ("gone", "Succeeded", "Failed"):
            pod.ended_at = now
        self.peak = max(self.peak, self.alive)


def _resource(target: Mapping[str, Any]) -> str:
    """Return the resource of a request, and its subresource if it has one."""
    subresource = target.get("subresource", "")
    return f"{target['resource']}/{subresource}" if subresource else str(target["resource"])


async def _in_thread(work: Callable[[], None]) -> None:
    """Run blocking work in a thread. If it is cancelled, wait for the thread: it cannot be stopped."""
    task = asyncio.create_task(asyncio.to_thread(work))
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise
