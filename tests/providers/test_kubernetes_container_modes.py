"""Pods whose jobs run containers: a Docker daemon as a sidecar, or GitHub's container hooks."""

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from autoscaler.controller.ports.provider import ProofRefusedError
from autoscaler.model.identifiers import LaunchRequestId
from autoscaler.providers.kubernetes.configuration import ContainerMode, Pod, job_container
from autoscaler.providers.kubernetes.identity.ownership import MAX_NAME, pod_names
from autoscaler.providers.kubernetes.identity.tokens import reviewed_pod
from autoscaler.providers.kubernetes.listing.statuses import pod_state
from autoscaler.providers.kubernetes.manifest.container_modes import (
    API_ACCESS_FOLDER,
    HOOKS,
    HOOKS_WITHOUT_VOLUME,
)
from autoscaler.providers.kubernetes.manifest.overlay import OverlayError
from autoscaler.providers.kubernetes.manifest.pod import pod_template
from autoscaler.providers.kubernetes.provider import LARGEST_REQUEST
from tests.providers.kubernetes_pods import (
    OPTION,
    SKU,
    dind,
    hooks,
    make_order,
    make_pod,
    make_settings,
    with_changes,
)

LIMITS = {"cpu": "2", "memory": "8Gi"}
DOCKER = dind("docker:1-dind-rootless", LIMITS)
HOOKED = hooks("container-hooks")
SHARED = hooks("container-hooks", storage="20Gi", storage_class="fast")
MODES = pytest.mark.parametrize("mode", [DOCKER, HOOKED, SHARED], ids=["dind", "copied", "shared"])


def spec_of(
    mode: ContainerMode | None, overlay: Mapping[str, Any] | None = None, **changes: Any
) -> dict[str, Any]:
    option = with_changes(OPTION, container_mode=mode, overlay=overlay or {}, **changes)
    spec: dict[str, Any] = pod_template(make_settings(), option, make_order())["spec"]
    return spec


def container(spec: Mapping[str, Any], name: str) -> dict[str, Any]:
    [found] = [
        one
        for kind in ("initContainers", "containers")
        for one in spec[kind]
        if one["name"] == name
    ]
    assert isinstance(found, dict)
    return found


def mounts(found: Mapping[str, Any]) -> dict[str, str]:
    """Volumes by path."""
    return {one["mountPath"]: one["name"] for one in found["volumeMounts"]}


@MODES
def test_with_a_container_mode_only_the_runner_has_the_proof_and_the_agents_files(
    mode: ContainerMode,
) -> None:
    spec = spec_of(mode, accelerator=None)
    for kind in ("initContainers", "containers"):
        for one in spec[kind]:
            volumes = set(mounts(one).values())
            assert ("identity" in volumes) == (one["name"] == "runner")
            assert ("agent" in volumes) == (one["name"] == "runner")


@MODES
def test_each_mounted_volume_is_one_of_the_pod_and_each_volume_is_mounted(
    mode: ContainerMode,
) -> None:
    spec = spec_of(mode)
    mounted = {
        volume
        for kind in ("initContainers", "containers")
        for one in spec[kind]
        for volume in mounts(one).values()
    }
    assert mounted == {one["name"] for one in spec["volumes"]}


def test_the_daemon_cannot_change_the_list_of_its_users() -> None:
    """Only `dind-files`, which no job can reach, writes it."""
    daemon = container(spec_of(DOCKER), "dind")
    files = [one for one in daemon["volumeMounts"] if one["name"] == "dind-etc"]
    assert {one["mountPath"]: one["readOnly"] for one in files} == {
        "/etc/passwd": True,
        "/etc/group": True,
        "/etc/subuid": True,
        "/etc/subgid": True,
    }


def test_the_docker_daemon_is_a_sidecar_that_answers_before_the_pod_attests() -> None:
    spec = spec_of(DOCKER)
    assert [one["name"] for one in spec["initContainers"]] == ["dind-files", "dind"]
    daemon = container(spec, "dind")
    assert daemon["image"] == "docker:1-dind-rootless"
    assert daemon["restartPolicy"] == "Always"
    assert daemon["startupProbe"]["exec"]["command"] == ["docker", "info"]
    assert daemon["resources"] == {"requests": LIMITS, "limits": LIMITS}


