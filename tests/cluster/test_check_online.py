"""`autoscaler check --online` asks a real API server, and changes nothing there."""

import asyncio
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from autoscaler.app.preflight import load_for_service
from autoscaler.config import Problem
from autoscaler.config.provider_kind import OnlineCheck
from autoscaler.providers.kubernetes.checks.online import rights_of
from autoscaler.providers.kubernetes.kind import KubernetesKind
from tests.cluster.admission import enforce, failing_webhook, set_quota
from tests.cluster.conftest import GPU, Place, until
from tests.cluster.rights import resource_name, shipped
from tests.config.fleet_file import MINIMAL, Folder

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


class Fleet:
    """A fleet.yaml whose provider is a place's namespace, as its controller would reach it."""

    def __init__(self, folder: Folder, place: Place) -> None:
        self.file = folder.path / "fleet.yaml"
        self.content: dict[str, Any] = yaml.safe_load(MINIMAL)
        self.section: dict[str, Any] = {
            "kubeconfig": str(place.settings.kubeconfig),
            "namespace": place.name,
        }
        self.pod: dict[str, Any] = {
            "image": "registry.example/runner:1",
            "resources": {"cpu": "1", "ephemeral-storage": "1Gi"},
            "node_selector": {"pool": place.name},
        }
        self.sku: dict[str, Any] = {"on": [{"provider": "cluster", "pod": self.pod}]}
        self.sku["accelerator"] = {"vendor": "nvidia", "count": 1}
        self.content["providers"] = {"cluster": {"kubernetes": self.section}}
        self.content["skus"] = {"gpu": self.sku}

    def write(self) -> Path:
        self.file.write_text(yaml.safe_dump(self.content))
        return self.file

    async def check(self) -> OnlineCheck:
        configuration = load_for_service(self.write())
        return await KubernetesKind().check_online(configuration)

    async def problem(self) -> Problem:
        found = await self.check()
        assert len(found.problems) == 1, found.problems
        return found.problems[0]


@pytest.fixture
def fleet(folder: Folder, place: Place) -> Fleet:
    return Fleet(folder, place)


async def test_the_shipped_rights_and_an_accepted_pod_are_no_problem(
    fleet: Fleet, place: Place
) -> None:
    found = await fleet.check()
    assert found.problems == ()
    assert found.lines == (
        "cluster: the API server accepts the pods of 1 launch option",
        "cluster: provisioner: true needs Karpenter 1.5 or later, if Karpenter adds nodes "
        "(earlier ones ignore pods that avoid a faulty node)",
    )
    assert await place.pods() == {}


