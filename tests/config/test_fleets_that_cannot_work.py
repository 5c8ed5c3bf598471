"""Values that are valid one by one, and with which the fleet or a part of it cannot work."""

import pytest

from autoscaler.app.preflight import load_for_service
from autoscaler.config import ConfigurationError, Problem
from tests.config.fleet_file import Folder, changed, pods

SKU = "  gpu:\n"
IMAGE = 'image: {name: "runner-*"}'
GHES = ("scopes: [", "api_url: https://ghe.example/api/v3\n  scopes: [")


def found(folder: Folder, text: str) -> list[Problem]:
    """Return the errors and warnings that `check` prints."""
    file = folder.path / "fleet.yaml"
    file.write_text(text)
    try:
        return list(load_for_service(file).warnings)
    except ConfigurationError as error:
        return [*error.problems, *error.warnings]


def accelerator(keys: str) -> str:
    return f"{SKU}    accelerator: {{vendor: nvidia, count: 1, {keys}}}\n"


# The replaced text, its replacement; line, key, message and fix of the problem.
ERRORS = [
    (
        SKU,
        f"{SKU}    accelerator: {{vendor: amd, count: 1}}\n",
        16,
        "skus.gpu.on[0].instance_types[0]",
        "has GPUs of nvidia",
        "correct accelerator.vendor",
    ),
    (
        SKU,
        accelerator("memory_gb: 80"),
        16,
        "skus.gpu.on[0].instance_types[0]",
        "a GPU of g5.xlarge has at most 23 GiB, and accelerator.memory_gb is 80",
        "lower accelerator.memory_gb",
    ),
    (
        "store:",
        "limits: {dollars_per_hour: 1}\nstore:",
        9,
        "limits.dollars_per_hour",
        "1 allows no machine: the cheapest costs 1.006 dollars an hour",
        "raise it",
    ),
    (
        IMAGE,
        'os: windows\n    image: {name: "autoscaler/linux-gpu-x64-*"}',
        17,
        "skus.gpu.image.name",
        "looks like an image for linux, and os is windows",
        "write os: linux",
    ),
    (
        IMAGE,
        'image: {name: "autoscaler/linux-cpu-arm64-*"}',
        16,
        "skus.gpu.image.name",
        "looks like an image for arm64, and arch is x64",
        "write arch: arm64",
    ),
    (
        "scopes: [",
        "api_url: https://github.com\n  scopes: [",
        5,
        "github.api_url",
        "is not GitHub's REST API",
        "write https://api.github.com",
    ),
    (
        "scopes: [",
        "api_url: https://acme.ghe.com\n  scopes: [",
        5,
        "github.api_url",
        "is not GitHub's REST API",
        "write https://api.acme.ghe.com",
    ),
    (
        "[sg-0a]}",
        "[sg-0a], prices: {g5.xlrage: 1}}",
        12,
        'providers.east.ec2.prices."g5.xlrage"',
        "instance type g5.xlrage is not known",
        "did you mean g5.xlarge?",
    ),
    (
        "[subnet-0a]",
        "[subnet-0a, subnet-0b, subnet-0a]",
        12,
        "providers.east.ec2.subnets[2]",
        "is repeated",
        "remove it",
    ),
    (
        "[sg-0a]",
        "[sg-0a, sg-0a]",
        12,
        "providers.east.ec2.security_groups[1]",
        "is repeated",
        "remove it",
    ),
]

WARNINGS = [
    (
        SKU,
        accelerator("models: [NVIDIA H100 80GB HBM3]"),
        16,
        "skus.gpu.on[0].instance_types[0]",
        "g5.xlarge has A10G, which accelerator.models does not name",
        "nvidia-smi -L",
    ),
    (
        "store:",
        "limits: {machines: 0}\nstore:",
        9,
        "limits.machines",
        "0 allows no machine",
        "autoscaler pause all",
    ),
    (
        IMAGE,
        'image: {name: "our-windows-server-*"}',
        16,
        "skus.gpu.image.name",
        "looks like an image for windows, and os is linux",
        "write os: windows",
    ),
    (
        SKU,
        f"{SKU}    labels: [Ubuntu-latest]\n",
        15,
        "skus.gpu.labels[0]",
        "a label of GitHub's own runners",
        "a label of your own",
    ),
    (
        SKU,
        f"{SKU}    labels: [windows-2022]\n",
        15,
        "skus.gpu.labels[0]",
        "a label of GitHub's own runners",
        "a label of your own",
    ),
    (
        SKU,
        "  ubuntu-24.04-arm:\n",
        14,
        'skus."ubuntu-24.04-arm"',
        "a label of GitHub's own runners",
        "a label of your own",
    ),
    (
        "http://127.0.0.1:8443",
        "http://127.0.0.1:8443/webhook",
        8,
        "server.public_url",
        'has the path "/webhook"',
        "write http://127.0.0.1:8443, unless a proxy",
    ),
    (
        "scopes: [",
        "api_url: https://ghe.example\n  scopes: [",
        5,
        "github.api_url",
        "GitHub Enterprise Server has at /api/v3",
        "write https://ghe.example/api/v3",
    ),
]


