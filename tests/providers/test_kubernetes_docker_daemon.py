"""No overlay opens the privileged Docker daemon of a pod to the network or to its node."""

from typing import Any

import pytest

from autoscaler.providers.kubernetes.manifest.overlay import OverlayError
from autoscaler.providers.kubernetes.manifest.pod import pod_template
from tests.providers.kubernetes_pods import (
    OPTION,
    dind,
    make_order,
    make_settings,
    sidecar,
    with_changes,
)

DOCKER = dind()


def refusal(overlay: dict[str, Any]) -> str:
    """Why an overlay is refused; empty if it is not."""
    option = with_changes(OPTION, overlay=overlay, container_mode=DOCKER)
    try:
        pod_template(make_settings(), option, make_order())
    except OverlayError as error:
        return str(error)
    return ""


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
        ({"ports": [{"containerPort": 2375, "hostPort": 2375}]}, "ports"),
        ({"readinessProbe": {"exec": {"command": ["socat"]}}}, "readinessProbe.exec"),
        ({"startupProbe": {"exec": {"command": ["socat"]}}}, "startupProbe.exec"),
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
    assert f"spec.initContainers[{name}].{key}: " in refusal(overlay)


HOST_PORT = {"ports": [{"containerPort": 80, "hostPort": 80}]}
CLAIM = {"persistentVolumeClaim": {"claimName": "shared"}}


def daemon(**security: Any) -> dict[str, Any]:
    return {"initContainers": [{"name": "dind", "securityContext": security}]}


@pytest.mark.case(
    "an overlay opens the privileged Docker daemon to its node",
    topic="Kubernetes",
    source="Kubernetes: Pod Security Standards",
)
@pytest.mark.parametrize(
    ("spec", "key"),
    [
        (
            {"initContainers": [{"name": "dind", **HOST_PORT}]},
            "spec.initContainers[dind].ports[80].hostPort",
        ),
        (
            {"containers": [{"name": "runner", **HOST_PORT}]},
            "spec.containers[runner].ports[80].hostPort",
        ),
        (sidecar(**HOST_PORT), "spec.initContainers[proxy].ports[80].hostPort"),
        ({"hostNetwork": True}, "spec.hostNetwork"),
        ({"hostPID": True}, "spec.hostPID"),
        (
            {"volumes": [{"name": "dind-socket", "hostPath": {"path": "/run"}, "emptyDir": None}]},
            "spec.volumes[dind-socket].hostPath",
        ),
        (
            {"volumes": [{"name": "disk", "hostPath": {"path": "/"}}]},
            "spec.volumes[disk].hostPath",
        ),
        (
            {"volumes": [{"name": "dind-socket", "emptyDir": None, **CLAIM}]},
            "spec.volumes[dind-socket]",
        ),
        ({"volumes": [{"name": "dind-etc", "emptyDir": None, **CLAIM}]}, "spec.volumes[dind-etc]"),
        (daemon(runAsUser=0), "spec.initContainers[dind].securityContext.runAsUser"),
        (daemon(runAsNonRoot=False), "spec.initContainers[dind].securityContext.runAsNonRoot"),
        (
            {"securityContext": {"runAsUser": 0}, **daemon(runAsUser=None)},
            "spec.initContainers[dind].securityContext.runAsUser",
        ),
    ],
    ids=str,
)
def test_an_overlay_may_not_open_the_docker_daemon_to_its_node(
    spec: dict[str, Any], key: str
) -> None:
    assert f"{key}: " in refusal({"spec": spec})


def test_the_docker_daemon_may_have_another_user_and_other_probes() -> None:
    probe = {"startupProbe": {"failureThreshold": 300}}
    changed = {"name": "dind", "securityContext": {"runAsUser": 1002, "runAsGroup": 1002}}
    volume = {"name": "dind-data", "emptyDir": {"sizeLimit": "50Gi"}}
    overlay = {"initContainers": [{**changed, **probe}], "volumes": [volume]}
    assert refusal({"spec": overlay}) == ""


def test_the_docker_daemon_may_use_a_proxy_and_a_mirror() -> None:
    mount = {"name": "mirror", "mountPath": "/var/lib/dind/.config/docker"}
    proxy = {"name": "HTTPS_PROXY", "value": "http://proxy:3128"}
    args = ["dockerd", "--registry-mirror=https://mirror.example", "--debug", "-D"]
    daemon = {"name": "dind", "args": args, "env": [proxy], "volumeMounts": [mount]}
    volume = {"name": "mirror", "configMap": {"name": "mirror"}}
    overlay = {"spec": {"initContainers": [daemon], "volumes": [volume]}}
    assert refusal(overlay) == ""
