"""The /dev/shm of a pod's jobs: its size, what replaces it, and that it is part of the pod's memory."""

from collections.abc import Mapping
from typing import Any

import pytest

from autoscaler.providers.kubernetes.manifest.pod import pod_template
from autoscaler.providers.kubernetes.manifest.shared_memory import FOLDER, VOLUME, too_large
from tests.providers.kubernetes_pods import (
    CPU_OPTION,
    OPTION,
    dind,
    hooks,
    make_order,
    make_settings,
    sidecar,
    with_changes,
)

DIND = "docker:29.7.2-dind-rootless"


def pod_of(**changes: Any) -> dict[str, Any]:
    return pod_template(make_settings(), with_changes(OPTION, **changes), make_order())


def mounted(pod: Mapping[str, Any]) -> dict[str, Any]:
    """The volume at /dev/shm of the runner."""
    [runner] = pod["spec"]["containers"]
    [name] = [one["name"] for one in runner["volumeMounts"] if one["mountPath"] == FOLDER]
    [volume] = [one for one in pod["spec"]["volumes"] if one["name"] == name]
    assert isinstance(volume, dict)
    return volume


def runner(**fields: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "runner", **fields}]}}


@pytest.mark.case(
    "a job fills its shared memory, as NCCL and DataLoader do: it has half of the memory there, not 64 MiB",
    topic="Kubernetes",
    source="pytorch/ci-infra#490",
)
@pytest.mark.parametrize(
    ("memory", "size"),
    [("64Gi", "32Gi"), ("1Gi", "512Mi"), ("7G", "3500000000"), ("3Mi", "1572864")],
)
def test_half_of_the_memory_is_shared_memory(memory: str, size: str) -> None:
    volume = mounted(pod_of(resources={"cpu": "1", "memory": memory}))
    assert volume == {"name": VOLUME, "emptyDir": {"medium": "Memory", "sizeLimit": size}}


def test_shared_memory_is_part_of_the_memory_and_adds_to_no_request() -> None:
    [container] = pod_of(shared_memory="48Gi")["spec"]["containers"]
    assert container["resources"]["requests"]["memory"] == "64Gi"
    assert container["resources"]["limits"]["memory"] == "64Gi"


@pytest.mark.parametrize("resources", [{}, {"cpu": "1"}, {"memory": "0"}])
def test_without_a_memory_limit_the_node_decides(resources: dict[str, str]) -> None:
    assert mounted(pod_of(resources=resources))["emptyDir"] == {"medium": "Memory"}


def test_the_key_sets_the_size() -> None:
    assert mounted(pod_of(shared_memory="8Gi"))["emptyDir"]["sizeLimit"] == "8Gi"
    volume = mounted(pod_of(shared_memory="500M", resources={}))
    assert volume["emptyDir"]["sizeLimit"] == "500000000"


def test_the_memory_of_the_overlay_decides() -> None:
    overlay = runner(resources={"limits": {"memory": "16Gi"}})
    assert mounted(pod_of(overlay=overlay))["emptyDir"]["sizeLimit"] == "8Gi"
    overlay = {"spec": {"resources": {"limits": {"memory": "20Gi"}}}}
    assert mounted(pod_of(overlay=overlay, resources={}))["emptyDir"]["sizeLimit"] == "10Gi"


@pytest.mark.parametrize("path", ["/dev/shm", "/dev/shm/", "//dev/shm", "/dev/../dev/./shm"])
def test_an_overlay_that_mounts_something_there_replaces_it(path: str) -> None:
    overlay = runner(volumeMounts=[{"name": "own", "mountPath": path}])
    overlay["spec"]["volumes"] = [{"name": "own", "emptyDir": {"medium": "Memory"}}]
    pod = pod_of(overlay=overlay, shared_memory="8Gi")
    [container] = pod["spec"]["containers"]
    found = [one["name"] for one in container["volumeMounts"] if "shm" in one["mountPath"]]
    assert found == ["own"]
    assert VOLUME not in {one["name"] for one in pod["spec"]["volumes"]}


def test_an_overlay_may_define_the_volume() -> None:
    own = {"name": VOLUME, "emptyDir": {"medium": "Memory", "sizeLimit": "3Gi"}}
    assert mounted(pod_of(overlay={"spec": {"volumes": [own]}})) == own


def test_a_mount_below_it_or_in_a_sidecar_replaces_nothing() -> None:
    mounts = [{"name": "work", "mountPath": "/dev/shm/cache"}]
    pod = pod_of(overlay=runner(volumeMounts=mounts))
    assert mounted(pod)["name"] == VOLUME
    pod = pod_of(overlay={"spec": sidecar(volumeMounts=[{"name": "work", "mountPath": FOLDER}])})
    assert mounted(pod)["name"] == VOLUME


def test_pods_without_accelerators_have_it_too() -> None:
    pod = pod_template(make_settings(), CPU_OPTION, make_order())
    assert mounted(pod)["emptyDir"]["sizeLimit"] == "512Mi"
    assert mounted(pod_of(container_mode=hooks("hooks")))["name"] == VOLUME


def docker_words(pod: Mapping[str, Any]) -> list[str]:
    [daemon] = [one for one in pod["spec"]["initContainers"] if one["name"] == "dind"]
    return [one for one in daemon["args"] if one.startswith("--default-shm-size")]


@pytest.mark.parametrize(
    ("shared_memory", "resources", "size"),
    [
        (None, {"memory": "8Gi"}, 4 * 2**30),
        (None, {}, 32 * 2**30),
        ("2Gi", {"memory": "8Gi"}, 2 * 2**30),
    ],
)
def test_the_containers_of_docker_have_it_too(
    shared_memory: str | None, resources: dict[str, str], size: int
) -> None:
    mode = dind(resources=resources)
    pod = pod_of(container_mode=mode, shared_memory=shared_memory)
    assert docker_words(pod) == [f"--default-shm-size={size}"]


def test_docker_has_its_default_without_any_memory_limit() -> None:
    bare = pod_of(container_mode=dind(), resources={})
    assert docker_words(bare) == []


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({}, []),
        ({"shared_memory": "64Gi"}, []),
        ({"shared_memory": "65Gi"}, [("runner", VOLUME, "65Gi", "64Gi")]),
        ({"shared_memory": "99Gi", "resources": {}}, []),
        (
            {"shared_memory": "9Gi", "container_mode": dind(resources={"memory": "8Gi"})},
            [("dind", None, "9Gi", "8Gi")],
        ),
    ],
)
def test_more_than_the_memory_is_found(changes: dict[str, Any], found: list[Any]) -> None:
    assert list(too_large(pod_of(**changes))) == found
