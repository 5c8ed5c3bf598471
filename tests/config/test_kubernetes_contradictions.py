"""What `check` says about pods in fleet.yaml: each message names the key and a fix."""

import base64
import json
from typing import Any

import pytest

from autoscaler.app.preflight import load_for_service
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


DOLLARS = "limits: {dollars_per_hour: 100}\nproviders:"
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
            f"    driver: install\n    accelerator: {{vendor: amd, count: 1}}\n{SKU}",
            "skus.gpu.driver",
            "a pod uses the driver of its node",
            "write preinstalled",
        ),
        (
            SKU,
            f"    volume: {{iops: 4000}}\n{SKU}",
            "skus.gpu.volume",
            "has no effect: no launch option is on EC2",
            "remove it",
        ),
        (
            SKU,
            f"    boot_script_file: secret\n{SKU}",
            "skus.gpu.boot_script_file",
            "has no effect: no launch option is on EC2",
            "remove it",
        ),
        (
            SKU,
            f"    tags: {{team: ml}}\n{SKU}",
            "skus.gpu.tags",
            "has no effect: no launch option is on EC2",
            "remove it",
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
            "{image: i, accelerator_resource: nvidia.com/gpu}}\n    accelerator: {vendor: amd, count: 1",
            "skus.gpu.on[0].pod.accelerator_resource",
            'is a resource of another vendor than the SKU\'s accelerator, "amd"',
            "correct accelerator.vendor",
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
            "{image: i, node_selector: {kubernetes.io/arch: arm64}}",
            'skus.gpu.on[0].pod.node_selector."kubernetes.io/arch"',
            '"arm64" contradicts the SKU, whose pods run on nodes with amd64',
            "correct arch in the SKU",
        ),
        (
            f"{SKU}      - {{provider: cluster, pod: {POD}",
            f"    arch: arm64\n{SKU}      - {{provider: cluster, "
            "pod: {image: i, node_selector: {beta.kubernetes.io/arch: amd64}}",
            'skus.gpu.on[0].pod.node_selector."beta.kubernetes.io/arch"',
            '"amd64" contradicts the SKU, whose pods run on nodes with arm64',
            "correct arch in the SKU",
        ),
        (
            POD,
            "{image: i, node_selector: {kubernetes.io/os: windows}}",
            'skus.gpu.on[0].pod.node_selector."kubernetes.io/os"',
            '"windows" contradicts the SKU, whose pods run on nodes with linux',
            "remove it",
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


@pytest.mark.parametrize(("price", "said"), [("", 1), ("price: 0, ", 0), ("price: 2.5, ", 0)])
def test_a_pod_without_a_price_is_a_warning_if_dollars_are_limited(
    folder: Folder, price: str, said: int
) -> None:
    option = ("pod: {image", f"{price}pod: {{image")
    assert folder.load(pods(option)).warnings == ()
    warnings = folder.load(pods(option, ("providers:", DOLLARS))).warnings
    assert [one.key for one in warnings] == ["skus.gpu.on[0].price"] * said
    for one in warnings:
        assert one.warning
        assert "cost nothing in limits.dollars_per_hour" in one.what
        assert "or price: 0" in one.fix


def test_selectors_that_repeat_the_sku_are_accepted(folder: Folder) -> None:
    pod = "{image: i, node_selector: {kubernetes.io/arch: amd64, kubernetes.io/os: linux}}"
    assert folder.load(pods((POD, pod))).warnings == ()


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
    assert problem.fix == "correct the overlay"


@pytest.mark.parametrize(
    ("overlay", "key", "meant"),
    [
        ("{spec: {toleration: []}}", "spec.toleration", "tolerations"),
        ("{metadata: {label: {a: b}}}", "metadata.label", "labels"),
        (
            "{spec: {containers: [{name: runner, resource: {}}]}}",
            "spec.containers[0].resource",
            "resources",
        ),
        (
            "{spec: {affinity: {nodeAfinity: {}}}}",
            "spec.affinity.nodeAfinity",
            "nodeAffinity",
        ),
    ],
)
def test_a_misspelled_field_of_an_overlay(
    folder: Folder, overlay: str, key: str, meant: str
) -> None:
    found = folder.refused(pods((POD, f"{{image: i, overlay: {overlay}}}")))
    [problem] = [one for one in found if "is not a field of a Pod" in one.what]
    assert problem.key == f"skus.gpu.on[0].pod.overlay.{key}"
    assert problem.fix == f"did you mean {meant}?"


def test_fields_of_a_pod_and_unlike_ones_are_accepted(folder: Folder) -> None:
    volume = "{name: v, emptyDir: {sizeLimit: 1Gi}}"
    spec = f"{{volumes: [{volume}], nodeSelector: {{hostname: a}}, ofNextYear: 1}}"
    overlay = f"{{metadata: {{annotations: {{names: x}}}}, spec: {spec}}}"
    file = folder.path / "fleet.yaml"
    file.write_text(pods((POD, f"{{image: i, overlay: {overlay}}}")))
    load_for_service(file)


NO_IMAGE = "https://ghcr.io/actions/actions-runner"


@pytest.mark.parametrize(
    ("pod", "key"),
    [
        (f"{{image: '{NO_IMAGE}'}}", "image"),
        (
            f"{{image: i, container_mode: {{dind: {{image: '{NO_IMAGE}'}}}}}}",
            "container_mode.dind.image",
        ),
    ],
)
def test_a_malformed_image_reference_names_its_key(folder: Folder, pod: str, key: str) -> None:
    problem = folder.problem(pods((POD, pod)))
    assert problem.key == f"skus.gpu.on[0].pod.{key}"
    assert problem.what == f'"{NO_IMAGE}" is not an image reference'
    assert problem.fix.startswith("write [REGISTRY/]NAME[:TAG][@DIGEST]")


@pytest.mark.parametrize("image", [f"'{NO_IMAGE}'", "6.4", "''"])
@pytest.mark.parametrize(("kind", "name"), [("containers", "runner"), ("initContainers", "fetch")])
def test_a_malformed_image_reference_of_an_overlay(
    folder: Folder, image: str, kind: str, name: str
) -> None:
    overlay = f"{{spec: {{{kind}: [{{name: {name}, image: {image}}}]}}}}"
    [problem] = folder.refused(pods((POD, f"{{image: i, overlay: {overlay}}}")))
    assert problem.key == "skus.gpu.on[0].pod.overlay"
    assert f"spec.{kind}[{name}].image: " in problem.what
    assert "is not an image reference" in problem.what
    assert problem.fix == "correct the overlay"


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
        *(
            (
                kubeconfig(clusters=[{"name": "k", "cluster": {"server": server}}]),
                "context: one",
                "context",
                f'server "{server}" of cluster "k" in "k" is not the URL of an API server',
                "write https://HOST:PORT",
            )
            for server in (
                "k.example:6443",
                "k.example",
                "https://k.example:99999",
                "https://k:x",
                "https://",
            )
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


def base64_of(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


GOOD = certificate(curve_key())


@pytest.mark.parametrize(
    ("kind", "entry", "what", "fix"),
    [
        ("cluster", {"certificate-authority-data": "%%%"}, "is not base64", "correct"),
        ("cluster", {"certificate-authority-data": base64_of("x")}, "certificate", ""),
        ("cluster", {"certificate-authority": "absent.pem"}, "absent.pem", ""),
        ("user", {"client-certificate-data": base64_of("x")}, "certificate", ""),
        ("user", {"client-certificate": "absent.pem"}, "absent.pem", ""),
        ("user", {"client-key-data": base64_of(GOOD)}, "key", ""),
        ("user", {"client-key": "absent.pem"}, "absent.pem", ""),
    ],
)
def test_a_certificate_or_key_of_a_kubeconfig_that_cannot_be_used(
    folder: Folder, kind: str, entry: dict[str, str], what: str, fix: str
) -> None:
    [key] = entry
    server = {"server": "https://k.example:6443"}
    changes = {
        "cluster": {"clusters": [{"name": "k", "cluster": server | entry}]},
        "user": {"users": [{"name": "u", "user": entry}]},
    }
    (folder.path / "k").write_text(kubeconfig(**changes[kind]))
    [problem] = folder.refused(pods((SECTION, "{kubeconfig: k, namespace: n}")))
    assert problem.key == "providers.cluster.kubernetes.kubeconfig"
    name = {"cluster": "k", "user": "u"}[kind]
    assert problem.what.startswith(f'{key.removesuffix("-data")} of {kind} "{name}" of "k" ')
    assert what in problem.what
    assert fix in problem.fix


def test_usable_certificates_of_a_kubeconfig_and_an_unused_user_are_accepted(
    folder: Folder,
) -> None:
    (folder.path / "sub").mkdir()
    (folder.path / "sub" / "ca.pem").write_text(GOOD)
    server = {"server": "https://k.example:6443", "certificate-authority": "ca.pem"}
    coded = base64_of(GOOD)
    user = {
        "client-certificate-data": "".join(
            f"{coded[at : at + 64]}\n" for at in range(0, len(coded), 64)
        ),
        "client-certificate": "absent.pem",
        "client-key-data": base64_of(pem(curve_key())),
    }
    others = {"name": "other", "user": {"client-key": "absent.pem"}}
    content = kubeconfig(
        clusters=[{"name": "k", "cluster": server}], users=[{"name": "u", "user": user}, others]
    )
    (folder.path / "sub" / "k").write_text(content)
    file = folder.path / "fleet.yaml"
    file.write_text(pods((SECTION, "{kubeconfig: sub/k, namespace: n}")))
    assert load_for_service(file).warnings == ()


@pytest.mark.parametrize("context", ["context: also-one", "context: one", "service_account: x"])
def test_two_contexts_of_one_cluster_are_one_namespace(folder: Folder, context: str) -> None:
    (folder.path / "k").write_text(kubeconfig())
    two = f"""{{kubeconfig: k, namespace: n}}
  other:
    kubernetes: {{kubeconfig: k, namespace: n, {context}}}"""
    [problem] = folder.refused(pods((SECTION, two)))
    assert problem.key == "providers.other.kubernetes.namespace"
    assert 'already the namespace of provider "cluster"' in problem.what


def cluster_at(server: str) -> list[dict[str, Any]]:
    return [{"name": "k", "cluster": {"server": server}}]


ONE_NAMESPACE = "is already the namespace of provider "


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("{kubeconfig: k, namespace: n}", "{context: also-one, namespace: n}"),
        ("{context: one, namespace: n}", "{context: also-one, namespace: n}"),
        ("{kubeconfig: k, namespace: n}", "{namespace: n}"),
        ("{context: one, namespace: n}", "{namespace: n}"),
    ],
)
def test_one_namespace_of_a_cluster_through_different_credentials(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, first: str, second: str
) -> None:
    (folder.path / "k").write_text(kubeconfig(clusters=cluster_at("https://K.example:443/")))
    (folder.path / "usual").write_text(kubeconfig(clusters=cluster_at("https://k.example")))
    monkeypatch.setenv("KUBECONFIG", f"{folder.path / 'absent'}:{folder.path / 'usual'}")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "k.example")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    two = f"{first}\n  other:\n    kubernetes: {second}"
    [problem] = folder.refused(pods((SECTION, two)))
    assert problem.key == "providers.other.kubernetes.namespace"
    assert problem.what == f'"n" of https://k.example {ONE_NAMESPACE}"cluster"'
    assert problem.fix == "write another namespace, or use one provider"