@pytest.mark.parametrize(
    ("old", "new", "line", "key", "what", "fix", "warning"),
    [(*row, False) for row in ERRORS] + [(*row, True) for row in WARNINGS],
)
def test_a_fleet_that_cannot_work_is_reported(
    folder: Folder, old: str, new: str, line: int, key: str, what: str, fix: str, warning: bool
) -> None:
    (problem,) = found(folder, changed((old, new)))
    assert (problem.line, problem.key, problem.warning) == (line, key, warning), str(problem)
    assert what in problem.what
    assert fix in problem.fix


@pytest.mark.parametrize(
    "pairs",
    [
        [("store:", "limits: {dollars_per_hour: 1.006}\nstore:")],
        [(SKU, accelerator("memory_gb: 22, models: [Tesla T4, NVIDIA A10G]"))],
        [(SKU, f"{SKU}    labels: [ubuntu-22.04-8core]\n")],
        [GHES, (SKU, f"{SKU}    labels: [ubuntu-latest]\n")],
        [("scopes: [", "api_url: https://api.acme.ghe.com\n  scopes: [")],
        [("scopes: [", "api_url: http://127.0.0.1:1\n  scopes: [")],
        [(IMAGE, 'image: {name: "linux-or-windows-*"}')],
    ],
)
def test_a_fleet_that_works_is_accepted(folder: Folder, pairs: list[tuple[str, str]]) -> None:
    assert found(folder, changed(*pairs)) == []


def test_a_sku_that_is_too_dear_beside_another_is_a_warning(folder: Folder) -> None:
    dear = f"  dear:\n    on: [{{provider: east, instance_types: [p5.48xlarge]}}]\n    {IMAGE}\n"
    text = changed(("store:", "limits: {dollars_per_hour: 20}\nstore:")) + dear
    (problem,) = found(folder, text)
    assert (problem.key, problem.warning) == ("skus.dear", True)
    assert problem.what.startswith("gets no machine: the cheapest costs 55.04 dollars an hour")


def test_a_spot_machine_counts_at_the_operators_prices(folder: Folder) -> None:
    pairs = [
        ("store:", "limits: {dollars_per_hour: 0.5}\nstore:"),
        ("[g5.xlarge]", "[g5.xlarge], capacity: [on-demand, spot]"),
        ("[sg-0a]}", "[sg-0a], prices: {g5.xlarge: 0.9}, spot_price_factor: 0.5}"),
    ]
    assert found(folder, changed(*pairs)) == []


# What the pod has besides its image; the key below the pod, message and fix of the problem.
PODS = [
    ("node_selector: {a: b c}", "node_selector.a", "not the value of a label", "at most 63"),
    ("node_selector: {a..b/c: x}", 'node_selector."a..b/c"', "not a name", "DOMAIN/NAME"),
    ("runtime_class: a..b", "runtime_class", "not a name", "single dots"),
    (
        "tolerations: [{key: a, effect: NoRun}]",
        "tolerations[0].effect",
        "is not NoSchedule",
        "write NoSchedule",
    ),
    ("overlay: {metadata: {labels: {a: b c}}}", "overlay.metadata.labels.a", "label", "at most 63"),
    (
        "overlay: {metadata: {labels: {a: true}}}",
        "overlay.metadata.labels.a",
        "not text",
        "quotes",
    ),
    (
        "overlay: {spec: {nodeSelector: {a b: c}}}",
        'overlay.spec.nodeSelector."a b"',
        "not a name",
        "DOMAIN/NAME",
    ),
    (
        "overlay: {spec: {tolerations: [{key: a, effect: noschedule}]}}",
        "overlay.spec.tolerations[0].effect",
        "is not NoSchedule",
        "did you mean NoSchedule?",
    ),
    (
        "overlay: {spec: {tolerations: [{key: a, operator: In}]}}",
        "overlay.spec.tolerations[0].operator",
        "is not Exists",
        "write Exists",
    ),
    (
        "overlay: {spec: {tolerations: [{effect: NoSchedule}]}}",
        "overlay.spec.tolerations[0].operator",
        "must be Exists without a key",
        "operator: Exists",
    ),
    (
        "overlay: {spec: {tolerations: [{key: a, operator: Exists, value: b}]}}",
        "overlay.spec.tolerations[0].value",
        "cannot be combined",
        "remove one",
    ),
    (
        "overlay: {spec: {tolerations: [{key: a, tolerationSeconds: 3}]}}",
        "overlay.spec.tolerations[0].tolerationSeconds",
        "needs effect: NoExecute",
        "NoExecute",
    ),
]


@pytest.mark.parametrize(("keys", "key", "what", "fix"), PODS)
def test_what_kubernetes_refuses_in_a_pod_is_an_error(
    folder: Folder, keys: str, key: str, what: str, fix: str
) -> None:
    (problem,) = found(folder, pods(("pod: {image: i}", f"pod: {{image: i, {keys}}}")))
    assert problem.key == f"skus.gpu.on[0].pod.{key}"
    assert what in problem.what
    assert fix in problem.fix
