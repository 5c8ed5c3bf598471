"""Tokens of pods: which of them prove a pod's identity to the API server."""

from contextlib import suppress
from dataclasses import replace

import pytest

from autoscaler.controller.ports.provider import ProofRefusedError
from autoscaler.providers.kubernetes.provider import KubernetesProvider
from tests.cluster.conftest import Place, names_of, until
from tests.providers.doubles import ManualClock, RememberingTelemetry

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def refused(provider: KubernetesProvider, token: bytes) -> str:
    with pytest.raises(ProofRefusedError) as refusal:
        await provider.verify(token)
    return refusal.value.reason


async def test_a_pods_token_names_its_node(place: Place, provider: KubernetesProvider) -> None:
    text = await provider.prepare(place.make_order(1, "host"))
    [machine] = (await provider.launch(text)).launched
    [name] = names_of(text)
    token = await place.pod_token(name, place.settings.audience)
    assert (await provider.verify(token)).host == ""
    node = await place.add_node()
    await place.admin.until(place.path(name), lambda pod: bool(pod["spec"].get("nodeName")))
    token = await place.pod_token(name, place.settings.audience)
    assert (await provider.verify(token)).host == node
    assert [one.host async for page in provider.machines() for one in page] == [node]
    await provider.terminate([machine.provider_id])


async def test_a_pods_own_token_proves_the_pod_as_long_as_it_exists(
    place: Place, provider: KubernetesProvider
) -> None:
    text = await provider.prepare(place.make_order(1, "proof"))
    [machine] = (await provider.launch(text)).launched
    token = await place.pod_token(names_of(text)[0], place.settings.audience)
    assert (await provider.verify(token)).provider_id == machine.provider_id
    await provider.terminate([machine.provider_id])

    async def is_refused() -> bool:
        # The API server remembers an accepted token for ten seconds.
        with suppress(ProofRefusedError):
            await provider.verify(token)
            return False
        return True

    await until(is_refused)
    assert await refused(provider, token) == "signature"


async def test_tokens_for_others_are_refused(place: Place, provider: KubernetesProvider) -> None:
    text = await provider.prepare(place.make_order(1, "others"))
    await provider.launch(text)
    [name] = names_of(text)
    other_fleet = await place.pod_token(name, "other.gpu-runner-autoscaler")
    assert await refused(provider, other_fleet) == "signature"
    bound_to_nothing = await place.pod_token(name, place.settings.audience, bound=False)
    assert await refused(provider, bound_to_nothing) == "account"
    controllers = place.token.encode()
    assert await refused(provider, controllers) == "signature"
    token = await place.pod_token(name, place.settings.audience)
    assert await refused(provider, token[:-4] + b"AAAA") == "signature"
    settings = replace(place.settings, service_account="runner")
    other = KubernetesProvider(settings, RememberingTelemetry(), ManualClock())
    assert await refused(other, token) == "account"
    await other.close()
