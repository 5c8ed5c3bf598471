"""No overlay gives a container more than Pod Security `restricted` allows, whatever the namespace enforces."""

from dataclasses import replace
from typing import Any

import pytest

from autoscaler.providers.kubernetes.manifest.overlay import OverlayError
from autoscaler.providers.kubernetes.manifest.pod import pod_template
from autoscaler.providers.kubernetes.settings import ContainerHooks, DockerInDocker
from tests.providers.kubernetes_pods import OPTION, make_order, make_settings
from tests.providers.pod_security_cases import (
    ALLOWED,
    APPARMOR,
    FORBIDDEN,
    SAFE,
    STRICTER,
    UNCONFINED,
    Forbidden,
    sidecar,
)

DOCKER = DockerInDocker("docker:29.7.2-dind-rootless")
PROCESS = {"windowsOptions": {"hostProcess": True}}


def refusal(overlay: dict[str, Any], **option: Any) -> str:
    """Why an overlay is refused; empty if it is not."""
    try:
        pod_template(make_settings(), replace(OPTION, overlay=overlay, **option), make_order())
    except OverlayError as error:
        return str(error)
    return ""


@pytest.mark.case(
    "an overlay gives a container what Pod Security restricted forbids",
    topic="Kubernetes",
    source="Kubernetes: Pod Security Standards",
)
@pytest.mark.parametrize("case", [*FORBIDDEN, *STRICTER], ids=str)
@pytest.mark.parametrize(
    "mode", [None, DOCKER, ContainerHooks("hooks")], ids=["none", "dind", "hooks"]
)
def test_what_restricted_forbids_is_refused_with_its_key(case: Forbidden, mode: Any) -> None:
    found = refusal({"spec": case.spec}, container_mode=mode)
    of_pod = "containers" not in case.spec and case.key.startswith("spec.containers[")
    if mode is not DOCKER or not of_pod:
        assert found.startswith(case.key)
    # With `dind`, an init container is the first one without the pod's field.
    assert case.key.rpartition(".")[2] in found
    assert "Pod Security restricted" in found
    assert "; " in found


@pytest.mark.parametrize("spec", ALLOWED, ids=str)
@pytest.mark.parametrize("mode", [None, ContainerHooks("hooks")], ids=["none", "hooks"])
def test_what_restricted_allows_is_accepted(spec: dict[str, Any], mode: Any) -> None:
    assert refusal({"spec": spec}, container_mode=mode) == ""


@pytest.mark.parametrize(
    ("overlay", "key"),
    [
        ({"spec": {"securityContext": PROCESS}}, "spec.securityContext.windowsOptions.hostProcess"),
        (
            {"metadata": {"annotations": {APPARMOR: "unconfined"}}},
            f"metadata.annotations.{APPARMOR}",
        ),
        (
            {"spec": sidecar(securityContext="none")},
            "spec.initContainers[proxy].securityContext.allowPrivilegeEscalation",
        ),
        (
            {"spec": sidecar(securityContext={**SAFE, "seccompProfile": "none"})},
            "spec.initContainers[proxy].securityContext.seccompProfile.type",
        ),
        (
            {"spec": {"securityContext": {"sysctls": [{"name": ["a"]}]}}},
            "spec.securityContext.sysctls[['a']]",
        ),
    ],
)
def test_what_an_api_server_may_refuse_for_another_reason(
    overlay: dict[str, Any], key: str
) -> None:
    assert refusal(overlay).startswith(f"{key}: Pod Security restricted ")


@pytest.mark.parametrize("value", ["runtime/default", "localhost/ours", ""])
def test_annotations_may_name_an_apparmor_profile(value: str) -> None:
    assert refusal({"metadata": {"annotations": {APPARMOR: value, "note": "unconfined"}}}) == ""


