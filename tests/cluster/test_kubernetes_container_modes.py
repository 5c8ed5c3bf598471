"""Container modes of pods: what the API server, its controllers and its rights say of them."""

import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
import yaml

from autoscaler.controller.ports.provider import ProofRefusedError, ProviderError
from autoscaler.providers.kubernetes.capacity.accelerators import read_capacity
from autoscaler.providers.kubernetes.configuration import ContainerMode
from autoscaler.providers.kubernetes.identity import ownership
from autoscaler.providers.kubernetes.launching import dry_run
from autoscaler.providers.kubernetes.manifest.pod import named_pod, pod_template
from autoscaler.providers.kubernetes.provider import KubernetesProvider
from autoscaler.providers.kubernetes.settings import (
    Accelerator,
)
from lab.kubernetes.admin import RequestFailedError
from lab.kubernetes.namespaces import rights_in_force
from tests.cluster.admission import enforce
from tests.cluster.conftest import GPU, SKU, Place, names_of
from tests.deploy.manifests import COMPONENTS
from tests.providers import container_hooks
from tests.providers.contract import listed
from tests.providers.doubles import ManualClock, RememberingTelemetry
from tests.providers.kubernetes_pods import dind, hooks, wanted, with_changes

pytestmark = pytest.mark.asyncio(loop_scope="session")

DOCKER = dind(resources={"cpu": "2", "memory": "8Gi"})
ACCOUNT = "container-hooks"
HOOKED = hooks(ACCOUNT)
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"


@asynccontextmanager
async def opened(
    place: Place, mode: ContainerMode, accelerator: Accelerator | None = None
) -> AsyncIterator[KubernetesProvider]:
    option = with_changes(
        place.settings.options[(SKU, 0)],
        container_mode=mode,
        accelerator=accelerator,
        accelerator_check=wanted("nvidia"),
    )
    settings = replace(place.settings, options={(SKU, 0): option})
    settings = replace(settings, provisioner=accelerator is None)
    provider = KubernetesProvider(settings, RememberingTelemetry(), ManualClock())
    try:
        yield provider
    finally:
        await provider.close()


async def check(provider: KubernetesProvider, place: Place) -> None:
    """Send the pod as a dry run."""
    order = place.make_order(1, "0123456789abcdef")
    template = pod_template(provider._settings, provider._settings.options[(SKU, 0)], order)
    await dry_run(provider._api, named_pod(template, "probe", 0))


@pytest_asyncio.fixture(loop_scope="session")
async def hooked(place: Place) -> AsyncIterator[KubernetesProvider]:
    """A provider with hooks, in a namespace with their shipped rights."""
    text = (COMPONENTS / "container-hooks" / "rights.yaml").read_text()
    core, rbac = "/api/v1", "/apis/rbac.authorization.k8s.io/v1"
    rights = list(
        yaml.safe_load_all(text.replace("namespace: runners", f"namespace: {place.name}"))
    )
    for body in rights:
        group = core if body["kind"] == "ServiceAccount" else rbac
        collection = f"{group}/namespaces/{place.name}/{body['kind'].lower()}s"
        await place.admin.create(collection, body)
    await rights_in_force(place.admin, place.name, ACCOUNT, rights)
    async with opened(place, HOOKED) as provider:
        yield provider


async def token_of(place: Place, account: str) -> str:
    path = f"/api/v1/namespaces/{place.name}/serviceaccounts/{account}/token"
    answer = await place.admin.create(path, {"spec": {"expirationSeconds": 600}})
    return str(answer["status"]["token"])


