"""What `check` says about pods in fleet.yaml: each message names the key and a fix."""

import pytest

from autoscaler.app.preflight import load_for_service
from autoscaler.providers.kubernetes.checks.overlays import wrong_fields
from tests.config.fleet_file import MINIMAL, Folder, pods
from tests.config.keys import certificate, curve_key, pem

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
            "write 5Gi",
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
            "{image: i, container_mode: {dind: {image: d, resources: {nvidia.com/gpu: '1'}}}}",
            'skus.gpu.on[0].pod.container_mode.dind.resources."nvidia.com/gpu"',
            "accelerators are not part of resources",
            "write accelerator: {vendor: ..., count: ...} in the SKU",
        ),
        (
            POD,
            "{image: i, container_mode: {kubernetes: {service_account: h, resources: {amd.com/gpu: '1'}}}}",
            'skus.gpu.on[0].pod.container_mode.kubernetes.resources."amd.com/gpu"',
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
        (
            POD,
            "{image: i, topology_spread: [a.io/zone, a.io/host, a.io/zone]}",
            "skus.gpu.on[0].pod.topology_spread[2]",
            'repeats "a.io/zone"',
            "remove it",
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
    assert warning.fix == "remove it"
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
    ("overlay", "key", "what"),
    [
        ("{spec: {hostNetwork: true}}", "spec.hostNetwork", "spec.hostNetwork: is not allowed"),
        (
            "{spec: {restartPolicy: Always}}",
            "spec.restartPolicy",
            "spec.restartPolicy: must stay 'Never'",
        ),
        (
            "{spec: {containers: [{name: runner, command: [sh]}]}}",
            "spec.containers[0].command",
            "spec.containers[runner].command: must stay as it is",
        ),
        (
            "{spec: {containers: [{name: runner, resources: {limits: {amd.com/gpu: 1}}}]}}",
            'spec.containers[0].resources.limits."amd.com/gpu"',
            "spec.containers[runner].resources.limits.amd.com/gpu: must stay 2",
        ),
        (
            "{metadata: {labels: {gpu-runner-autoscaler/fleet: x}}}",
            'metadata.labels."gpu-runner-autoscaler/fleet"',
            "the autoscaler relies on it",
        ),
        ("{kind: Job}", "kind", "kind: an overlay has metadata and spec only"),
        # What is not in the overlay has the place of what is.
        (
            "{spec: {containers: [{name: runner, resources: {limits: null}}]}}",
            "spec.containers[0].resources.limits",
            "spec.containers[runner].resources.limits.amd.com/gpu: must stay 2",
        ),
        ("{spec: {nodeSelector: null}}", "spec.nodeSelector", "spec.nodeSelector.kubernetes.io/os"),
        ("{spec: {containers: {name: runner}}}", "spec.containers", "must be a list"),
    ],
)
def test_an_overlay_that_breaks_a_rule_is_found_without_the_cluster(
    folder: Folder, overlay: str, key: str, what: str
) -> None:
    pod = f"{{image: i, overlay: {overlay}}}}}\n    accelerator: {{vendor: amd, count: 2"
    problem = folder.refused(pods((POD, pod)))[-1]
    assert problem.key == f"skus.gpu.on[0].pod.overlay.{key}"
    assert what in problem.what
    assert problem.fix == "correct the overlay"


FAULTY = """\
{image: %s, overlay: {
        kind: Job,
        metadata: {
          name: x,
          labels: {a: b,
            gpu-runner-autoscaler/fleet: x},
          annotations: {
            karpenter.sh/do-not-disrupt: "false"}},
        spec: {
          hostNetwork: true,
          tolerations: all,
          securityContext: {
            runAsUser: 0},
          volumes: [
            {name: h,
              hostPath: {path: /}},
            {emptyDir: {}}],
          initContainers: [
            {name: proxy, restartPolicy: Always, image: i,
              volumeMounts: [
                {name: identity, mountPath: /a}]}],
          containers: [
            {name: runner,
              command: [sh],
              env: [
                {name: A},
                {name: RUNNER_AGENT_ROOT}],
              volumeMounts: [
                {name: h, mountPath: /run/runner-agent/x}]},
            {name: runner,
              resources: {limits: {
                nvidia.com/gpu: 1}}},
            {name: second}]}}}"""


@pytest.mark.parametrize("image", ["i", "https://not.an/image"])
def test_every_fault_of_an_overlay_is_reported_at_its_own_line(folder: Folder, image: str) -> None:
    text = pods((POD, FAULTY % image))
    lines = text.splitlines()
    found = [one for one in folder.refused(text) if one.fix == "correct the overlay"]
    assert {(lines[one.line - 1].strip(), one.what.rpartition(": ")[2]) for one in found} >= {
        ("kind: Job,", "an overlay has metadata and spec only"),
        ("name: x,", "only labels and annotations can be added"),
        ("gpu-runner-autoscaler/fleet: x},", "the autoscaler relies on it"),
        (
            'karpenter.sh/do-not-disrupt: "false"}},',
            "the autoscaler sets it when a job may run",
        ),
        ("hostNetwork: true,", "is not allowed"),
        ("tolerations: all,", "must be a list"),
        ("volumes: [", "each element needs name"),
        ("command: [sh],", "must stay as it is"),
        ("{name: RUNNER_AGENT_ROOT}],", "is not allowed"),
        ("{name: identity, mountPath: /a}]}],", "only runner may have the pod's token"),
        (
            "{name: h, mountPath: /run/runner-agent/x}]},",
            "must not cover /run/runner-agent",
        ),
        ("nvidia.com/gpu: 1}}},", "nothing would count it; write it as the SKU's accelerator"),
    }
    assert any("spec.containers[second]: the pod would not end" in one.what for one in found)


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


@pytest.mark.parametrize(
    ("spec", "key", "what"),
    [
        ("{containers: [{name: runner, env: {A: b}}]}", "containers[0].env", "must be a list"),
        (
            "{containers: [{name: runner, env: [{name: A, value: 1}]}]}",
            "containers[0].env[0].value",
            "1 is not text",
        ),
        ("{tolerations: {key: a}}", "tolerations", "must be a list"),
        (
            "{securityContext: {runAsUser: '9'}}",
            "securityContext.runAsUser",
            "must be a whole number",
        ),
        ("{affinity: []}", "affinity", "must be a mapping"),
        ("{hostUsers: 'false'}", "hostUsers", "must be true or false"),
        ("{containers: [{name: runner, image: {a: b}}]}", "containers[0].image", "not an image"),
    ],
)
def test_a_field_of_an_overlay_that_has_another_type_in_a_pod(
    folder: Folder, spec: str, key: str, what: str
) -> None:
    found = folder.refused(pods((POD, f"{{image: i, overlay: {{spec: {spec}}}}}")))
    [problem] = [one for one in found if one.key == f"skus.gpu.on[0].pod.overlay.spec.{key}"]
    assert what in problem.what


@pytest.mark.parametrize("kind", ["containers", "initContainers"])
def test_a_mount_of_an_overlay_needs_its_volume(folder: Folder, kind: str) -> None:
    name = "runner" if kind == "containers" else "fetch"
    mounts = "[{name: dshm, mountPath: /dev/shm}, {name: work, mountPath: /w}]"
    spec = f"{{{kind}: [{{name: {name}, volumeMounts: {mounts}}}]}}"
    found = folder.refused(pods((POD, f"{{image: i, overlay: {{spec: {spec}}}}}")))
    [problem] = [one for one in found if "has no volume" in one.what]
    assert problem.key == f"skus.gpu.on[0].pod.overlay.spec.{kind}[0].volumeMounts[0]"
    assert "the pod has no volume 'dshm'" in problem.what


def test_quantities_and_removed_fields_of_an_overlay_have_the_right_type() -> None:
    volume = {"name": "v", "emptyDir": {"sizeLimit": 1024}}
    limits = {"resources": {"limits": {"cpu": 4}}, "name": "runner", "env": None}
    spec = {"volumes": [volume], "containers": [limits], "nodeSelector": {"a": "b"}}
    assert list(wrong_fields({"spec": spec})) == []


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
    found = folder.refused(pods((POD, f"{{image: i, overlay: {overlay}}}")))
    [problem] = [one for one in found if one.key.endswith("image")]
    assert problem.key == f"skus.gpu.on[0].pod.overlay.spec.{kind}[0].image"
    assert f"spec.{kind}[{name}].image: " in problem.what
    assert "is not an image reference" in problem.what
    assert problem.fix == "correct the overlay"


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
