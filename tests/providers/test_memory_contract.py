"""A provider in memory that one line registers: it is configured, checked, created, and keeps the contract."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from autoscaler.config import ConfigurationError, json_schema
from autoscaler.controller.ports.provider import LaunchOrder, Provider, ProviderError
from autoscaler.model.catalogue import CapacityType
from autoscaler.model.identifiers import LaunchRequestId, ProviderName, SkuName
from autoscaler.providers.registry import provider_kinds
from autoscaler.simulator.world.controller.store import MemoryStore
from autoscaler.simulator.world.ec2.provider import SimulatedProvider
from autoscaler.simulator.world.fault_schedule import FaultSchedule
from autoscaler.simulator.world.invariants import Invariants
from tests.controller.virtual_time import EPOCH
from tests.providers.contract import MakeOrder, ProviderContract
from tests.providers.memory import REGISTERED
from tests.providers.memory.fleet import TEXT, loaded, opened_catalogue, providers
from tests.providers.memory.provider import CLOUDS

EAST, GPU = ProviderName("east"), SkuName("gpu")


@pytest_asyncio.fixture(loop_scope="session")
async def provider(tmp_path: Path) -> AsyncIterator[Provider]:
    configuration = loaded(tmp_path)
    catalogue = opened_catalogue(configuration)
    loop = asyncio.get_running_loop()
    cloud = SimulatedProvider(
        EAST,
        catalogue,
        {"east/G": 120},
        FaultSchedule((), loop.time()),
        Invariants(catalogue, MemoryStore()),
        lambda: EPOCH + loop.time(),
    )
    cloud.latency = 0.0
    CLOUDS["cloud-east"] = cloud
    made = providers(configuration)[EAST]
    await made.open()
    yield made
    await made.close()
    del CLOUDS["cloud-east"]


@pytest.fixture
def make_order(provider: Provider) -> MakeOrder:
    def make(count: int, token: str) -> LaunchOrder:
        return LaunchOrder(
            launch_request=LaunchRequestId(f"{token}-call"),
            sku=GPU,
            option=0,
            capacity_type=CapacityType.ON_DEMAND,
            offerings=tuple(one.key for one in provider.offerings(GPU, 0)),
            count=count,
            token=token,
        )

    return make


@pytest.mark.asyncio(loop_scope="session")
class TestMemoryContract(ProviderContract):
    """Against a cloud in memory without faults."""


def test_the_memory_providers_keys_are_part_of_fleet_yaml(tmp_path: Path) -> None:
    catalogue = opened_catalogue(loaded(tmp_path))
    assert dict(catalogue.limits.quotas) == {"east/G": 120, "west/G": 192, "west/C": 60}
    assert catalogue.largest_request(EAST) == 3
    assert EAST not in catalogue.launch_rates
    (option,) = catalogue.skus[GPU].launch_options
    assert [one.key for one in option.offerings] == [
        "east/g-small/a/on-demand",
        "east/g-small/b/on-demand",
    ]
    schema = json.loads(json_schema(provider_kinds(REGISTERED)))
    assert "memory" in schema["$defs"]["ProviderSettings"]["properties"]
    assert "size" in schema["$defs"]["LaunchOptionSettings"]["properties"]


@pytest.mark.parametrize(
    ("old", "new", "key", "what"),
    [
        ("size: g-small, ", "", "skus.gpu.on[0].size", "is missing"),
        ("size: g-small", "size: 7", "skus.gpu.on[0].size", "is not text"),
        ("{cloud: cloud-east, ", "{", "providers.east.memory.cloud", "is missing"),
        (
            "size: g-small",
            "size: g-small, instance_types: [g5.xlarge]",
            "skus.gpu.on[0].instance_types",
            "is not supported",
        ),
        ("    arch: arm64", "    os: windows", "skus.armed.os", "no Windows in memory"),
    ],
)
def test_mistakes_in_the_memory_providers_keys_are_reported_with_the_key(
    tmp_path: Path, old: str, new: str, key: str, what: str
) -> None:
    assert old in TEXT
    with pytest.raises(ConfigurationError) as caught:
        loaded(tmp_path, TEXT.replace(old, new, 1))
    (problem,) = caught.value.problems
    assert problem.key == key
    assert what in problem.what


async def test_the_error_for_a_missing_cloud_has_a_hint(tmp_path: Path) -> None:
    made = providers(loaded(tmp_path))[EAST]
    with pytest.raises(ProviderError, match="cloud-east") as caught:
        await made.open()
    assert caught.value.hint == "correct cloud, or create it"