def test_the_runner_and_the_daemon_have_the_same_socket_and_the_same_folders() -> None:
    spec = spec_of(DOCKER)
    daemon, runner = container(spec, "dind"), container(spec, "runner")
    host = {"name": "DOCKER_HOST", "value": "unix:///run/user/1001/docker.sock"}
    assert host in daemon["env"]
    assert host in runner["env"]
    assert daemon["args"] == [
        "dockerd",
        "--host=unix:///run/user/1001/docker.sock",
        f"--default-shm-size={4 * 2**30}",
    ]
    for path in ("/run/user/1001", "/home/runner/_work"):
        assert mounts(daemon)[path] == mounts(runner)[path]
    assert mounts(daemon)["/home/runner/externals"] == "dind-externals"


def test_only_the_daemon_is_privileged_and_it_runs_as_the_user_of_the_runner() -> None:
    spec = spec_of(DOCKER)
    user = spec["securityContext"]["runAsUser"]
    privileged = {"privileged": True, "runAsUser": user, "runAsGroup": user}
    assert container(spec, "dind")["securityContext"] == privileged
    others = {
        one["name"]: one["securityContext"]
        for one in [*spec["initContainers"], *spec["containers"]]
    }
    del others["dind"]
    restricted = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    assert others == dict.fromkeys(("dind-files", "runner"), restricted)


@pytest.mark.case(
    "a rootless Docker daemon refuses to start without entries for its user",
    topic="Kubernetes",
    source="docker-library/docker#251",
)
def test_the_daemon_finds_its_user_as_its_entry_point_looks_for_it(tmp_path: Path) -> None:
    """docker-library/docker, `dockerd-entrypoint.sh`: `grep -qE "^($uid|$user):"` in two files."""
    externals, dind = tmp_path / "externals", tmp_path / "dind"
    for folder in (externals / "node24" / "bin", dind / "etc", dind / "externals"):
        folder.mkdir(parents=True)
    (externals / "node24" / "bin" / "node").write_text("#!/bin/sh\n")
    shell, option, script = container(spec_of(DOCKER), "dind-files")["command"]
    script = script.replace("/home/runner/externals", str(externals)).replace("/dind/", f"{dind}/")
    subprocess.run([shell, option, script], check=True)
    users = dict(line.split(":", 1) for line in (dind / "etc" / "passwd").read_text().splitlines())
    groups = dict(line.split(":", 1) for line in (dind / "etc" / "group").read_text().splitlines())
    daemon = container(spec_of(DOCKER), "dind")
    user = daemon["securityContext"]["runAsUser"]
    home = {one["name"]: one["value"] for one in daemon["env"]}["HOME"]
    assert users["runner"] == f"x:{user}:{user}:runner:{home}:/bin/sh"
    assert groups["runner"] == f"x:{user}:"
    for file in ("subuid", "subgid"):
        assert (dind / "etc" / file).read_text() == "runner:100000:65536\n"
    assert {one["subPath"] for one in daemon["volumeMounts"] if "subPath" in one} == {
        one.name for one in (dind / "etc").iterdir()
    }
    assert (dind / "externals" / "node24" / "bin" / "node").exists()


def test_the_daemon_gets_no_accelerator_of_its_own() -> None:
    spec = spec_of(DOCKER)
    for name in ("dind", "dind-files"):
        assert "amd.com/gpu" not in container(spec, name)["resources"]["limits"]


def test_no_init_container_that_ends_gets_devices_of_the_sku() -> None:
    resources = {"cpu": "2", "vpc.amazonaws.com/efa": "1"}
    option = with_changes(OPTION, container_mode=DOCKER, resources=resources)
    spec = pod_template(make_settings(), option, make_order())["spec"]
    plain = {"cpu": "2"}
    assert container(spec, "dind-files")["resources"] == {"requests": plain, "limits": plain}
    assert container(spec, "runner")["resources"]["limits"].items() >= resources.items()


