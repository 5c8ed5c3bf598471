"""The API server is killed and restarted: no pod is doubled, and no change is missed for good.

These tests come last (pytest sorts files by name), because the controllers need a while to connect again.
"""

import asyncio
from collections.abc import AsyncGenerator

import pytest

from autoscaler.controller.ports.provider import OutcomeUnknownError, ProviderError
from autoscaler.model.machines.failures import FailureClass
from autoscaler.providers.kubernetes.notices.watch import Change, PodWatch
from autoscaler.providers.kubernetes.provider import KubernetesProvider
from tests.cluster.conftest import Place, names_of, until
from tests.cluster.test_kubernetes_watch import following, launch, new_api

pytestmark = pytest.mark.asyncio(loop_scope="session")

CLIENTS = 40
"""Launch requests that are sent again and again while the API server starts."""


async def test_after_an_expired_version_the_pods_are_listed_again_and_the_missing_named(
    place: Place, provider: KubernetesProvider
) -> None:
    api = new_api(place)
    watch = PodWatch(api, place.settings, seconds=1)
    gone, kept = [await launch(place, provider, name) for name in ("gone", "kept")]
    changes = watch.changes()
    assert {(await following(changes)).machine for _ in range(2)} == {gone, kept}
    await changes.aclose()
    await place.admin.request("DELETE", place.path(gone.partition(".")[0]))
    # The new API server's watch cache begins after this version.
    place.cluster.stop_api_server()
    await asyncio.to_thread(place.cluster.start_api_server)
    watch._version = "1"
    changes = watch.changes()
    found = [await following(changes) for _ in range(2)]
    assert [(one.machine, one.pod is None) for one in found] == [(gone, True), (kept, False)]
    assert watch.lists == 2
    await changes.aclose()
    await api.close()


async def to_the_end(changes: AsyncGenerator[Change, None]) -> None:
    """Follow changes without end: the scheduler may have written a pod's status, too."""
    while True:
        await following(changes)


async def test_the_watch_continues_after_the_api_server_was_killed(
    place: Place, provider: KubernetesProvider
) -> None:
    api = new_api(place)
    watch = PodWatch(api, place.settings)
    first = await launch(place, provider, "before")
    changes = watch.changes()
    assert (await following(changes)).machine == first
    waiting = asyncio.create_task(to_the_end(changes))
    await asyncio.sleep(0)
    place.cluster.stop_api_server()
    with pytest.raises((OutcomeUnknownError, ProviderError)):
        await waiting
    with pytest.raises((OutcomeUnknownError, ProviderError)):
        await following(watch.changes())
    await asyncio.to_thread(place.cluster.start_api_server)
    second = await launch(place, provider, "after")
    changes = watch.changes()
    while (await following(changes)).machine != second:
        pass
    await changes.aclose()
    await api.close()


async def test_nothing_is_sent_without_the_api_server_and_all_continues_afterwards(
    place: Place, provider: KubernetesProvider
) -> None:
    first = await provider.prepare(place.make_order(2, "before"))
    second = await provider.prepare(place.make_order(1, "while"))
    await provider.launch(first)
    place.cluster.stop_api_server()
    try:
        # The first request may find a connection that just broke.
        with pytest.raises((ProviderError, OutcomeUnknownError)):
            await provider.launch(second)
        with pytest.raises(ProviderError) as error:
            await provider.launch(second)
        assert error.value.code == "Unreachable"
    finally:
        await asyncio.to_thread(place.cluster.start_api_server)
    assert len((await provider.launch(first)).launched) == 2
    assert len((await provider.launch(second)).launched) == 1
    assert set(await place.pods()) == {*names_of(first), *names_of(second)}


async def test_an_api_server_that_starts_denies_no_launch(
    place: Place, provider: KubernetesProvider
) -> None:
    """It answers 403 until it has read its roles. Many clients ask, because this takes a few milliseconds."""
    texts = [await provider.prepare(place.make_order(1, f"early-{one}")) for one in range(CLIENTS)]
    errors: list[ProviderError] = []

    async def launch_at_last(text: str) -> None:
        while True:
            try:
                await provider.launch(text)
            except ProviderError as error:
                errors.append(error)
            except OutcomeUnknownError:
                pass
            else:
                return
            await asyncio.sleep(0.01)

    place.cluster.stop_api_server()
    async with asyncio.TaskGroup() as group:
        for text in texts:
            group.create_task(launch_at_last(text))
        await asyncio.to_thread(place.cluster.start_api_server)
    assert {one.code for one in errors} <= {"Unreachable", "NotReady"}
    assert FailureClass.CONFIGURATION not in {one.failure for one in errors}
    assert len(await place.pods()) == CLIENTS


async def test_a_new_scheduler_starts_with_the_api_server(place: Place) -> None:
    """The old one would not know new nodes for up to half a minute, and refuse pods for them."""
    log = place.cluster.folder / "scheduler.log"

    def starts() -> int:
        return log.read_text().count("Starting Kubernetes Scheduler")

    before = starts()
    assert before
    place.cluster.stop_api_server()
    await asyncio.to_thread(place.cluster.start_api_server)

    async def started() -> bool:
        return starts() == before + 1

    await until(started)
