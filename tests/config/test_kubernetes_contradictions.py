"""What `check` says about pods in fleet.yaml: each message names the key and a fix."""

import json
from typing import Any

import pytest

from tests.config.fleet_file import MINIMAL, Folder
from tests.config.keys import certificate, curve_key, pem

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
            "runners}",
            "runners, provisioner: false, pending_timeout: 5m}",
            "providers.cluster.kubernetes.pending_timeout",
            "has no effect: without a provisioner",
            "remove it",
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


@pytest.mark.parametrize(
    ("key", "value"), [("instance_types", "[g5.xlarge]"), ("capacity", "[spot]")]
)
def test_a_pod_takes_no_keys_of_ec2(folder: Folder, key: str, value: str) -> None:
    problem = folder.problem(pods(("{provider: cluster,", f"{{provider: cluster, {key}: {value},")))
    assert problem.key == f"skus.gpu.on[0].{key}"
    assert problem.what == 'is not supported by "cluster"'
    assert problem.fix == "remove it, or name another provider"


@pytest.mark.parametrize(("key", "value"), [("pod", "{image: i}"), ("price", "1.5")])
def test_a_machine_on_ec2_takes_no_keys_of_pods(folder: Folder, key: str, value: str) -> None:
    text = MINIMAL.replace("{provider: east,", f"{{provider: east, {key}: {value},")
    problem = folder.problem(text)
    assert problem.key == f"skus.gpu.on[0].{key}"
    assert problem.what == 'is not supported by "east"'


def test_a_machine_image_that_no_pod_uses_is_a_warning(folder: Folder) -> None:
    image = f"    image: {{name: x}}\n{SKU}"
    [warning] = folder.load(pods((SKU, image))).warnings
    assert (warning.key, warning.warning) == ("skus.gpu.image", True)
    assert "pods, which have images of their own" in warning.what
    with_ec2 = """{image: i}}
      - {provider: east, instance_types: [g5.xlarge]"""
    east = """  east:
    ec2: {region: us-east-1, subnets: [subnet-0a], security_groups: [sg-0a]}
skus:"""
    assert folder.load(pods((SKU, image), (POD, with_ec2), ("skus:", east))).warnings == ()


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


@pytest.mark.parametrize(
    ("overlay", "what"),
    [
        ("{spec: {hostNetwork: true}}", "spec.hostNetwork: is not allowed"),
        ("{spec: {restartPolicy: Always}}", "spec.restartPolicy: must stay 'Never'"),
        (
            "{spec: {containers: [{name: runner, command: [sh]}]}}",
            "spec.containers[runner].command: must stay as it is",
        ),
        (
            "{spec: {containers: [{name: runner, resources: {limits: {amd.com/gpu: 1}}}]}}",
            "spec.containers[runner].resources.limits.amd.com/gpu: must stay 2",
        ),
        ("{metadata: {labels: {gpu-runner-autoscaler/fleet: x}}}", "the autoscaler relies on it"),
        ("{kind: Job}", "kind: an overlay has metadata and spec only"),
    ],
)
def test_an_overlay_that_breaks_a_rule_is_found_without_the_cluster(
    folder: Folder, overlay: str, what: str
) -> None:
    pod = f"{{image: i, overlay: {overlay}}}}}\n    accelerator: {{vendor: amd, count: 2"
    [problem] = folder.refused(pods((POD, pod)))
    assert problem.key == "skus.gpu.on[0].pod.overlay"
    assert what in problem.what
    assert problem.fix == "remove it from the overlay"


def kubeconfig(**changes: Any) -> str:
    content = {
        "current-context": "one",
        "contexts": [
            {"name": "one", "context": {"cluster": "k", "user": "u"}},
            {"name": "also-one", "context": {"cluster": "k", "user": "v"}},
            {"name": "broken", "context": {"cluster": "gone", "user": "u"}},
        ],
        "clusters": [{"name": "k", "cluster": {"server": "https://k.example:6443/"}}],
    }
    return json.dumps(content | changes)


@pytest.mark.parametrize(
    ("content", "section", "key", "what", "fix"),
    [
        (kubeconfig(), "context: on", "context", '"on" is not a context of "k"', "mean one?"),
        (kubeconfig(), "context: zzz", "context", '"zzz" is not', "also-one, broken or one"),
        (kubeconfig(), "context: broken", "context", "no cluster with a server", "correct"),
        (kubeconfig(contexts=[]), "context: one", "context", "not a context", "add it"),
        (
            kubeconfig(**{"current-context": ""}),
            "service_account: default",
            "kubeconfig",
            "no current context",
            "add the key context",
        ),
        ("[", "context: one", "context", "is not YAML", "name a kubeconfig"),
        ("word", "service_account: a", "kubeconfig", "not a kubeconfig", "name a kubeconfig"),
        (None, "context: one", "kubeconfig", "does not exist", "create the file"),
    ],
)
def test_a_kubeconfig_that_cannot_be_used(
    folder: Folder, content: str | None, section: str, key: str, what: str, fix: str
) -> None:
    if content is not None:
        (folder.path / "k").write_text(content)
    text = pods((SECTION, f"{{kubeconfig: k, namespace: n, {section}}}"))
    [problem] = folder.refused(text)
    assert problem.key == f"providers.cluster.kubernetes.{key}"
    assert what in problem.what
    assert fix in problem.fix


@pytest.mark.parametrize("context", ["context: also-one", "context: one", "service_account: x"])
def test_two_contexts_of_one_cluster_are_one_namespace(folder: Folder, context: str) -> None:
    (folder.path / "k").write_text(kubeconfig())
    two = f"""{{kubeconfig: k, namespace: n}}
  other:
    kubernetes: {{kubeconfig: k, namespace: n, {context}}}"""
    [problem] = folder.refused(pods((SECTION, two)))
    assert problem.key == "providers.other.kubernetes.namespace"
    assert 'already the namespace of provider "cluster"' in problem.what


def test_a_ca_file_that_is_too_long_for_a_command(folder: Folder) -> None:
    ca = (folder.path / "ca.pem").read_text()
    (folder.path / "ca.pem").write_text(ca * (70_000 // len(ca)))
    key = curve_key()
    (folder.path / "server.pem").write_text(certificate(key))
    (folder.path / "server.key").write_text(pem(key))
    tls = "  tls: {certificate_file: server.pem, key_file: server.key, ca_file: ca.pem}\n"
    [problem] = folder.refused(pods(("store:", f"{tls}store:"), ("url: http:", "url: https:")))
    assert problem.key == "server.tls.ca_file"
    assert "cannot be part of a pod's command" in problem.what
    assert "keep only the CA certificate" in problem.fix
