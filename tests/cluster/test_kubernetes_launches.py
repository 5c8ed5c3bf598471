"""Creating pods: what the API server and the scheduler accept, refuse, and answer to a repeat."""

import asyncio
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from autoscaler.controller.ports.provider import ProviderError
from autoscaler.model.events import ListedMachine
from autoscaler.model.machines.failures import FailureClass, FailureScope
from autoscaler.providers.kubernetes.launching import dry_run
from autoscaler.providers.kubernetes.manifest.pod import named_pod, pod_template
from autoscaler.providers.kubernetes.provider import KubernetesProvider
from tests.cluster.admission import failing_webhook, set_quota
from tests.cluster.conftest import GPU, SKU, Place, names_of, until
from tests.providers.contract import listed
from tests.providers.doubles import ManualClock, RememberingTelemetry
from tests.providers.kubernetes_pods import with_changes

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def states(provider: KubernetesProvider) -> dict[str, ListedMachine]:
    """Listed machines by the pod's name."""
    return {str(key).partition(".")[0]: one for key, one in (await listed(provider)).items()}


def with_overlay(place: Place, overlay: dict[str, Any]) -> KubernetesProvider:
    option = with_changes(place.settings.options[(SKU, 0)], overlay=overlay)
    settings = replace(place.settings, options={(SKU, 0): option})
    return KubernetesProvider(settings, RememberingTelemetry(), ManualClock())


async def test_a_pod_passes_restricted_pod_security_and_starts_on_a_node(
    place: Place, provider: KubernetesProvider
) -> None:
    node = await place.add_node()
    request = await provider.prepare(place.make_order(1, "start"))
    await provider.launch(request)
    [name] = names_of(request)
    pod = await place.admin.until(
        place.path(name), lambda found: found["status"].get("containerStatuses")
    )
    assert pod["spec"]["nodeName"] == node
    assert list(pod["status"]["containerStatuses"][0]["state"]) == ["running"]
    assert (await states(provider))[name].state == "Running"
    # What the API server adds to a pod by itself must not break what the manifest promises.
    mounted = [one["name"] for one in pod["spec"]["containers"][0]["volumeMounts"]]
    assert mounted == ["agent", "identity", "work", "shared-memory"]


async def test_the_scheduler_says_why_a_pod_waits_until_it_has_waited_too_long(
    place: Place, telemetry: RememberingTelemetry
) -> None:
    clock = ManualClock()
    provider = KubernetesProvider(place.settings, telemetry, clock)
    await place.add_node(gpus=2)
    request = await provider.prepare(place.make_order(3, "full"))
    assert len((await provider.launch(request)).launched) == 3

    async def only_one_waits() -> bool:
        # All three wait, one after the other, until the node shows its accelerators.
        pods = [await place.admin.request("GET", place.path(name)) for name in names_of(request)]
        scheduled = [pod for pod in pods if pod["spec"].get("nodeName")]
        reasons = [one.reason for one in await waiting(provider)]
        return len(scheduled) == 2 and [f"Insufficient {GPU}" in why for why in reasons] == [True]

    await until(only_one_waits)
    [machine] = await waiting(provider)
    assert not machine.cannot_start
    clock.time += 899.0
    assert not any(one.cannot_start for one in (await states(provider)).values())
    clock.time += 1.0

    async def says_why() -> bool:
        # The scheduler's words change with the number of nodes in the cluster.
        [overdue] = [one for one in (await states(provider)).values() if one.cannot_start]
        found = (overdue.provider_id, overdue.failure)
        assert found == (machine.provider_id, FailureClass.CAPACITY)
        pod = await place.pod(str(machine.provider_id).partition(".")[0])
        [why] = [one["message"] for one in pod["status"]["conditions"] if "message" in one]
        return f"no node within 900 s: {why}" in overdue.reason

    await until(says_why)
    settings = replace(place.settings, provisioner=False)
    fixed = KubernetesProvider(settings, RememberingTelemetry(), ManualClock())
    [refused] = await waiting(fixed)
    assert (refused.cannot_start, refused.failure) == (True, FailureClass.CAPACITY)
    await fixed.close()
    await provider.close()


async def waiting(provider: KubernetesProvider) -> list[ListedMachine]:
    return [one for one in (await states(provider)).values() if one.state == "Unschedulable"]