@pytest.mark.parametrize(
    "second",
    ["{context: also-one, namespace: n}", "{namespace: n}", "{context: absent, namespace: n}"],
)
def test_a_server_that_this_host_does_not_know_is_no_error(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, second: str
) -> None:
    (folder.path / "k").write_text(kubeconfig())
    monkeypatch.setenv("KUBECONFIG", f"{folder.path / 'absent'}:~no-such-user/config")
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    two = f"{{kubeconfig: k, namespace: n}}\n  other:\n    kubernetes: {second}"
    folder.load(pods((SECTION, two)))


def test_the_cluster_of_a_context_may_be_in_another_file_of_kubeconfig(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder.path / "k").write_text(kubeconfig())
    (folder.path / "contexts").write_text(kubeconfig(clusters=[]))
    later = kubeconfig(contexts=[], clusters=cluster_at("https://later.example"))
    (folder.path / "later").write_text(later)
    (folder.path / "clusters").write_text(kubeconfig(contexts=[]))
    names = ("contexts", "absent", "clusters", "clusters", "later")
    files = [str(folder.path / name) for name in names]
    monkeypatch.setenv("KUBECONFIG", ":".join(files))
    two = (
        "{kubeconfig: k, namespace: n}\n  other:\n    kubernetes: {context: also-one, namespace: n}"
    )
    [problem] = folder.refused(pods((SECTION, two)))
    assert problem.what == f'"n" of https://k.example:6443 {ONE_NAMESPACE}"cluster"'


@pytest.mark.parametrize("server", ["https://[2001:db8::1]:443", "https://k:6443"])
def test_another_server_is_another_namespace(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, server: str
) -> None:
    (folder.path / "k").write_text(kubeconfig(clusters=cluster_at(server)))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "2001:db8::2")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    two = "{kubeconfig: k, namespace: n}\n  other:\n    kubernetes: {namespace: n}"
    text = pods((SECTION, two))
    folder.load(text)
    (folder.path / "fleet.yaml").write_text(text)
    load_for_service(folder.path / "fleet.yaml")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "2001:db8::1")
    if server.startswith("https://["):
        [problem] = folder.refused(text)
        assert problem.key == "providers.other.kubernetes.namespace"


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