async def rules_of(place: Place, token: str, namespace: str) -> set[tuple[str, str, str]]:
    """API group, resource and verb of all rights on resources in a namespace."""
    trust = ssl.create_default_context(cafile=str(place.cluster.credentials.ca))
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trust)) as session:
        headers = {"Authorization": f"Bearer {token}"}
        body = {"spec": {"namespace": namespace}}
        url = place.cluster.url + REVIEWS
        async with session.post(url, json=body, headers=headers) as answer:
            found = (await answer.json())["status"]["resourceRules"]
    return {
        (group, resource, verb)
        for rule in found
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


@pytest.mark.parametrize("level", ["baseline", "restricted"])
async def test_a_pod_with_a_docker_daemon_needs_a_namespace_without_pod_security(
    place: Place, level: str
) -> None:
    async with opened(place, DOCKER) as provider:
        await enforce(place, level)
        with pytest.raises(ProviderError, match="privileged") as error:
            await check(provider, place)
        assert error.value.code == "PodSecurity"
        await enforce(place, "privileged")
        await check(provider, place)


@pytest.mark.parametrize("mode", [HOOKED, hooks(ACCOUNT, "1Gi")], ids=["copied", "shared"])
async def test_the_runners_pod_with_hooks_passes_restricted(
    place: Place, hooked: KubernetesProvider, mode: ContainerMode
) -> None:
    async with opened(place, mode) as provider:
        await check(provider, place)


async def test_without_its_service_account_a_pod_with_hooks_is_refused(place: Place) -> None:
    async with opened(place, HOOKED) as provider:
        with pytest.raises(ProviderError, match="container-hooks"):
            await check(provider, place)


def job_pod(runner_pod: str) -> dict[str, Any]:
    """A job's pod as the hooks create it: no security context in the job's container (`createJobPod`)."""
    container = {"name": "job", "image": "node:24", "command": ["tail", "-f", "/dev/null"]}
    return {
        "metadata": {"name": f"{runner_pod}-workflow", "labels": {"runner-pod": runner_pod}},
        "spec": {
            "restartPolicy": "Never",
            "containers": [container],
            "securityContext": {"fsGroup": 1001},
        },
    }


@pytest.mark.case(
    "GitHub's container hooks set no security context in a job's pod",
    topic="Kubernetes",
    source="GitHub: container hooks",
)
async def test_the_pod_of_a_job_passes_baseline_and_not_restricted(place: Place) -> None:
    pods = f"/api/v1/namespaces/{place.name}/pods?dryRun=All"
    with pytest.raises(RequestFailedError, match="violates PodSecurity"):
        await place.admin.create(pods, job_pod("ci-0-0"))
    await enforce(place, "baseline")
    await place.admin.create(pods, job_pod("ci-0-0"))


async def test_the_hooks_have_the_rights_that_they_ask_for_in_their_namespace_alone(
    place: Place, hooked: KubernetesProvider
) -> None:
    """`requiredPermissions` of actions/runner-container-hooks 0.7, packages/k8s/src/k8s/index.ts."""
    nothing = await rules_of(place, await token_of(place, "default"), place.name)
    token = await token_of(place, ACCOUNT)
    found = await rules_of(place, token, place.name) - nothing
    wanted = {
        ("", "pods"): "get list create delete",
        ("", "pods/exec"): "get create",
        ("", "pods/log"): "get list watch",
        ("batch", "jobs"): "get list create delete",
        ("", "secrets"): "create delete get list",
    }
    assert found == {
        (group, resource, verb)
        for (group, resource), verbs in wanted.items()
        for verb in verbs.split()
    }
    assert await rules_of(place, token, "kube-system") == nothing
    assert not any(group in {"", "batch"} for group, _, _ in nothing)


async def test_a_pod_with_hooks_proves_its_identity_with_its_own_service_account(
    place: Place, hooked: KubernetesProvider
) -> None:
    [name] = names_of(request := await hooked.prepare(place.make_order(1, "0123456789abcdef")))
    [launched] = (await hooked.launch(request)).launched
    audience = hooked._settings.audience
    proof = await place.pod_token(name, audience, account=ACCOUNT)
    assert (await hooked.verify(proof)).provider_id == launched.provider_id
    plain = KubernetesProvider(place.settings, RememberingTelemetry(), ManualClock())
    try:
        with pytest.raises(ProofRefusedError):
            await plain.verify(proof)
    finally:
        await plain.close()


async def test_the_claim_of_the_work_folder_has_the_name_that_the_hooks_expect(
    place: Place, hooked: KubernetesProvider
) -> None:
    async with opened(place, hooks(ACCOUNT, "1Gi")) as provider:
        request = await provider.prepare(place.make_order(1, "0123456789abcdef"))
        [launched] = (await provider.launch(request)).launched
        [name] = names_of(request)
        path = f"/api/v1/namespaces/{place.name}/persistentvolumeclaims/{name}-work"
        claim = await place.admin.until(path, lambda _: True)
        assert claim["metadata"]["ownerReferences"][0]["name"] == name
        await provider.terminate([launched.provider_id])
        await place.admin.gone(path)


@pytest.mark.case(
    "a runner's pod is lost during a job: the job's pod of GitHub's container hooks stays",
    topic="Kubernetes",
    source="GitHub: container hooks",
)
async def test_the_pod_of_a_job_is_deleted_when_its_runner_is_gone(
    place: Place, hooked: KubernetesProvider
) -> None:
    await enforce(place, "baseline")
    request = await hooked.prepare(place.make_order(2, "0123456789abcdef"))
    lost, _ = (await hooked.launch(request)).launched
    pods = f"/api/v1/namespaces/{place.name}/pods"
    names = [*names_of(request), "another-fleet-1f-0", "by-hand"]
    for name in names:
        await place.admin.create(pods, job_pod(name))
    hidden = place.path(names[1])
    await place.admin.patch(hidden, {"metadata": {"labels": {ownership.FLEET: None}}})
    await listed(hooked)
    await hooked.delete_unused([])
    assert {f"{name}-workflow" for name in names} <= set(await place.pods())
    await hooked.terminate([lost.provider_id])
    await hooked.delete_unused([])
    await place.admin.gone(place.path(f"{names[0]}-workflow"))
    left = {name for name in await place.pods() if name.endswith("-workflow")}
    assert left == {f"{name}-workflow" for name in names[1:]}


@pytest.mark.case(
    "a job with `container:` gets its GPU in a pod of GitHub's container hooks, and nothing holds it twice",
    topic="Kubernetes",
    source="actions/runner-container-hooks#46",
)
async def test_the_pod_of_a_job_gets_the_accelerators_that_its_runner_does_not_hold(
    place: Place, hooked: KubernetesProvider
) -> None:
    node = await place.add_node(gpus=2)
    await enforce(place, "baseline")
    resources = {"cpu": "1", "memory": "1Gi"}
    mode = hooks(ACCOUNT, resources=resources)
    async with opened(place, mode, Accelerator(GPU, 2)) as provider:
        request = await provider.prepare(place.make_order(2, "0123456789abcdef"))
        runners = (await provider.launch(request)).launched
        first, second = names_of(request)
        # Both runners fit beside each other, because neither has a GPU.
        for name in (first, second):
            runner = await place.admin.until(place.path(name), is_on(node))
            assert GPU not in str([one["resources"] for one in containers_of(runner)])
            job = container_hooks.job_pod(runner)
            pods = f"/api/v1/namespaces/{place.name}/pods?fieldValidation=Strict"
            await place.admin.create(pods, job)
            if name == first:
                await place.admin.until(place.path(f"{first}-workflow"), is_on(node))
        waits = await place.admin.until(place.path(f"{second}-workflow"), is_unschedulable)
        assert f"Insufficient {GPU}" in str(waits["status"]["conditions"])
        # The ledger counts two for each runner. The job that waits holds nothing.
        [usage] = {one.quota_usage for one in (await listed(provider)).values()}
        [(quota, units)] = usage
        assert units == 2
        assert (await read_capacity(provider._api, provider._settings)).free[quota] == 2
        await place.admin.request("DELETE", f"{place.path(first)}-workflow?gracePeriodSeconds=0")
        await place.admin.until(place.path(f"{second}-workflow"), is_on(node))
        await provider.terminate([one.provider_id for one in runners])


def containers_of(pod: Any) -> list[Any]:
    return [*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]]


def is_on(node: str) -> Callable[[Any], bool]:
    return lambda pod: pod["spec"].get("nodeName") == node


def is_unschedulable(pod: Any) -> bool:
    conditions = pod["status"].get("conditions", ())
    return any(one.get("reason") == "Unschedulable" for one in conditions)
