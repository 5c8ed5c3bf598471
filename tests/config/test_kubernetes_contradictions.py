"""What `check` says about pods in fleet.yaml: each message names the key and a fix."""

import pytest

from tests.config.fleet_file import MINIMAL, Folder

PODS = (
    MINIMAL[: MINIMAL.index("providers:")]
    + """\
providers:
  cluster:
    kubernetes: {context: c, namespace: runners}
skus:
  gpu:
    on:
      - {provider: cluster, pod: {image: i}}
"""
)


def pods(*pairs: tuple[str, str]) -> str:
    """PODS with texts replaced; each must be there."""
    text = PODS
    for old, new in pairs:
        assert old in text, old
        text = text.replace(old, new)
    return text


SKU, POD, SECTION = "    on:\n", "{image: i}", "{context: c, namespace: runners}"


@pytest.mark.parametrize(
    ("old", "new", "key", "what", "fix"),
    [
        (SECTION, "{context: c}", "providers.cluster.kubernetes.namespace", "missing", "namespace"),
        (
            "runners}",
            "Runners}",
            "providers.cluster.kubernetes.namespace",
            '"Runners" is not a name of Kubernetes',
            "use a to z",
        ),
        (
            SECTION,
            "{context: c, namespace: n}\n  other:\n    kubernetes: {context: c, namespace: n}",
            "providers.other.kubernetes.namespace",
            '"n" is already the namespace of provider "cluster" (line 12)',
            'use provider "cluster" in the SKUs',
        ),
        (
            SKU,
            f"    os: windows\n{SKU}",
            "skus.gpu.os",
            'pods run on Linux only, and "cluster" is on Kubernetes',
            "remove it",
        ),
        (
            SKU,
            f"    driver: install\n{SKU}",
            "skus.gpu.driver",
            "a pod uses the driver of its node",
            "write preinstalled",
        ),
        (
            POD,
            "{image: i, resources: {cpu: 4}}",
            "skus.gpu.on[0].pod.resources.cpu",
            "4 is not text",
            "put it in quotes",
        ),
        (
            POD,
            "{image: i, resources: {memory: 5GB}}",
            "skus.gpu.on[0].pod.resources.memory",
            '"5GB" is not a quantity',
            "56Gi",
        ),
        (
            POD,
            "{image: i, resources: {nvidia.com/gpu: '1'}}",
            'skus.gpu.on[0].pod.resources."nvidia.com/gpu"',
            "accelerators are not part of resources",
            "write accelerator: {vendor: ..., count: ...} in the SKU",
        ),
        (
            POD,
            "{image: i, resources: {amd.com/cpx_nps4: '1'}}",
            'skus.gpu.on[0].pod.resources."amd.com/cpx_nps4"',
            "accelerators are not part of resources",
            "accelerator_resource: amd.com/cpx_nps4 in the pod",
        ),
        (
            POD,
            "{image: i, accelerator_resource: amd.com/gpu}",
            "skus.gpu.on[0].pod.accelerator_resource",
            "names the resource of accelerators, and the SKU has none",
            "add accelerator",
        ),
        (
            POD,
            "{image: i, accelerator_resource: gpu}}\n    accelerator: {vendor: amd, count: 1",
            "skus.gpu.on[0].pod.accelerator_resource",
            '"gpu" is not a resource of a device plugin',
            "DOMAIN/NAME",
        ),
        (
            POD,
            "{image: i, node_selector: {pool: a b}}",
            "skus.gpu.on[0].pod.node_selector.pool",
            '"a b" is not the value of a label',
            "at most 63",
        ),
        (
            POD,
            "{image: i, tolerations: [{key: k, effect: NoShedule}]}",
            "skus.gpu.on[0].pod.tolerations[0].effect",
            '"NoShedule" is not NoSchedule',
            "did you mean NoSchedule?",
        ),
    ],
)
def test_each_message_names_the_key_and_a_fix(
    folder: Folder, old: str, new: str, key: str, what: str, fix: str
) -> None:
    problem = folder.problem(pods((old, new)))
    assert problem.key == key
    assert what in problem.what
    assert fix in problem.fix


def test_the_text_that_the_others_change_is_accepted(folder: Folder) -> None:
    assert folder.load(pods()).warnings == ()


def test_two_namespaces_of_a_cluster_and_one_namespace_of_two_clusters_are_accepted(
    folder: Folder,
) -> None:
    others = """{context: c, namespace: runners}
  second:
    kubernetes: {context: c, namespace: others}
  third:
    kubernetes: {context: d, namespace: runners}"""
    assert folder.load(pods((SECTION, others))).warnings == ()
