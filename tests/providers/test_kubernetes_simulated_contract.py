"""Pods on the simulated API server keep the contract of providers, as on the real one in tests/cluster."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import pytest_asyncio

from autoscaler.controller.ports.provider import LaunchOrder
from autoscaler.model.machines.failures import FailureClass
from autoscaler.providers.kubernetes.provider import KubernetesProvider
from autoscaler.simulator.world.cluster.pods import ClusterPlan, SimulatedCluster
from autoscaler.simulator.world.controller.store import MemoryStore
from autoscaler.simulator.world.fault_schedule import FaultSchedule
from autoscaler.simulator.world.invariants import Invariants
from autoscaler.simulator.world.schedule import Fault, FaultKind
from tests.chaos.clusters import Connection
from tests.chaos.fleet import CATALOGUE
from tests.patience import PATIENCE
from tests.providers import kubernetes_pods
from tests.providers.contract import MakeOrder, ProviderContract
from tests.providers.doubles import ManualClock, RememberingTelemetry


async def opened(*faults: Fault) -> KubernetesProvider:
    settings = kubernetes_pods.make_settings()
    plan = ClusterPlan((), lambda _: None, lambda _: {})
    clock = ManualClock()
    schedule = FaultSchedule(faults, asyncio.get_running_loop().time())
    invariants = Invariants(CATALOGUE, MemoryStore())
    cluster = SimulatedCluster(settings.name, plan, schedule, invariants, clock.now)
    provider = KubernetesProvider(settings, RememberingTelemetry(), clock, Connection(cluster))
    await provider.open()
    return provider


@pytest_asyncio.fixture
async def provider() -> AsyncIterator[KubernetesProvider]:
    provider = await opened()
    yield provider
    await provider.close()


@pytest.fixture
def make_order() -> MakeOrder:
    def make(count: int, token: str) -> LaunchOrder:
        return replace(kubernetes_pods.make_order(count, f"{token}-call"), token=token)

    return make


@pytest.mark.asyncio
class TestSimulatedKubernetesContract(ProviderContract):
    """Without nodes, as in tests/cluster."""


@pytest.mark.asyncio
async def test_a_quota_is_checked_before_a_pods_name() -> None:
    """As on the real one: tests/cluster/test_kubernetes_launches.py has the same repeat."""
    every_third = Fault(0.0, FaultKind.POD_QUOTA, PATIENCE, every=3)
    provider = await opened(every_third)
    request = await provider.prepare(kubernetes_pods.make_order(2))
    first = await provider.launch(request)
    second = await provider.launch(request)
    await provider.close()
    assert (len(first.launched), first.failures) == (2, ())
    assert set(second.launched) == set(first.launched)
    assert [one.failure for one in second.failures] == [FailureClass.QUOTA]
