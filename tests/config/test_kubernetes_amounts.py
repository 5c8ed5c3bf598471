"""What `check` says about amounts of resources that Kubernetes refuses, or counts otherwise than meant."""

import pytest

from tests.config.fleet_file import Folder, pods
from tests.config.test_kubernetes_contradictions import POD

HOOKS = "{image: i, container_mode: {kubernetes: {service_account: h, work_volume: {size: '%s'}}}}"
OF_POD = "skus.gpu.on[0].pod"


@pytest.mark.parametrize(
    ("resource", "value", "what", "fix"),
    [
        ("memory", "64m", '"64m" is 0.064 bytes: m means thousandths', "write 64Mi"),
        ("memory", "64", '"64" is only 64 bytes', "write a unit"),
        ("memory", "1e30", '"1e30" is more than Kubernetes can count', "smaller"),
        ("ephemeral-storage", "100m", "m means thousandths", "write 100Mi"),
        ("cpu", "1n", '"1n" is less than 1m, the least that Kubernetes counts', "500m"),
        ("cpu", "9e30", '"9e30" is more than Kubernetes can count', "smaller"),
        ("hugepages-2Mi", "64m", '"64m" is not a multiple of the page size 2Mi', "such as 2Mi"),
        ("hugepages-2Mi", "3Mi", "is not a multiple of the page size 2Mi", "such as 2Mi"),
        ("hugepages-big", "2Mi", '"big" is not the size of a page', "hugepages-1Gi"),
        ("acme.com/lane", "500m", 'whole number, and "acme.com/lane" is counted', '"1"'),
        ("lanes", "4", '"lanes" is not a resource of containers', "write cpu, memory"),
        ("Memory", "4Gi", '"Memory" is not a resource of containers', "did you mean memory?"),
    ],
)
def test_an_amount_that_cannot_be_meant(
    folder: Folder, resource: str, value: str, what: str, fix: str
) -> None:
    shown = f'"{resource}"' if "/" in resource else resource
    resources = f"{{'{resource}': '{value}'}}"
    overlay = f"{{spec: {{containers: [{{name: runner, resources: {{limits: {resources}}}}}]}}}}"
    dind = f"{{image: i, container_mode: {{dind: {{image: d, resources: {resources}}}}}}}"
    for pod, key in (
        (f"{{image: i, resources: {resources}}}", "resources"),
        (dind, "container_mode.dind.resources"),
        (f"{{image: i, overlay: {overlay}}}", "overlay.spec.containers[0].resources.limits"),
    ):
        problem = folder.problem(pods((POD, pod)))
        assert problem.key == f"{OF_POD}.{key}.{shown}"
        assert what in problem.what
        assert fix in problem.fix


@pytest.mark.parametrize(
    ("size", "what"),
    [("64m", "is 0.064 bytes"), ("0", "is only 0 bytes"), ("20", "is only 20 bytes")],
)
def test_a_work_volume_needs_a_size(folder: Folder, size: str, what: str) -> None:
    problem = folder.problem(pods((POD, HOOKS % size)))
    assert problem.key == f"{OF_POD}.container_mode.kubernetes.work_volume.size"
    assert what in problem.what


@pytest.mark.parametrize(
    ("size", "what"),
    [("64m", "is 0.064 bytes"), ("0", "is only 0 bytes"), ("8GB", "is not a quantity")],
)
def test_shared_memory_needs_a_size(folder: Folder, size: str, what: str) -> None:
    problem = folder.problem(pods((POD, f"{{image: i, shared_memory: '{size}'}}")))
    assert problem.key == f"{OF_POD}.shared_memory"
    assert what in problem.what


OF_VOLUME = "overlay.spec.volumes[0].emptyDir.sizeLimit"
OWN = "volumes: [{name: s, emptyDir: {medium: Memory, sizeLimit: 9Gi}}]"
AT_SHM = "volumeMounts: [{name: s, mountPath: /dev/shm}]"


@pytest.mark.parametrize(
    ("pod", "key", "container"),
    [
        ("shared_memory: 9Gi", "shared_memory", "runner"),
        (
            "shared_memory: 5Gi, overlay: {spec: {containers: "
            "[{name: runner, resources: {limits: {memory: 4Gi}}}]}}",
            "shared_memory",
            "runner",
        ),
        (
            f"overlay: {{spec: {{{OWN}, containers: [{{name: runner, {AT_SHM}}}]}}}}",
            OF_VOLUME,
            "runner",
        ),
        (
            f"overlay: {{spec: {{{OWN.replace('name: s', 'name: shared-memory')}}}}}",
            OF_VOLUME,
            "runner",
        ),
        (
            "shared_memory: 7Gi, container_mode: {dind: {image: d, resources: {memory: 6Gi}}}",
            "shared_memory",
            "dind",
        ),
    ],
)
def test_shared_memory_is_not_larger_than_the_memory_that_it_is_part_of(
    folder: Folder, pod: str, key: str, container: str
) -> None:
    [problem] = folder.refused(pods((POD, f"{{image: i, resources: {{memory: 8Gi}}, {pod}}}")))
    assert problem.key == f"{OF_POD}.{key}"
    assert f"is more than the memory limit of container {container}, " in problem.what


@pytest.mark.parametrize("value", ["5GB", "[1]", "true"])
def test_a_malformed_amount_of_an_overlay(folder: Folder, value: str) -> None:
    overlay = f"{{spec: {{initContainers: [{{name: fetch, resources: {{requests: {{cpu: {value}}}}}}}]}}}}"
    problem = folder.problem(pods((POD, f"{{image: i, overlay: {overlay}}}")))
    assert problem.key == f"{OF_POD}.overlay.spec.initContainers[0].resources.requests.cpu"
    assert "is not a quantity" in problem.what


def test_usual_amounts_are_accepted(folder: Folder) -> None:
    resources = "cpu: '0.5', memory: 512Mi, hugepages-2Mi: 64Mi, ephemeral-storage: 20G, a.b/c: '2'"
    overlay = "{name: runner, resources: {limits: {cpu: 2, memory: null, a.b/d: 1}}}"
    spec = f"{{spec: {{containers: [{overlay}, bare]}}}}"
    pod = f"{{image: i, resources: {{{resources}}}, overlay: {spec}}}"
    assert folder.load(pods((POD, pod.replace(", bare", "")))).warnings == ()
    smallest = "{image: i, resources: {cpu: 1m, memory: 1Mi}}"
    assert folder.load(pods((POD, smallest))).warnings == ()
    idle = "{image: i, resources: {cpu: '0', memory: '0'}}"
    assert folder.load(pods((POD, idle))).warnings == ()
    assert folder.load(pods((POD, HOOKS % "20Gi"))).document is not None


def test_an_amount_that_the_types_refuse_is_reported_once(folder: Folder) -> None:
    problem = folder.problem(pods((POD, "{image: i, resources: {memory: 5GB, cpu: '1'}}")))
    assert problem.what == '"5GB" is not a quantity'