async def test_the_free_accelerators_are_those_that_others_do_not_use(
    place: Place, provider: KubernetesProvider
) -> None:
    await place.add_node(gpus=4)
    node = await place.add_node(gpus=8)
    container = {"name": "c", "image": "x", "resources": {"limits": {GPU: "3"}}}
    other = {"metadata": {"name": "other"}, "spec": {"nodeName": node, "containers": [container]}}
    await place.admin.create("/api/v1/namespaces/default/pods", other)
    await provider.launch(await provider.prepare(place.make_order(1, "own")))
    settings = replace(place.settings, provisioner=False)
    fixed = KubernetesProvider(settings, RememberingTelemetry(), ManualClock())
    key = f"cluster/{GPU}{{pool={place.name}}}"

    async def counted() -> bool:
        # A new node is ready after kwok's first heartbeat.
        return await fixed.quotas() == {key: 4 + 5}

    await until(counted)
    await fixed.close()
    assert await provider.quotas() == {}
    await place.admin.request("DELETE", "/api/v1/namespaces/default/pods/other")


async def test_a_webhook_that_does_not_answer_is_named_and_leaves_no_pod(
    place: Place, provider: KubernetesProvider
) -> None:
    async with failing_webhook(place) as webhook:
        with pytest.raises(ProviderError) as error:
            await provider.launch(await provider.prepare(place.make_order(2, "webhook")))
        assert (error.value.failure, error.value.code) == (FailureClass.UNKNOWN, "WebhookFailed")
        assert webhook in error.value.message
        assert await place.pods() == {}
    answer = await provider.launch(await provider.prepare(place.make_order(2, "webhook-2")))
    assert len(answer.launched) == 2


async def test_slots_without_a_pod_fail_with_the_exceeded_quota(
    place: Place, provider: KubernetesProvider
) -> None:
    await set_quota(place, {f"requests.{GPU}": "2"})
    answer = await provider.launch(await provider.prepare(place.make_order(3, "quota")))
    assert len(answer.launched) == 2
    [failure] = answer.failures
    assert (failure.failure, failure.code) == (FailureClass.QUOTA, "ExceededQuota")
    assert failure.scope is None
    with pytest.raises(ProviderError) as error:
        await provider.launch(await provider.prepare(place.make_order(2, "more")))
    assert error.value.failure is FailureClass.QUOTA


@pytest.mark.case(
    "a repeated launch is partly refused: the API server checks quotas before a pod's name",
    topic="Kubernetes",
    source="Kubernetes: Resource Quotas",
)
async def test_a_repeat_that_is_partly_refused_adopts_the_pods_that_exist(
    place: Place, provider: KubernetesProvider
) -> None:
    await set_quota(place, {"pods": "2"})
    request = await provider.prepare(place.make_order(3, "again"))
    first = await provider.launch(request)
    assert len(first.launched) == 2
    await set_quota(place, {"pods": "3"})
    second = await provider.launch(request)
    assert set(first.launched) <= set(second.launched)
    assert len(second.launched) == len(await place.pods())


async def test_a_quota_of_pods_concerns_the_whole_namespace(
    place: Place, provider: KubernetesProvider
) -> None:
    await set_quota(place, {"pods": "0"})
    with pytest.raises(ProviderError) as error:
        await provider.launch(await provider.prepare(place.make_order(1, "pods")))
    assert error.value.scope is FailureScope.PROVIDER


async def test_a_repeat_adopts_what_exists_and_creates_what_is_missing(
    place: Place, provider: KubernetesProvider
) -> None:
    request = await provider.prepare(place.make_order(3, "repeat"))
    first = await provider.launch(request)
    missing = names_of(request)[1]
    await place.admin.request("DELETE", place.path(missing))
    second = await provider.launch(request)
    assert len(second.launched) == 3
    assert first.launched[0] == second.launched[0]
    assert first.launched[2] == second.launched[2]
    assert first.launched[1].provider_id != second.launched[1].provider_id
    assert set(await place.pods()) == set(names_of(request))


