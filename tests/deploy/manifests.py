"""The objects of the example overlay, found by kind and name."""

from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.deploy.kustomization import Body, build

ROOT = Path(__file__).parents[2]
KUBERNETES = ROOT / "deploy" / "kubernetes"
OVERLAY = KUBERNETES / "overlays" / "example"
COMPONENTS = KUBERNETES / "components"
NAME = "gpu-runner-autoscaler"


@cache
def objects() -> tuple[Body, ...]:
    """The objects of the example overlay. Not to be changed."""
    return tuple(build(OVERLAY))


def of_kind(kind: str) -> list[Body]:
    return [one for one in objects() if one["kind"] == kind]


def only(kind: str, name: str = NAME) -> Body:
    [found] = [one for one in of_kind(kind) if one["metadata"]["name"] == name]
    return found


def pod() -> Body:
    """The spec of the controller's pod."""
    spec: Body = only("StatefulSet")["spec"]["template"]["spec"]
    return spec


def container() -> Body:
    [found] = pod()["containers"]
    assert isinstance(found, dict)
    return found


def container_ports() -> dict[str, int]:
    return {one["name"]: one["containerPort"] for one in container()["ports"]}


def mounts() -> dict[str, Path]:
    """Where each volume is mounted."""
    return {one["name"]: Path(one["mountPath"]) for one in container()["volumeMounts"]}


def fleet() -> Any:
    """The parsed fleet.yaml of the ConfigMap."""
    return yaml.safe_load(only("ConfigMap")["data"]["fleet.yaml"])
