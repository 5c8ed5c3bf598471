"""No overlay opens the privileged Docker daemon of a pod to the network."""

from dataclasses import replace
from typing import Any

import pytest

from autoscaler.providers.kubernetes.manifest.overlay import OverlayError
from autoscaler.providers.kubernetes.manifest.pod import pod_template
from autoscaler.providers.kubernetes.settings import DockerInDocker
from tests.providers.kubernetes_pods import OPTION, make_order, make_settings

DOCKER = DockerInDocker("docker:29.7.2-dind-rootless")


def refusal(overlay: dict[str, Any]) -> str:
    """Why an overlay is refused; empty if it is not."""
    option = replace(OPTION, overlay=overlay, container_mode=DOCKER)
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


def test_the_docker_daemon_may_use_a_proxy_and_a_mirror() -> None:
    mount = {"name": "mirror", "mountPath": "/var/lib/dind/.config/docker"}
    proxy = {"name": "HTTPS_PROXY", "value": "http://proxy:3128"}
    args = ["dockerd", "--registry-mirror=https://mirror.example", "--debug", "-D"]
    daemon = {"name": "dind", "args": args, "env": [proxy], "volumeMounts": [mount]}
    volume = {"name": "mirror", "configMap": {"name": "mirror"}}
    overlay = {"spec": {"initContainers": [daemon], "volumes": [volume]}}
    assert refusal(overlay) == ""
