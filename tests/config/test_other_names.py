"""Keys of other tools, and values in another form, get the right key and value as their fix."""

import pytest

from autoscaler.config.settings import other_names
from autoscaler.config.settings.sections import keys, plain, section_in
from autoscaler.config.settings.shapes import Section
from autoscaler.config.structure import settings_type
from autoscaler.providers.registry import provider_kinds
from tests.config.fleet_file import MINIMAL, Folder, changed, pods

SETTINGS = settings_type(provider_kinds())

# Lines of a SKU that other tools have; the end of the key, and a part of the fix.
SKU_KEYS = [
    ("gpu: 1", "accelerator: {vendor: nvidia, count: NUMBER}"),
    ("min: 1", "idle: {min: NUMBER}"),
    ("minRunners: 1", "idle: {min: NUMBER}"),
    ("max: 3", "write max_machines"),
    ("runners_maximum_count: 3", "write max_machines"),
    ("spot: true", "capacity: [spot, on-demand] in an entry of on"),
    ("instance_type: g5.xlarge", "instance_types: [g5.xlarge]"),
    ("instanceTypes: [g5.xlarge]", "write it as skus.<name>.on[].instance_types"),
    ("flavor: g5.xlarge", "instance_types: [g5.xlarge]"),
    ("ami: ami-0123", 'image: {name: "NAME-*", owner: self}'),
    ("replicas: 2", "max_machines for the largest number"),
    ("runnerGroup: gpu", "runner_group in an entry of github.scopes"),
    ("labels_match: [a]", "write labels"),
    ("runs-on: [a]", "write labels"),
    ("disk_size: 100", "disk_gb, in GiB"),
    ("ephemeral: true", "every runner takes one job"),
    ("cpu: 4", "the instance type decides"),
    ("os_arch: amd64", "arch: x64 or arch: arm64"),
    ("name: x", "its key below skus"),
    ("timeout: 10m", "write it as skus.<name>.idle.timeout"),
    ("max_age: 1h", "write it as skus.<name>.idle.max_age"),
    ("region: us-east-1", "write it as providers.<name>.ec2.region"),
    ("nodeSelector: {a: b}", "write it as skus.<name>.on[].pod.node_selector"),
    ("zone: us-east-1a", "the subnets of the provider decide the zone"),
    ("enabled: true", "max_machines: 0"),
    ("user_data: x", "write boot_script_file"),
    ("runner_config: {}", "directly below the name of the SKU"),
    ("idle_config: []", "idle: {schedule: [{cron:"),
]


@pytest.mark.parametrize(("line", "fix"), SKU_KEYS)
def test_a_key_of_another_tool_in_a_sku_names_ours(folder: Folder, line: str, fix: str) -> None:
    problem = folder.problem(MINIMAL + f"    {line}\n")
    key = line.partition(":")[0]
    assert (problem.line, problem.key, problem.what) == (17, f"skus.gpu.{key}", "unknown key")
    assert fix in problem.fix