@pytest.mark.parametrize(("mode", "hooks"), [(HOOKED, HOOKS_WITHOUT_VOLUME), (SHARED, HOOKS)])
def test_the_runner_gets_the_hooks_and_accepts_only_jobs_with_a_container(
    mode: ContainerMode, hooks: str
) -> None:
    env = {one["name"]: one for one in container(spec_of(mode), "runner")["env"]}
    assert env["ACTIONS_RUNNER_CONTAINER_HOOKS"]["value"] == hooks
    assert env["ACTIONS_RUNNER_REQUIRE_JOB_CONTAINER"]["value"] == "true"
    name = {"fieldRef": {"fieldPath": "metadata.name"}}
    assert env["ACTIONS_RUNNER_POD_NAME"]["valueFrom"] == name
    assert env["ACTIONS_RUNNER_IMAGE"]["value"] == OPTION.image


def test_only_the_runner_has_the_token_of_the_hooks() -> None:
    spec = spec_of(HOOKED)
    assert spec["serviceAccountName"] == "container-hooks"
    assert spec["automountServiceAccountToken"] is False
    having = [
        one["name"]
        for one in [*spec["initContainers"], *spec["containers"]]
        if API_ACCESS_FOLDER in mounts(one)
    ]
    assert having == ["runner"]
    [volume] = [
        one
        for one in spec["volumes"]
        if one["name"] == mounts(container(spec, "runner"))[API_ACCESS_FOLDER]
    ]
    [token] = [
        one["serviceAccountToken"]
        for one in volume["projected"]["sources"]
        if "serviceAccountToken" in one
    ]
    # The API server's own audience, so that it is no proof of the pod's identity.
    assert "audience" not in token
    [authority] = [one["configMap"] for one in volume["projected"]["sources"] if "configMap" in one]
    items = [{"key": "ca.crt", "path": "ca.crt"}]
    assert authority == {"name": "kube-root-ca.crt", "items": items}


def test_without_the_hooks_a_pod_has_no_rights_at_the_api_server() -> None:
    for mode in (None, DOCKER):
        spec = spec_of(mode)
        assert spec["serviceAccountName"] == "default"
        tokens = [
            source["serviceAccountToken"]["audience"]
            for volume in spec["volumes"]
            for source in volume.get("projected", {}).get("sources", ())
            if "serviceAccountToken" in source
        ]
        assert tokens == ["ci.gpu-runner-autoscaler"]


@pytest.mark.case(
    "GitHub's container hooks cut a pod's name to make that of the job's pod",
    topic="Kubernetes",
    source="GitHub: container hooks",
)
def test_the_pods_of_two_jobs_never_get_one_name() -> None:
    """The hooks cut a runner pod's name to make `NAME-workflow` (`getJobPodName`): the slot must stay."""
    names = pod_names("f" * 32, LaunchRequestId("0" * 16), LARGEST_REQUEST)
    assert max(map(len, names)) <= MAX_NAME - len("-workflow")


def test_the_work_folder_is_the_claim_that_the_hooks_expect() -> None:
    volumes = {one["name"]: one for one in spec_of(SHARED)["volumes"]}
    claim = volumes["work"]["ephemeral"]["volumeClaimTemplate"]["spec"]
    assert claim["resources"] == {"requests": {"storage": "20Gi"}}
    assert claim["storageClassName"] == "fast"
    assert "emptyDir" in {one["name"]: one for one in spec_of(HOOKED)["volumes"]}["work"]


