"""The watch and the complete list. test_restarted_api_server.py tests them while the API server restarts."""

import asyncio
from collections.abc import AsyncGenerator

import pytest

from autoscaler.controller.ports.provider import OutcomeUnknownError
from autoscaler.providers.kubernetes.api.client import KubernetesApi
from autoscaler.providers.kubernetes.listing.pods import list_pods
from autoscaler.providers.kubernetes.notices.watch import Change, PodWatch
from autoscaler.providers.kubernetes.provider import KubernetesProvider
from tests.cluster.conftest import Place
from tests.patience import PATIENCE
from tests.providers.doubles import ManualClock, RememberingTelemetry

pytestmark = pytest.mark.asyncio(loop_scope="session")


def new_api(place: Place) -> KubernetesApi:
    return KubernetesApi(place.settings, RememberingTelemetry(), ManualClock())


async def following(changes: AsyncGenerator[Change, None]) -> Change:
    async with asyncio.timeout(PATIENCE):
        return await anext(changes)


async def launch(place: Place, provider: KubernetesProvider, request: str) -> str:
    text = await provider.prepare(place.make_order(1, request))
    return (await provider.launch(text)).launched[0].provider_id


async def test_changes_continue_after_the_end_of_a_watch(
    place: Place, provider: KubernetesProvider
) -> None:
    api = new_api(place)
    watch = PodWatch(api, place.settings, seconds=1)
    first = await launch(place, provider, "first")
    changes = watch.changes()
    assert (await following(changes)).machine == first
    # Several watches of a second each end between these two.
    seen = set()
    for number in range(3):
        await asyncio.sleep(1.0)
        made = await launch(place, provider, f"later-{number}")
        while made not in seen:
            try:
                seen.add((await following(changes)).machine)
            except OutcomeUnknownError:
                # A watch of one second may end without an event.
                changes = watch.changes()
    assert watch.lists == 1
    await changes.aclose()
    await api.close()


async def test_a_deleted_pod_is_a_change_without_a_pod(
    place: Place, provider: KubernetesProvider
) -> None:
    api = new_api(place)
    changes = PodWatch(api, place.settings).changes()
    machine = await launch(place, provider, "deleted")
    assert (await following(changes)).machine == machine
    await place.admin.request("DELETE", place.path(machine.partition(".")[0]))
    while (change := await following(changes)).pod is not None:
        assert change.machine == machine
    assert change.machine == machine
    await changes.aclose()
    await api.close()


async def test_a_list_is_complete_over_several_pages(
    place: Place, provider: KubernetesProvider
) -> None:
    await provider.launch(await provider.prepare(place.make_order(7, "pages")))
    api = new_api(place)
    found = await list_pods(api, place.settings, page=3)
    assert {pod["metadata"]["name"] for pod in found.pods} == set(await place.pods())
    assert int(found.version) > 1
    await api.close()