# The replaced text, its replacement; line, key, message and fix of the problem.
VALUES = [
    ("  gpu:\n", "  gpu:\n    arch: amd64\n", 15, "skus.gpu.arch", "not x64", "write x64"),
    ("  gpu:\n", "  gpu:\n    arch: aarch64\n", 15, "skus.gpu.arch", "not x64", "write arm64"),
    ("  gpu:\n", "  gpu:\n    os: ubuntu\n", 15, "skus.gpu.os", "not linux", "write linux"),
    (
        "org: acme",
        "org: https://github.com/acme",
        5,
        "github.scopes[0].org",
        "is a URL",
        "the name alone: org: acme",
    ),
    (
        "org: acme",
        "org: acme/repo",
        5,
        "github.scopes[0].org",
        "is a repository",
        "repo: acme/repo instead of org",
    ),
    (
        "org: acme",
        "org: acme/*",
        5,
        "github.scopes[0].org",
        "glob over repositories",
        'write org: acme, and repositories: ["acme/*"]',
    ),
    (
        "org: acme",
        "repo: git@github.com:acme/repo.git",
        5,
        "github.scopes[0].repo",
        "not OWNER/NAME",
        "write acme/repo",
    ),
    (
        "org: acme",
        "organization: acme",
        5,
        "github.scopes[0].organization",
        "unknown",
        "write org",
    ),
    ("org: acme", "enterprise: acme", 5, "github.scopes[0].enterprise", "unknown", "with org"),
    ("{id: 1,", "{id: Iv1.0a1b,", 3, "github.apps[0].id", "client ID", "write the App ID"),
    ("{id: 1,", "{id: Iv23liAbC,", 3, "github.apps[0].id", "client ID", "write the App ID"),
    ("{id: 1,", '{id: "12",', 3, "github.apps[0].id", "not a whole number", "write 12,"),
    ("{id: 1,", "{client_id: x,", 3, "github.apps[0].client_id", "unknown", "the App ID"),
    (
        "webhook_secret_file: secret",
        "webhook_secret: hunter2",
        4,
        "github.webhook_secret",
        "unknown",
        "write the secret to a file",
    ),
    (
        '{name: "runner-*"}',
        "ami-0123",
        16,
        "skus.gpu.image",
        '"ami-0123" is not a mapping',
        'write image: {name: "NAME-*"}: images are found by their names',
    ),
    (
        '{name: "runner-*"}',
        "runner-*",
        16,
        "skus.gpu.image",
        "not a mapping",
        'write image: {name: "runner-*"}',
    ),
    (
        '{name: "runner-*"}',
        "ubuntu-24.04",
        16,
        "skus.gpu.image",
        "not a mapping",
        "write image: {stock: ubuntu-24.04}",
    ),
    ("{org: acme}", "acme", 5, "github.scopes[0]", "not a mapping", "write {org: acme}"),
    ("{org: acme}", "acme/x", 5, "github.scopes[0]", "not a mapping", "write {repo: acme/x}"),
    ("  gpu:\n", "  gpu:\n    idle: 2\n", 15, "skus.gpu.idle", "mapping", "write idle: {min: 2}"),
    ("  gpu:\n", "  gpu:\n    idle: 5m\n", 15, "skus.gpu.idle", "map", "write idle: {timeout: 5m}"),
    (
        '{name: "runner-*"}',
        "{name: ami-0123}",
        16,
        "skus.gpu.image.name",
        "is the id of an image",
        "describe-images --image-ids ami-0123",
    ),
    (
        "[g5.xlarge]",
        "[g5.xlarge], capacity: spot",
        15,
        "skus.gpu.on[0].capacity",
        "not a list",
        "write it in brackets: [spot]",
    ),
    (
        "[subnet-0a]",
        '"subnet-0a, subnet-0b"',
        12,
        "providers.east.ec2.subnets",
        "not a list",
        "[subnet-0a, subnet-0b]",
    ),
    (
        "[{id: 1, private_key_file: app.pem}]",
        "{id: 1, private_key_file: app.pem}",
        3,
        "github.apps",
        "not a list",
        "write - before its first key",
    ),
    (
        "region: us-east-1",
        "region: us-east-1a",
        12,
        "providers.east.ec2.region",
        "is a zone",
        "write us-east-1:",
    ),
    ("sqlite:///state.db", "sqlite://state.db", 9, "store", "SQLite", "write sqlite:///state.db:"),
    ("sqlite:///state.db", "state.db", 9, "store", "SQLite", "write sqlite:///state.db:"),
    ("sqlite:///state.db", "/srv/s.db", 9, "store", "SQLite", "write sqlite:////srv/s.db:"),
    ("sqlite:///state.db", "postgres://a@b/c", 9, "store", "postgres:", "write postgresql:"),
    (
        "http://127.0.0.1:8443",
        "fleet.internal:8443",
        8,
        "server.public_url",
        "no URL",
        "write https://fleet.internal:8443",
    ),
    (
        "store:",
        "limits: {dollars_per_hour: $20}\nstore:",
        9,
        "limits.dollars_per_hour",
        "not a number",
        "write 20,",
    ),
    ("  gpu:\n", "  gpu:\n    disk_gb: 150GB\n", 15, "skus.gpu.disk_gb", "whole", "write 150,"),
]


@pytest.mark.parametrize(("old", "new", "line", "key", "what", "fix"), VALUES)
def test_a_value_in_another_form_gets_the_right_form(
    folder: Folder, old: str, new: str, line: int, key: str, what: str, fix: str
) -> None:
    problem = folder.problem(changed((old, new)))
    assert (problem.line, problem.key) == (line, key), str(problem)
    assert what in problem.what
    assert fix in problem.fix


# What replaces `image: i` in a pod; the key below the pod, message and fix of the problem.
PODS = [
    (
        "image: i, resources: {limits: {cpu: '1'}, requests: {cpu: '1'}}",
        "resources",
        "has limits and requests",
        'resources: {cpu: "4", memory: 16Gi}',
    ),
    ("image: i, resources: {memory: 16GB}", "resources.memory", "not a quantity", "write 16Gi"),
    ("image: i, container_mode: dind", "container_mode", "not a mapping", "{dind: {...}}"),
    ("image: i, env: [{name: A}]", "env", "unknown key", "in overlay"),
    ("image: i, gpu: 1", "gpu", "unknown key", "accelerator: {vendor: nvidia"),
    (
        "image: i, tolerations: [{key: a, operator: Exists}]",
        "tolerations[0].operator",
        "unknown key",
        "without value it is Exists",
    ),
]


@pytest.mark.parametrize(("pod", "key", "what", "fix"), PODS)
def test_a_pod_in_another_form_gets_the_right_form(
    folder: Folder, pod: str, key: str, what: str, fix: str
) -> None:
    problem = folder.problem(pods(("pod: {image: i}", f"pod: {{{pod}}}")))
    assert problem.key == f"skus.gpu.on[0].pod.{key}"
    assert what in problem.what
    assert fix in problem.fix


def sections(of: type[Section]) -> dict[type[Section], None]:
    """A section and all below it."""
    found: dict[type[Section], None] = {of: None}
    for field in keys(of).values():
        inner = section_in(field.annotation)
        found |= sections(inner) if inner is not None else {}
    return found


@pytest.mark.parametrize("section", sorted(sections(SETTINGS), key=str), ids=str)
def test_no_other_name_is_a_key_of_its_section_and_each_key_that_it_means_exists(
    section: type[Section],
) -> None:
    own = {plain(key) for key in keys(section)}
    for name, other in section.others.items():
        assert name == plain(name)
        assert name not in own, "nearest finds it"
        assert not other.means or other.means in keys(section)


@pytest.mark.parametrize("word", sorted(set(other_names.WORDS.values())))
def test_each_word_that_another_one_stands_for_is_accepted(word: str) -> None:
    assert f'"{word}"' in str(SETTINGS.model_json_schema()).replace("'", '"')