@pytest.mark.parametrize(
    ("mode", "spec", "problem"),
    [
        (
            DOCKER,
            {"containers": [{"name": "dind", "securityContext": {"privileged": True}}]},
            "would not end with its runner",
        ),
        (DOCKER, {"initContainers": [{"name": "dind", "restartPolicy": None}]}, "restartPolicy"),
        (
            DOCKER,
            {
                "initContainers": [
                    {"name": "dind", "volumeMounts": [{"name": "identity", "mountPath": "/i"}]}
                ]
            },
            "token",
        ),
        (HOOKED, {"volumes": [{"name": "api-access", "emptyDir": {}}]}, "must stay as it is"),
        (
            HOOKED,
            {
                "initContainers": [
                    {"name": "x", "volumeMounts": [{"name": "api-access", "mountPath": "/i"}]}
                ]
            },
            "only runner",
        ),
        (HOOKED, {"serviceAccountName": "admin"}, "must stay 'container-hooks'"),
        (
            HOOKED,
            {
                "containers": [
                    {
                        "name": "runner",
                        "env": [{"name": "ACTIONS_RUNNER_REQUIRE_JOB_CONTAINER", "value": "false"}],
                    }
                ]
            },
            "must stay",
        ),
        (
            None,
            {
                "volumes": [
                    {
                        "name": "api-access",
                        "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]},
                    }
                ]
            },
            "token",
        ),
    ],
    ids=str,
)
def test_an_overlay_opens_no_more_than_the_container_mode(
    mode: ContainerMode | None, spec: dict[str, Any], problem: str
) -> None:
    with pytest.raises(OverlayError, match=problem):
        spec_of(mode, {"spec": spec})


def test_an_overlay_may_add_a_projected_volume_without_a_token() -> None:
    sources = [{"configMap": {"name": "settings"}}]
    added = {"name": "settings", "projected": {"sources": sources}}
    assert added in spec_of(DOCKER, {"spec": {"volumes": [added]}})["volumes"]


def test_an_overlay_may_configure_the_daemon() -> None:
    changes = {"name": "dind", "args": ["dockerd", "--registry-mirror=https://m.example"]}
    assert (
        container(spec_of(DOCKER, {"spec": {"initContainers": [changes]}}), "dind")["args"]
        == changes["args"]
    )


@pytest.mark.case(
    "kubelet stops a sidecar after the other containers: its exit status is not the pod's",
    topic="Kubernetes",
    source="Kubernetes: sidecars",
)
def test_the_end_of_the_daemon_is_not_the_reason_of_the_pod() -> None:
    """Kubelet stops a sidecar after the other containers, and ignores its exit status."""
    ended = {"terminated": {"exitCode": 137, "reason": "Error"}}
    done = {"terminated": {"exitCode": 0, "reason": "Completed"}}
    pod = make_pod(
        {
            "phase": "Succeeded",
            "initContainerStatuses": [{"name": "dind", "state": ended}],
            "containerStatuses": [{"name": "runner", "state": done}],
        }
    )
    pod["spec"] = spec_of(DOCKER)
    state = pod_state(pod)
    assert state.finding is not None
    assert state.finding.text == "Succeeded"


def test_a_pod_of_the_hooks_proves_its_identity_with_its_own_service_account() -> None:
    extra = {
        "authentication.kubernetes.io/pod-name": ["ci-0123456789abcdef-0"],
        "authentication.kubernetes.io/pod-uid": ["4b3f0a1e"],
    }
    status = {
        "authenticated": True,
        "audiences": ["ci.gpu-runner-autoscaler"],
        "user": {"username": "system:serviceaccount:runners:container-hooks", "extra": extra},
    }
    hooked = make_settings(options={(SKU, 0): with_changes(OPTION, container_mode=HOOKED)})
    assert reviewed_pod(hooked, status).uid == "4b3f0a1e"
    with pytest.raises(ProofRefusedError):
        reviewed_pod(make_settings(), status)


def test_a_variable_from_a_secret_is_unknown_to_the_controller() -> None:
    env = [
        {"name": "MODE", "value": "fast"},
        {"name": "EMPTY"},
        {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "token"}}},
    ]
    overlay = {"spec": {"containers": [{"name": "runner", "env": env}]}}
    found = job_container(Pod(image="image", overlay=overlay))
    assert (found.environment, found.unknown) == ({"MODE": "fast", "EMPTY": ""}, ("TOKEN",))