@pytest.mark.case(
    "an overlay opens the privileged Docker daemon to the network",
    topic="Kubernetes",
    source="Kubernetes: Pod Security Standards",
)
@pytest.mark.parametrize("name", ["dind", "dind-files"])
@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"args": ["dockerd", "--host=tcp://0.0.0.0:2375"]}, "args"),
        ({"args": None}, "args"),
        ({"args": ["--debug"]}, "args"),
        ({"args": ["dockerd", "-H", "tcp://0.0.0.0:2375"]}, "args"),
        ({"args": ["dockerd", "-DH:2375"]}, "args"),
        ({"args": ["dockerd", "--host", "0.0.0.0:2375"]}, "args"),
        ({"args": ["dockerd", "--config-file=/etc/a.json"]}, "args"),
        ({"command": ["dockerd", "--host=tcp://0.0.0.0:2375"]}, "command"),
        ({"ports": [{"containerPort": 2375}]}, "ports"),
        ({"envFrom": [{"configMapRef": {"name": "a"}}]}, "envFrom"),
        ({"lifecycle": {"postStart": {"exec": {"command": ["dockerd"]}}}}, "lifecycle"),
        (
            {"env": [{"name": "DOCKER_HOST", "value": "tcp://0.0.0.0:2375"}]},
            "env[DOCKER_HOST]",
        ),
        (
            {"env": [{"name": "DOCKERD_ROOTLESS_ROOTLESSKIT_FLAGS", "value": "-p 2375:2375"}]},
            "env[DOCKERD_ROOTLESS_ROOTLESSKIT_FLAGS]",
        ),
    ],
    ids=str,
)
def test_an_overlay_may_not_open_the_docker_daemon_to_the_network(
    change: dict[str, Any], key: str, name: str
) -> None:
    if change == {"args": None} and name == "dind-files":
        change, key = {"command": None}, "command"
    overlay = {"spec": {"initContainers": [{"name": name, **change}]}}
    assert f"spec.initContainers[{name}].{key}: " in refusal(overlay, container_mode=DOCKER)


def test_the_docker_daemon_may_use_a_proxy_and_a_mirror() -> None:
    mount = {"name": "mirror", "mountPath": "/var/lib/dind/.config/docker"}
    proxy = {"name": "HTTPS_PROXY", "value": "http://proxy:3128"}
    args = ["dockerd", "--registry-mirror=https://mirror.example", "--debug", "-D"]
    daemon = {"name": "dind", "args": args, "env": [proxy], "volumeMounts": [mount]}
    volume = {"name": "mirror", "configMap": {"name": "mirror"}}
    overlay = {"spec": {"initContainers": [daemon], "volumes": [volume]}}
    assert refusal(overlay, container_mode=DOCKER) == ""


def dind(**security: Any) -> dict[str, Any]:
    return {"spec": {"initContainers": [{"name": "dind", "securityContext": security}]}}


@pytest.mark.parametrize(
    "security",
    [
        {"runAsUser": 1002, "runAsGroup": 1002},
        {"privileged": False, "seccompProfile": UNCONFINED, "procMount": "Unmasked"},
        {"capabilities": {"add": ["SYS_ADMIN"]}, "appArmorProfile": UNCONFINED},
    ],
    ids=str,
)
def test_the_docker_daemon_may_have_what_a_privileged_container_has(
    security: dict[str, Any],
) -> None:
    assert refusal(dind(**security), container_mode=DOCKER) == ""


@pytest.mark.parametrize(
    ("overlay", "key"),
    [
        (dind(runAsUser=0), "spec.initContainers[dind].securityContext.runAsUser"),
        (dind(runAsNonRoot=False), "spec.initContainers[dind].securityContext.runAsNonRoot"),
        (
            {
                "spec": {
                    "initContainers": [
                        {"name": "dind", "ports": [{"containerPort": 1, "hostPort": 1}]}
                    ]
                }
            },
            "spec.initContainers[dind].ports[1].hostPort",
        ),
        (
            {"spec": {"securityContext": {"seccompProfile": UNCONFINED}}},
            "spec.securityContext.seccompProfile.type",
        ),
        (
            {"spec": sidecar(securityContext={"privileged": True})},
            "spec.initContainers[proxy].securityContext.privileged",
        ),
    ],
    ids=str,
)
def test_the_docker_daemon_is_no_exception_for_anything_else(
    overlay: dict[str, Any], key: str
) -> None:
    assert f"{key}: " in refusal(overlay, container_mode=DOCKER)


def test_only_the_generated_docker_daemon_may_be_privileged() -> None:
    """Without `container_mode`, a container with this name is any other one."""
    added = {"spec": sidecar(name="dind", securityContext={"privileged": True})}
    assert "privileged: Pod Security restricted forbids it" in refusal(added)
