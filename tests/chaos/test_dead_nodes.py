"""The simulated kubelets: nothing starts on a node that died before the scheduler knows it."""

import asyncio
from typing import Any

import pytest

from autoscaler.simulator.world.cluster.kubelet import Kubelets
from autoscaler.simulator.world.cluster.nodes import Node
from autoscaler.simulator.world.cluster.registry import Object, Registry
from autoscaler.simulator.world.cluster.statuses import End
from autoscaler.simulator.world.fault_schedule import FaultSchedule
from tests.controller.virtual_time import on_virtual_time


class Containers:
    """Notes what happens to containers."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def start(self, pod: Object, checks_pass: bool) -> None:
        self.events.append("started")

    def stop(self, pod: Object) -> None:
        self.events.append("stopped")

    def ended(self, pod: Object, end: End, disrupted: bool) -> None:
        self.events.append("taken" if disrupted else "ended")


@pytest.mark.parametrize("alive", [True, False])
@on_virtual_time
async def test_a_pod_that_is_bound_to_a_dead_node_does_not_run(alive: bool) -> None:
    registry, containers = Registry(lambda: 0.0), Containers()
    kubelets = Kubelets(registry, FaultSchedule((), 0.0), containers)
    made: Any = {"metadata": {"name": "p", "namespace": "n"}, "spec": {"containers": []}}
    pod = registry.create(made)
    node = Node("n-1", {}, {"pods": 1}, alive=alive)
    kubelets.bound(pod, node)
    await asyncio.sleep(60.0)
    assert containers.events == ["started" if alive else "taken"]
    assert kubelets.runs(pod) is alive
