"""Pods on the simulated API server keep the contract of providers, as on the real one in tests/cluster."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import pytest_asyncio

from autoscaler.controller.ports.provider import LaunchOrder
from autoscaler.providers.kubernetes.provider import KubernetesProvider
from autoscaler.simulator.world.fault_schedule import FaultSchedule
from autoscaler.simulator.world.invariants import Invariants
from autoscaler.simulator.world.pods import ClusterPlan, SimulatedCluster
from autoscaler.simulator.world.store import MemoryStore
from tests.chaos.clusters import Connection
from tests.chaos.fleet import CATALOGUE
from tests.providers import kubernetes_pods
from tests.providers.contract import MakeOrder, ProviderContract
from tests.providers.doubles import ManualClock, RememberingTelemetry


@pytest_asyncio.fixture
async def provider() -> AsyncIterator[KubernetesProvider]:
    settings = kubernetes_pods.make_settings()
    plan = ClusterPlan((), lambda _: None, lambda _: {})
    clock, faults = ManualClock(), FaultSchedule((), asyncio.get_running_loop().time())
    invariants = Invariants(CATALOGUE, MemoryStore())
    cluster = SimulatedCluster(settings.name, plan, faults, invariants, clock.now)
    opened = KubernetesProvider(settings, RememberingTelemetry(), clock, Connection(cluster))
    await opened.open()
    yield opened
    await opened.close()


@pytest.fixture
def make_order() -> MakeOrder:
    def make(count: int, token: str) -> LaunchOrder:
        return replace(kubernetes_pods.make_order(count, f"{token}-call"), token=token)

    return make


@pytest.mark.asyncio
class TestSimulatedKubernetesContract(ProviderContract):
    """Without nodes, as in tests/cluster."""