async def test_the_command_prints_the_answers(fleet: Fleet) -> None:
    async def run() -> tuple[int | None, str, str]:
        command = (sys.executable, "-m", "autoscaler.cli", "check", "--online", str(fleet.file))
        process = await asyncio.create_subprocess_exec(
            *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        out, errors = await process.communicate()
        return process.returncode, out.decode(), errors.decode()

    fleet.write()
    status, out, errors = await run()
    assert (status, errors) == (0, "")
    assert "\ncluster: the API server accepts the pods of 1 launch option\n" in out
    assert "\ncluster: provisioner: true needs Karpenter 1.5 or later" in out
    fleet.pod["overlay"] = {"spec": {"laterField": {}}}
    fleet.write()
    status, out, errors = await run()
    assert (status, out) == (2, "")
    assert 'unknown field "spec.laterField"' in errors


@pytest.mark.case(
    "two providers have one namespace of a cluster under two names of its API server",
    topic="Operators' files",
    source="Kubernetes: issuer discovery",
)
async def test_one_namespace_under_two_names_of_the_api_server(
    fleet: Fleet, folder: Folder, place: Place
) -> None:
    assert place.settings.kubeconfig is not None
    text = place.settings.kubeconfig.read_text()
    assert "https://127.0.0.1:" in text
    (folder.path / "other").write_text(text.replace("https://127.0.0.1:", "https://localhost:"))
    other = {"kubeconfig": "other", "namespace": place.name}
    fleet.content["providers"]["other"] = {"kubernetes": other}
    problem = await fleet.problem()
    assert problem.key == "providers.other.kubernetes.namespace"
    assert problem.what.startswith(f'"{place.name}" is already the namespace of provider "cluster"')
    assert "use one provider" in problem.fix
    # Without the right to read the keys, nothing is known.
    name = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/system:service-account-issuer-discovery"
    binding = await place.admin.request("GET", name)
    await place.admin.request("DELETE", name)
    try:

        async def unknown() -> bool:
            return (await fleet.check()).problems == ()

        await until(unknown)
    finally:
        del binding["metadata"]["resourceVersion"], binding["metadata"]["uid"]
        await place.admin.create(name.rpartition("/")[0], binding)


async def test_missing_rights_are_named(fleet: Fleet, place: Place) -> None:
    # The rights end at the namespace of the place, except those of capacity.yaml, such as listing pods.
    fleet.section["namespace"] = "default"
    problem = await fleet.problem()
    assert problem.key == "providers.cluster.kubernetes.namespace"
    before, _, missing = problem.what.partition(": ")
    assert before == 'the credentials lack rights in "default"'
    named = set(missing.split(", "))
    assert {"create pods", "delete pods", "get pods", "watch pods", "get pods/log"} <= named
    assert named.isdisjoint({"list pods", "create tokenreviews in all namespaces"})
    assert "apply deploy/kubernetes/rbac" in problem.fix
    assert not problem.warning


async def test_a_cluster_without_a_provisioner_needs_the_rights_of_capacity_yaml(
    fleet: Fleet, place: Place
) -> None:
    fleet.section["provisioner"] = False
    role = f"gpu-runner-autoscaler-capacity-{place.name}"
    path = f"/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/{role}"
    await place.admin.request("DELETE", path)

    async def missing() -> bool:
        # The API server's authorizer sees the change a moment later.
        found = await fleet.check()
        return any("list nodes in all namespaces" in one.what for one in found.problems)

    await until(missing)
    assert "capacity.yaml" in (await fleet.problem()).fix


async def test_exactly_the_shipped_rights_are_asked_for(place: Place) -> None:
    settings = replace(place.settings, provisioner=False)
    asked = {
        (one.verb, resource_name(one.group, one.resource, not one.cluster_wide))
        for one in rights_of(settings)
    }
    assert asked == shipped()


async def test_a_namespace_that_does_not_exist(fleet: Fleet, place: Place) -> None:
    # Only an administrator has rights there: others would get the problem about rights.
    admin = place.cluster.kubeconfig("online-admin", place.cluster.credentials.tokens["admin"])
    fleet.section |= {"kubeconfig": str(admin), "namespace": "absent"}
    problem = await fleet.problem()
    assert problem.key == "providers.cluster.kubernetes.namespace"
    assert problem.what == 'there is no namespace "absent"'
    assert "create the namespace" in problem.fix


@pytest.mark.parametrize(
    ("keys", "key", "what", "fix"),
    [
        (
            {"overlay": {"spec": {"laterField": {}}}},
            "overlay",
            'unknown field "spec.laterField"',
            "kubectl explain pod",
        ),
        ({"runtime_class": "absent"}, "runtime_class", 'RuntimeClass "absent"', "kubectl get"),
        (
            {"overlay": {"spec": {"priorityClassName": "absent"}}},
            "overlay",
            "absent",
            "the overlay",
        ),
    ],
)
async def test_a_pod_that_the_api_server_refuses(
    fleet: Fleet, keys: dict[str, Any], key: str, what: str, fix: str
) -> None:
    fleet.pod |= keys
    problem = await fleet.problem()
    assert problem.key == f"skus.gpu.on[0].pod.{key}"
    assert what in problem.what
    assert fix in problem.fix


async def test_a_namespace_that_refuses_the_docker_daemon_is_to_blame_and_not_the_overlay(
    fleet: Fleet,
) -> None:
    del fleet.sku["accelerator"]
    fleet.pod |= {
        "container_mode": {"dind": {"image": "docker:29.7.2-dind-rootless"}},
        "overlay": {"metadata": {"labels": {"team": "ml"}}},
    }
    problem = await fleet.problem()
    assert problem.key == "skus.gpu.on[0].pod"
    assert "violates PodSecurity" in problem.what
    assert "change the level" in problem.fix


async def test_what_the_namespace_forbids_is_reported_at_the_overlay(fleet: Fleet) -> None:
    fleet.pod["overlay"] = {"spec": {"securityContext": {"runAsUser": 0}}}
    problem = await fleet.problem()
    assert problem.key == "skus.gpu.on[0].pod.overlay"
    assert "runAsUser=0" in problem.what
    assert "change the level" in problem.fix


async def test_a_namespace_in_which_nothing_judges_overlays_is_a_warning(
    fleet: Fleet, place: Place
) -> None:
    fleet.pod["overlay"] = {"spec": {"securityContext": {"runAsUser": 0}}}
    await enforce(place, "privileged")
    problem = await fleet.problem()
    assert problem.warning
    assert problem.key == "providers.cluster.kubernetes.namespace"
    assert "admits privileged pods" in problem.what
    assert "pod-security.kubernetes.io/enforce=restricted" in problem.fix
    fleet.pod["overlay"] = {"metadata": {"labels": {"team": "ml"}}}
    assert (await fleet.check()).problems == ()


async def test_a_service_account_that_does_not_exist(fleet: Fleet) -> None:
    fleet.section["service_account"] = "absent"
    problem = await fleet.problem()
    assert problem.key == "providers.cluster.kubernetes.service_account"
    assert '"absent" not found' in problem.what
    assert "create the service account" in problem.fix


async def test_a_service_account_of_the_container_hooks_that_does_not_exist(fleet: Fleet) -> None:
    fleet.pod["container_mode"] = {"kubernetes": {"service_account": "absent"}}
    problem = await fleet.problem()
    assert problem.key == "skus.gpu.on[0].pod.container_mode.kubernetes.service_account"
    assert '"absent" not found' in problem.what
    assert "create the service account" in problem.fix


async def test_a_quota_that_is_used_up_is_a_warning(fleet: Fleet, place: Place) -> None:
    await set_quota(place, {f"requests.{GPU}": "0"})
    problem = await fleet.problem()
    assert problem.warning
    assert problem.key == "skus.gpu.on[0].pod"
    assert "no quota left" in problem.what


async def test_a_limit_of_the_namespace_is_not_reported_as_a_missing_right(
    fleet: Fleet, place: Place
) -> None:
    limit = {"type": "Container", "max": {"cpu": "1m"}}
    path = f"/api/v1/namespaces/{place.name}/limitranges"
    await place.admin.create(path, {"metadata": {"name": "small"}, "spec": {"limits": [limit]}})

    async def refused() -> bool:
        return bool((await fleet.check()).problems)

    await until(refused)
    problem = await fleet.problem()
    assert problem.key == "skus.gpu.on[0].pod"
    assert "maximum cpu usage per Container is 1m" in problem.what
    assert problem.fix.startswith("correct the pod, or the LimitRange")


async def test_free_capacity_is_shown_where_no_provisioner_adds_nodes(
    fleet: Fleet, place: Place
) -> None:
    fleet.section["provisioner"] = False
    problem = await fleet.problem()
    assert problem.warning
    assert problem.key == "skus.gpu.on[0].pod.node_selector"
    assert "no ready node has these labels" in problem.what
    await place.add_node(gpus=8)

    async def counted() -> bool:
        found = await fleet.check()
        return f"cluster/{GPU}{{pool={place.name}}}: 8 free, or used by this fleet" in found.lines

    await until(counted)
    assert (await fleet.check()).problems == ()


@pytest.mark.parametrize(
    ("change", "key", "fix"),
    [
        ("token", "kubeconfig", "renew the credentials"),
        ("server", "kubeconfig", "check the server of the context"),
        ("context", "context", "correct the kubeconfig"),
    ],
)
async def test_a_cluster_that_cannot_be_asked(
    fleet: Fleet, place: Place, change: str, key: str, fix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if change == "token":
        fleet.section["kubeconfig"] = str(place.cluster.kubeconfig("online-old", "expired"))
    elif change == "server":
        url, place.cluster.url = place.cluster.url, "https://127.0.0.1:1"
        fleet.section["kubeconfig"] = str(place.cluster.kubeconfig("online-closed", "token"))
        place.cluster.url = url
    else:
        # Without the key kubeconfig, kubectl's places count, which only --online reads.
        usual = fleet.file.parent / ".kube" / "config"
        usual.parent.mkdir()
        usual.symlink_to(fleet.section.pop("kubeconfig"))
        monkeypatch.setenv("HOME", str(fleet.file.parent))
        fleet.section["context"] = "absent"
    problem = await fleet.problem()
    assert problem.key == f"providers.cluster.kubernetes.{key}"
    assert "the cluster cannot be asked" in problem.what
    assert fix in problem.fix


async def test_a_failing_webhook_is_named_and_the_overlay_is_not_to_blame(
    fleet: Fleet, place: Place
) -> None:
    fleet.pod["overlay"] = {"metadata": {"labels": {"team": "ml"}}}
    async with failing_webhook(place) as webhook:
        problem = await fleet.problem()
    assert problem.key == "skus.gpu.on[0].pod"
    assert webhook in problem.what
    assert "admission webhook that the message names" in problem.fix
