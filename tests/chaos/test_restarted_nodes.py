"""The simulated kubelets: what a restart of kubelet or of its node does to pods with devices."""

import asyncio
from typing import Any

import pytest

from autoscaler.simulator.world.cluster.kubelet import Kubelets
from autoscaler.simulator.world.cluster.nodes import Node
from autoscaler.simulator.world.cluster.pods import is_disrupted
from autoscaler.simulator.world.cluster.registry import Object, Registry
from autoscaler.simulator.world.fault_schedule import FaultSchedule
from tests.chaos.test_dead_nodes import Containers
from tests.controller.virtual_time import on_virtual_time

GPU = {"name": "gpu", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
PLAIN = {"name": "plain"}
REFUSED = ("Failed", "UnexpectedAdmissionError")
RUNNING = ("Running", None)


class Cluster:
    """One node with its kubelet."""

    def __init__(self) -> None:
        self.registry, self.containers = Registry(lambda: 0.0), Containers()
        self.kubelets = Kubelets(self.registry, FaultSchedule((), 0.0), self.containers)
        self.node = Node("n-1", {}, {"pods": 10})

    def bind(self, name: str, spec: Any) -> Object:
        """Put a pod on the node."""
        pod = self.registry.create({"metadata": {"name": name, "namespace": "n"}, "spec": spec})
        self.kubelets.bound(pod, self.node)
        return pod

    def shown(self, pod: Object) -> tuple[str, str | None]:
        """Return a pod's phase and reason."""
        current = self.registry.current(pod)
        assert current is not None
        return current["status"]["phase"], current["status"].get("reason")


@pytest.mark.case(
    "kubelet starts again: it kills pods whose init container had devices of a device plugin",
    topic="Kubernetes",
    source="kubernetes/kubernetes#138446",
)
@pytest.mark.parametrize(
    ("spec", "after", "expected"),
    [
        ({"containers": [GPU]}, 60.0, RUNNING),
        ({"containers": [PLAIN], "initContainers": [PLAIN]}, 60.0, RUNNING),
        ({"containers": [GPU], "initContainers": [GPU]}, 60.0, REFUSED),
        ({"containers": [GPU]}, 2.0, REFUSED),
        ({"containers": [PLAIN]}, 2.0, ("Pending", None)),
    ],
)
@on_virtual_time
async def test_a_restart_of_kubelet_spares_only_the_devices_of_running_containers(
    spec: Any, after: float, expected: tuple[str, str | None]
) -> None:
    cluster = Cluster()
    pod = cluster.bind("p", spec)
    await asyncio.sleep(after)
    cluster.kubelets.restarted(cluster.node)
    assert cluster.shown(pod) == expected
    assert cluster.kubelets.runs(pod) is (expected != REFUSED)


@on_virtual_time
async def test_after_a_restart_of_their_node_pods_with_devices_are_refused_or_lost() -> None:
    cluster = Cluster()
    pods = [cluster.bind(f"p-{n}", {"containers": [GPU]}) for n in range(2)]
    plain = cluster.bind("plain", {"containers": [PLAIN]})
    await asyncio.sleep(60.0)
    cluster.node.alive, cluster.node.connected, cluster.node.restarting = False, False, True
    cluster.kubelets.node_restarts(cluster.node)
    late = cluster.bind("late", {"containers": [GPU]})
    assert cluster.containers.events == ["started"] * 3 + ["taken"] * 3
    assert {cluster.shown(one) for one in (*pods, plain)} == {RUNNING}
    cluster.node.alive, cluster.node.connected, cluster.node.restarting = True, True, False
    cluster.kubelets.connected_again(cluster.node)
    assert [cluster.shown(one) for one in (*pods, plain)] == [
        REFUSED,
        ("Failed", None),
        ("Failed", None),
    ]
    assert all(is_disrupted(cluster.registry.current(one) or {}) for one in (*pods, plain))
    await asyncio.sleep(60.0)
    assert cluster.shown(late) == RUNNING
