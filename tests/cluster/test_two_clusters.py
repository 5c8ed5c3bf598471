"""Two API servers serve one fleet. One of them is down for a while."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
import pytest_asyncio

from autoscaler.controller.ports.provider import OutcomeUnknownError, ProviderError
from autoscaler.model.identifiers import ProviderName
from autoscaler.model.jobs.job import JobState
from autoscaler.model.machines.machine import MachineState
from autoscaler.providers.kubernetes.provider import KubernetesProvider
from lab.kubernetes.admin import Administrator
from lab.kubernetes.cluster import Cluster
from tests.cluster.conftest import SKU, Place, new_place, until
from tests.cluster.fleet import Fleet, catalogue_of, pods_option
from tests.cluster.rights import assert_shipped_rights_suffice
from tests.patience import PATIENCE
from tests.providers.doubles import ManualClock, RememberingTelemetry

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest_asyncio.fixture(loop_scope="session")
async def second(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    """Another cluster, with nodes and keys of its own."""
    made = Cluster(tmp_path_factory.mktemp("second"), PATIENCE)
    try:
        await asyncio.to_thread(made.start)
        yield made
        await asyncio.to_thread(assert_shipped_rights_suffice, made, set())
    finally:
        await asyncio.to_thread(made.close)


@pytest_asyncio.fixture(loop_scope="session")
async def elsewhere(second: Cluster, place: Place) -> AsyncIterator[Place]:
    """A namespace of the second cluster, for the fleet of the first one."""
    admin = Administrator(second)
    made = await new_place(second, admin)
    settings = replace(made.settings, name=ProviderName("second"), fleet=place.settings.fleet)
    yield replace(made, settings=settings)
    await admin.close()


@asynccontextmanager
async def opened(*places: Place) -> AsyncIterator[list[KubernetesProvider]]:
    """The providers of these places, whose launch options are in this order. Each place gets a node."""
    found: list[KubernetesProvider] = []
    for index, one in enumerate(places):
        settings = replace(one.settings, options={(SKU, index): one.settings.options[(SKU, 0)]})
        found.append(KubernetesProvider(settings, RememberingTelemetry(), ManualClock()))
        await one.add_node()
        await found[-1].open()
    yield found
    for provider in found:
        await provider.close()


async def unreachable(provider: KubernetesProvider) -> None:
    """Wait until no connection is left. A job whose launch request finds a broken one waits for the outcome."""

    async def nothing_is_sent() -> bool:
        try:
            await provider.open()
        except ProviderError as error:
            return error.code == "Unreachable"
        except OutcomeUnknownError:
            pass
        return False

    await until(nothing_is_sent)


@pytest.mark.case(
    "one of two clusters cannot be reached: its jobs continue, and the next ones get pods in the other cluster",
    topic="Kubernetes",
    source="Kubernetes: Pod Lifecycle",
)
async def test_an_unreachable_cluster_delays_no_job_and_ends_none(
    place: Place, elsewhere: Place
) -> None:
    async with opened(elsewhere, place) as providers:
        options = (pods_option(elsewhere), pods_option(place))
        by_name = {one.name: one for one in providers}
        fleet = Fleet(place, catalogue_of(place, options), by_name, (elsewhere,))
        async with fleet.running():
            await fleet.report(1, JobState.QUEUED)
            [first] = await fleet.launched(1)
            assert first.provider == elsewhere.settings.name
            await fleet.works(first, 1)
            elsewhere.cluster.stop_api_server()
            await unreachable(providers[0])
            await fleet.report(2, JobState.QUEUED)
            [other] = await fleet.launched(1)
            assert other.provider == place.settings.name
            await fleet.works(other, 2)
            await fleet.ends(2, "success")
            await fleet.exits(other)

            async def only_the_first_is_left() -> bool:
                return [one.id for one in fleet.state.machines.values() if one.occupies] == [
                    first.id
                ]

            await until(only_the_first_is_left)
            assert first.state is MachineState.ASSIGNED
            await asyncio.to_thread(elsewhere.cluster.start_api_server)
            await fleet.ends(1, "success")
            await fleet.exits(first)

            async def over() -> bool:
                return not any(one.occupies for one in fleet.state.machines.values())

            await until(over)
        assert [len(await one.pods()) for one in (elsewhere, place)] == [1, 1]
        assert fleet.github.registrations == {}
