"""The shipped rights are enough, and the audit log shows that no other ones are used."""

import asyncio
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from autoscaler.controller.ports.provider import ProviderError
from autoscaler.providers.kubernetes.provider import KubernetesProvider
from lab.kubernetes.namespaces import ACCOUNT, rights_in_force
from tests.cluster.conftest import Place, listening, names_of, until
from tests.cluster.rights import assert_shipped_rights_suffice, shipped, used
from tests.cluster.test_kubernetes_watch import new_api
from tests.providers.contract import listed
from tests.providers.doubles import ManualClock, RememberingTelemetry

pytestmark = pytest.mark.asyncio(loop_scope="session")


def requests(place: Place) -> list[dict[str, Any]]:
    """The audit log's events of the place's controller."""
    return [one for one in place.cluster.audit_events() if one["user"]["username"] == place.user]


async def test_all_that_a_provider_does_needs_exactly_the_shipped_rights(place: Place) -> None:
    settings = replace(place.settings, provisioner=False)
    provider = KubernetesProvider(settings, RememberingTelemetry(), ManualClock())
    await provider.open()
    await place.add_node()
    text = await provider.prepare(place.make_order(2, "rights"))
    [first, second] = (await provider.launch(text)).launched
    await provider.launch(text)
    await listed(provider)
    await listening(provider)
    await provider.notices.shown([first.provider_id])
    await provider.protect(first.provider_id)
    await provider.quotas()
    await provider.verify(await place.pod_token(names_of(text)[0], settings.audience))
    # The node has no kubelet that could answer.
    assert "the logs could not be read: " in await provider.console(second.provider_id)
    await provider.terminate([first.provider_id, second.provider_id])
    await provider.delete_unused([])
    await provider.close()

    async def all_is_logged() -> bool:
        # The API server writes events after its answers, and that of a watch some time after its end.
        return {used(event) for event in requests(place)} >= shipped()

    await until(all_is_logged)
    mine = requests(place)
    refused = [one for one in mine if one["responseStatus"]["code"] == 403]
    assert refused == []
    assert {used(event) for event in mine} == shipped()
    assert not any("secret" in event["objectRef"]["resource"] for event in mine)


async def add_right(place: Place, kind: str, resource: str) -> None:
    """Let the controller's account read this in its namespace (Role), or in all of them (ClusterRole)."""
    group, name = "/apis/rbac.authorization.k8s.io/v1", f"more-{place.name}"
    collection = group if kind == "ClusterRole" else f"{group}/namespaces/{place.name}"
    metadata = {"name": name} | ({"namespace": place.name} if kind == "Role" else {})
    rule = {"apiGroups": [""], "resources": [resource], "verbs": ["get", "list"]}
    rules = {"metadata": metadata, "rules": [rule]}
    binding = {
        "metadata": metadata,
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": place.name}],
    }
    await place.admin.create(f"{collection}/{kind.lower()}s", rules)
    await place.admin.create(f"{collection}/{kind.lower()}bindings", binding)
    await rights_in_force(place.admin, place.name, ACCOUNT, [rules])


@pytest.mark.parametrize(
    ("role", "namespace", "resource", "verb"),
    [
        (None, "", "secrets", "list"),
        ("Role", "", "secrets", "list"),
        ("ClusterRole", "default", "pods/absent", "get"),
    ],
    ids=["refused", "another-role", "another-namespace"],
)
async def test_a_request_beyond_the_shipped_rights_fails_the_suite(
    place: Place, exempt: set[str], role: str | None, namespace: str, resource: str, verb: str
) -> None:
    exempt.add(place.user)
    if role is not None:
        await add_right(place, role, resource.partition("/")[0])
    path = f"/api/v1/namespaces/{namespace or place.name}/{resource}"
    api = new_api(place)
    with suppress(ProviderError):
        # Refused, or such a pod does not exist.
        await api.request("GET", path)
    await api.close()
    with pytest.raises(AssertionError, match=f"{place.user}: {verb} {path} "):
        await asyncio.to_thread(assert_shipped_rights_suffice, place.cluster, exempt - {place.user})
    await asyncio.to_thread(assert_shipped_rights_suffice, place.cluster, exempt)