async def test_a_pod_of_others_with_the_same_name_is_not_adopted(
    place: Place, provider: KubernetesProvider
) -> None:
    request = await provider.prepare(place.make_order(1, "taken"))
    container = {
        "name": "c",
        "image": "x",
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    security = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    pod = {
        "metadata": {"name": names_of(request)[0]},
        "spec": {"containers": [container], "securityContext": security},
    }
    await place.admin.create(f"/api/v1/namespaces/{place.name}/pods", pod)
    with pytest.raises(ProviderError) as error:
        await provider.launch(request)
    assert (error.value.failure, error.value.code) == (FailureClass.CONFIGURATION, "AlreadyExists")


@pytest.mark.parametrize(
    ("overlay", "code"),
    [
        ({"image": None}, "Invalid"),
        ({"imaginary": 1}, "BadRequest"),
    ],
)
async def test_a_pod_that_the_api_server_refuses_is_found_by_a_dry_run_too(
    place: Place, overlay: dict[str, Any], code: str
) -> None:
    strange = with_overlay(place, {"spec": {"containers": [{"name": "runner", **overlay}]}})
    order = place.make_order(1, "refused")
    with pytest.raises(ProviderError) as error:
        await strange.launch(await strange.prepare(order))
    assert (error.value.failure, error.value.code) == (FailureClass.CONFIGURATION, code)
    option = strange._settings.options[(SKU, 0)]
    pod = named_pod(pod_template(strange._settings, option, order), "probe", 0)
    with pytest.raises(ProviderError) as refused:
        await dry_run(strange._api, pod)
    assert refused.value.code == code
    await strange.close()


async def test_a_dry_run_creates_nothing(place: Place, provider: KubernetesProvider) -> None:
    order = place.make_order(1, "dry")
    template = pod_template(place.settings, place.settings.options[(SKU, 0)], order)
    await dry_run(provider._api, named_pod(template, "probe", 0))
    assert await place.pods() == {}


async def test_a_namespace_that_does_not_exist_is_a_configuration_error(place: Place) -> None:
    # The administrator may create pods anywhere; the shipped rights would refuse before.
    token = place.cluster.credentials.tokens["admin"]
    settings = replace(
        place.settings,
        namespace="missing",
        context="missing",
        kubeconfig=place.cluster.kubeconfig("missing", token),
    )
    strange = KubernetesProvider(settings, RememberingTelemetry(), ManualClock())
    with pytest.raises(ProviderError) as error:
        await strange.launch(await strange.prepare(place.make_order(1, "nowhere")))
    assert (error.value.failure, error.value.code) == (FailureClass.CONFIGURATION, "NotFound")
    assert error.value.hint
    await strange.close()


async def test_only_the_pod_with_this_uid_is_deleted(
    place: Place, provider: KubernetesProvider
) -> None:
    request = await provider.prepare(place.make_order(1, "uid"))
    [old] = (await provider.launch(request)).launched
    [name] = names_of(request)
    # At once: for a pod that leaves, kwok of a busy host may send a second deletion, which has only its name.
    await place.admin.request("DELETE", f"{place.path(name)}?gracePeriodSeconds=0")
    [new] = (await provider.launch(request)).launched
    assert await provider.terminate([old.provider_id]) == {}
    assert set(await listed(provider)) == {new.provider_id}
    assert await provider.terminate([new.provider_id, new.provider_id]) == {}
    assert await listed(provider) == {}
    refused = await provider.terminate([type(new.provider_id)("not/a/pod")])
    assert list(refused) == ["not/a/pod"]


async def test_pods_that_ended_are_deleted_once_a_listing_has_shown_them(
    place: Place, provider: KubernetesProvider
) -> None:
    await place.add_node()
    names = ("ended", "kept", "running")
    ended, kept, running = [await provider.prepare(place.make_order(1, one)) for one in names]
    for request in (ended, kept, running):
        await provider.launch(request)
    for request in (ended, kept):
        [name] = names_of(request)
        await place.admin.until(place.path(name), lambda pod: pod["status"].get("startTime"))
        await place.set_status(name, {"phase": "Succeeded"})
    assert await provider.delete_unused([]) == ()
    assert {one.state for one in (await states(provider)).values()} >= {"Succeeded"}
    assert len(await provider.delete_unused([kept])) == 1
    await place.admin.gone(place.path(names_of(ended)[0]))
    assert set(await place.pods()) == {*names_of(kept), *names_of(running)}


async def test_throttling_by_the_api_server_is_no_failure_of_the_launch(
    place: Place, provider: KubernetesProvider
) -> None:
    group = "/apis/flowcontrol.apiserver.k8s.io/v1"
    limited = {
        "nominalConcurrencyShares": 0,
        "lendablePercent": 0,
        "borrowingLimitPercent": 0,
        "limitResponse": {"type": "Reject"},
    }
    level = {
        "metadata": {"name": place.name},
        "spec": {"type": "Limited", "limited": limited},
    }
    everything = {
        "verbs": ["*"],
        "apiGroups": ["*"],
        "resources": ["*"],
        "namespaces": ["*"],
        "clusterScope": True,
    }
    subject = {
        "kind": "ServiceAccount",
        "serviceAccount": {"name": "gpu-runner-autoscaler", "namespace": place.name},
    }
    schema = {
        "metadata": {"name": place.name},
        "spec": {
            "priorityLevelConfiguration": {"name": place.name},
            "matchingPrecedence": 2,
            "rules": [{"subjects": [subject], "resourceRules": [everything]}],
        },
    }
    request = await provider.prepare(place.make_order(50, "throttled"))
    await place.admin.create(f"{group}/prioritylevelconfigurations", level)
    await place.admin.create(f"{group}/flowschemas", schema)

    async def refused() -> bool:
        # The API server takes a moment to apply a new limit, and still serves one request at a time.
        answers = await asyncio.gather(
            *(provider.open() for _ in range(20)), return_exceptions=True
        )
        return any(isinstance(one, ProviderError) for one in answers)

    await until(refused)
    answer = await provider.launch(request)
    assert 0 < len(answer.launched) < 50
    assert {one.failure for one in answer.failures} == {FailureClass.THROTTLED}
    await place.admin.request("DELETE", f"{group}/flowschemas/{place.name}")
    await place.admin.request("DELETE", f"{group}/prioritylevelconfigurations/{place.name}")

    async def admitted() -> bool:
        with suppress(ProviderError):
            return len((await provider.launch(request)).launched) == 50
        return False

    await until(admitted)
    assert set(await place.pods()) == set(names_of(request))


async def test_new_credentials_are_read_when_the_old_ones_are_refused(
    place: Place, telemetry: RememberingTelemetry
) -> None:
    kubeconfig = place.cluster.kubeconfig("rotated", "an expired token")
    settings = replace(place.settings, context="rotated", kubeconfig=kubeconfig)
    provider = KubernetesProvider(settings, telemetry, ManualClock())
    with pytest.raises(ProviderError) as error:
        await provider.open()
    assert (error.value.failure, error.value.code) == (FailureClass.CONFIGURATION, "Unauthorized")
    place.cluster.kubeconfig("rotated", place.token)
    await provider.open()
    await provider.close()
    assert telemetry.calls == [("ListPods", "Unauthorized"), ("ListPods", "ok")]


async def test_the_scheduler_keeps_pods_off_a_faulty_node(
    place: Place, provider: KubernetesProvider
) -> None:
    """Otherwise, the scheduler spreads four pods over both nodes. A fifth has no other node.

    A preference lets it run on the faulty one, and a requirement lets it wait.
    """
    faulty, healthy = await place.add_node(gpus=4), await place.add_node(gpus=4)

    async def launched(count: int, name: str, *, work: bool = False) -> list[str]:
        order = replace(place.make_order(count, name), avoided_hosts=(faulty,), others_work=work)
        request = await provider.prepare(order)
        assert len((await provider.launch(request)).launched) == count
        return names_of(request)

    names = await launched(4, "elsewhere")
    assert {await node_of(place, name) for name in names} == {healthy}
    fixed = KubernetesProvider(
        replace(place.settings, provisioner=False), RememberingTelemetry(), ManualClock()
    )
    order = replace(place.make_order(1, "waits"), avoided_hosts=(faulty,), others_work=True)
    await fixed.launch(await fixed.prepare(order))
    [waits] = names_of(await fixed.prepare(order))
    pod = await place.admin.until(
        place.path(waits), lambda found: bool((found.get("status") or {}).get("conditions"))
    )
    assert "nodeName" not in pod["spec"]
    await fixed.close()
    [anywhere] = await launched(1, "nowhere-else", work=True)
    assert await node_of(place, anywhere) == faulty


async def node_of(place: Place, name: str) -> str:
    """Return the node of a pod, once the scheduler has chosen it."""
    pod = await place.admin.until(place.path(name), lambda found: found["spec"].get("nodeName"))
    node: str = pod["spec"]["nodeName"]
    return node
