"""An admission webhook fails while a machine gets its assignment."""

import asyncio

import pytest

from autoscaler.model.jobs.job import JobState
from autoscaler.providers.kubernetes.identity.ownership import DO_NOT_DISRUPT
from autoscaler.providers.kubernetes.provider import KubernetesProvider
from tests.cluster.admission import failing_webhook
from tests.cluster.conftest import Place, until
from tests.cluster.fleet import Fleet, catalogue_of, pods_option

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_pod_that_cannot_be_protected_gets_its_assignment_when_its_agent_polls_again(
    place: Place, provider: KubernetesProvider
) -> None:
    await place.add_node()
    catalogue = catalogue_of(place, (pods_option(place),))
    fleet = Fleet(place, catalogue, {provider.name: provider})
    async with fleet.running():
        await fleet.report(1, JobState.QUEUED)
        [machine] = await fleet.launched(1)
        name = str(machine.placement.provider_id).partition(".")[0]
        async with failing_webhook(place, "UPDATE"):
            listening = asyncio.create_task(fleet.listens(machine))

            async def broken() -> bool:
                return fleet.broken_polls > 0 or listening.done()

            await until(broken)
            assert not listening.done()
            assert DO_NOT_DISRUPT not in (await place.pod(name))["metadata"]["annotations"]
        runner = await listening
        assert (await place.pod(name))["metadata"]["annotations"][DO_NOT_DISRUPT] == "true"
        await fleet.report(1, JobState.IN_PROGRESS, runner)
        await fleet.ends(1, "success")
        await fleet.exits(machine)
