"""Several namespaces of one API server serve one fleet, each with a provider that sees only its own pods."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import pytest_asyncio

from autoscaler.controller.ports.provider import ProofRefusedError, ProviderError
from autoscaler.model.identifiers import ProviderName
from autoscaler.providers.kubernetes.provider import KubernetesProvider
from lab.kubernetes.admin import Administrator
from lab.kubernetes.cluster import Cluster
from tests.cluster.conftest import Place, listening, names_of, new_place, until
from tests.providers.contract import listed
from tests.providers.doubles import ManualClock, RememberingTelemetry

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest_asyncio.fixture(loop_scope="session")
async def other_place(cluster: Cluster, admin: Administrator, place: Place) -> Place:
    """Another namespace of the same fleet, as in one fleet.yaml with two providers."""
    made = await new_place(cluster, admin)
    settings = replace(made.settings, name=ProviderName("other"), fleet=place.settings.fleet)
    return replace(made, settings=settings)


@pytest_asyncio.fixture(loop_scope="session")
async def other(other_place: Place) -> AsyncIterator[KubernetesProvider]:
    opened = KubernetesProvider(other_place.settings, RememberingTelemetry(), ManualClock())
    await opened.open()
    yield opened
    await opened.close()


async def test_each_provider_sees_creates_and_deletes_its_own_pods(
    place: Place, other_place: Place, provider: KubernetesProvider, other: KubernetesProvider
) -> None:
    here = await provider.prepare(place.make_order(2, "same"))
    there = await other.prepare(other_place.make_order(1, "same"))
    assert names_of(there)[0] == names_of(here)[0]
    first = {one.provider_id for one in (await provider.launch(here)).launched}
    second = {one.provider_id for one in (await other.launch(there)).launched}
    assert not first & second
    assert set(await listed(provider)) == first
    assert set(await listed(other)) == second
    # The other provider's pod of the same name has another UID.
    assert await other.terminate(sorted(first)) == {}
    assert set(await listed(provider)) == first
    assert await other.terminate(sorted(second)) == {}
    assert (await listed(other), set(await listed(provider))) == ({}, first)


async def test_each_watch_reports_its_own_pods(
    place: Place, other_place: Place, provider: KubernetesProvider, other: KubernetesProvider
) -> None:
    await listening(provider)
    await listening(other)
    text = await other.prepare(other_place.make_order(1, "watched"))
    [launched] = (await other.launch(text)).launched
    await other.terminate([launched.provider_id])

    async def reported() -> bool:
        messages = await other.notices.receive(0.0)
        return any(launched.provider_id in one.notice.machines for one in messages if one.notice)

    await until(reported)
    assert await provider.notices.receive(0.0) == ()


async def test_a_pod_proves_its_identity_to_its_own_provider_only(
    place: Place, other_place: Place, provider: KubernetesProvider, other: KubernetesProvider
) -> None:
    """Both have the fleet's audience, but their service accounts are in different namespaces."""
    text = await provider.prepare(place.make_order(1, "proof"))
    await provider.launch(text)
    token = await place.pod_token(names_of(text)[0], place.settings.audience)
    assert (await provider.verify(token)).provider_id in await listed(provider)
    with pytest.raises(ProofRefusedError) as refused:
        await other.verify(token)
    assert refused.value.reason == "account"


async def test_the_rights_of_one_namespace_end_there(
    place: Place, other_place: Place, exempt: set[str]
) -> None:
    exempt.add(place.user)
    settings = replace(place.settings, namespace=other_place.name)
    strange = KubernetesProvider(settings, RememberingTelemetry(), ManualClock())
    text = await strange.prepare(place.make_order(1, "strange"))
    with pytest.raises(ProviderError) as refused:
        await strange.launch(text)
    assert refused.value.code == "Forbidden"
    await strange.close()
