"""Which NVIDIA GPUs the containers of a pod see: those that they request, and no others."""

from typing import Any

import pytest

from autoscaler.providers.kubernetes.manifest.overlay import OverlayError
from autoscaler.providers.kubernetes.manifest.pod import pod_template
from autoscaler.providers.kubernetes.manifest.visible_gpus import VARIABLE
from autoscaler.providers.kubernetes.settings import Accelerator
from tests.providers.kubernetes_pods import (
    OPTION,
    dind,
    hooks,
    make_order,
    make_settings,
    sidecar,
    with_changes,
)

GPU = Accelerator("nvidia.com/gpu", 1)
MIG = Accelerator("nvidia.com/mig-1g.10gb", 1)
RENAMED = Accelerator("acme.com/h100", 1)
ROCM = Accelerator("amd.com/gpu", 2)
DIND = dind()


def visible(**changes: Any) -> dict[str, list[str | None]]:
    """The values of the variable, by container."""
    spec = pod_template(make_settings(), with_changes(OPTION, **changes), make_order())["spec"]
    return {
        one["name"]: [env.get("value") for env in one.get("env", ()) if env["name"] == VARIABLE]
        for one in (*spec["initContainers"], *spec["containers"])
    }


def of_sidecar(**fields: Any) -> dict[str, Any]:
    return {"spec": sidecar(**fields)}


def of_runner(**fields: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "runner", **fields}]}}


@pytest.mark.case(
    "a CUDA image in a pod without GPUs: its jobs see none, although the image asks for all of the node",
    topic="Kubernetes",
    source="NVIDIA/k8s-device-plugin#61",
)
@pytest.mark.parametrize("accelerator", [None, ROCM])
def test_a_container_without_nvidia_gpus_sees_none(accelerator: Accelerator | None) -> None:
    found = visible(accelerator=accelerator, overlay=of_sidecar(env=[{"name": "A"}]))
    assert found == {"proxy": ["void"], "runner": ["void"]}


@pytest.mark.parametrize("accelerator", [GPU, MIG, RENAMED])
def test_the_device_plugin_decides_for_the_others(accelerator: Accelerator) -> None:
    found = visible(accelerator=accelerator, overlay=of_sidecar())
    assert found == {"proxy": ["void"], "runner": []}


def test_another_resource_of_nvidia_is_no_gpu() -> None:
    limits = {"limits": {"nvidia.com/mlnxnics": "1"}}
    assert visible(accelerator=GPU, overlay=of_sidecar(resources=limits))["proxy"] == ["void"]


def test_the_containers_of_the_container_modes_see_none() -> None:
    found = visible(accelerator=GPU, container_mode=DIND)
    assert (found["dind-files"], found["dind"]) == (["void"], ["void"])
    found = visible(accelerator=None, container_mode=hooks("hooks"))
    assert found["runner"] == ["void"]


@pytest.mark.parametrize("value", ["void", "none", ""])
def test_an_overlay_may_say_so_itself(value: str) -> None:
    env = [{"name": VARIABLE, "value": value}]
    assert visible(accelerator=GPU, overlay=of_sidecar(env=env))["proxy"] == [value]


@pytest.mark.parametrize(
    "variable",
    [
        {"value": "all"},
        {"value": "0"},
        {"value": "GPU-5a3c"},
        {"valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}},
    ],
)
@pytest.mark.parametrize(
    ("overlay_of", "accelerator", "what"),
    [
        (of_sidecar, GPU, r"initContainers\[proxy\].env\[N.*the container requests no GPU"),
        (of_runner, None, r"containers\[runner\].env\[N.*the container requests no GPU"),
        (of_runner, GPU, r"containers\[runner\].env\[N.*the device plugin sets it"),
    ],
)
def test_an_overlay_shows_no_other_gpus(
    variable: dict[str, Any], overlay_of: Any, accelerator: Accelerator | None, what: str
) -> None:
    overlay = overlay_of(env=[{"name": VARIABLE, **variable}])
    with pytest.raises(OverlayError, match=what):
        visible(accelerator=accelerator, overlay=overlay)
