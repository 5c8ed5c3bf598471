"""One wrong value in a SKU is one problem, with its line, key and fix."""

import pytest

from tests.config.fleet_file import MINIMAL, Folder, changed

# The lines added to a SKU; the key below `skus.gpu`, message and fix of the problem.
KEYS = [
    ("os: macos", "os", "not linux or windows", "linux or windows"),
    ("os: windows\narch: arm64", "arch", "no Windows", "x64"),
    ("disk_gb: 0", "disk_gb", "below 1", "at least 1"),
    ("volume: {iops: 2999}", "volume.iops", "below 3000", "at least 3000"),
    ("volume: {iops: 80001}", "volume.iops", "above 80000", "at most 80000"),
    ("volume: {throughput: 124}", "volume.throughput", "below 125", "at least 125"),
    ("volume: {iops: 9000, throughput: 2001}", "volume.throughput", "above 2000", "at most 2000"),
    ("volume: {initialization_rate: 99}", "volume.initialization_rate", "below 100", "100"),
    ("volume: {initialization_rate: 301}", "volume.initialization_rate", "above 300", "300"),
    ("volume: {iop: 3000}", "volume.iop", "unknown key", "did you mean iops?"),
    ("volume: {kms_key: alias}", "volume.kms_key", "not a KMS key", "alias/NAME"),
    (
        "disk_gb: 20\nvolume: {iops: 10001}",
        "volume.iops",
        "10001 IOPS are too many for a disk of 20 GiB",
        "write disk_gb: 21 or more",
    ),
    (
        "volume: {throughput: 751}",
        "volume.throughput",
        "751 MiB/s are too much for 3000 IOPS",
        "write iops: 3004 or more",
    ),
    (
        "volume: {kms_key: 'arn:aws:kms:eu-west-1:123456789012:alias/ci'}",
        "volume.kms_key",
        "is a key in eu-west-1, and a launch option is in us-east-1",
        "write the ARN of a key in us-east-1",
    ),
    ('tags: {"aws:team": x}', 'tags."aws:team"', "which AWS reserves", "another prefix"),
    ('tags: {"AWS:team": x}', 'tags."AWS:team"', "which AWS reserves", "another prefix"),
    ("tags: {Name: x}", "tags.Name", "a tag that the controller sets", "another key"),
    ('tags: {"autoscaler:sku": x}', 'tags."autoscaler:sku"', "the controller sets", "another key"),
    ("tags: {team: 7}", "tags.team", "7 is not text", "quotes"),
    (f"tags: {{{'k' * 129}: x}}", f'tags."{"k" * 55}..."', "longer than 128", "shorten"),
    (f"tags: {{team: {'v' * 257}}}", "tags.team", "longer than 256", "shorten"),
    (f"tags: {{{', '.join(f'k{n}: v' for n in range(46))}}}", "tags", "has 46 tags", "keep 45"),
    ("boot_script_file: none.sh", "boot_script_file", "does not exist", "create the file"),
    ("labels: [linux]", "labels[0]", "default label of all runners", "unlabelled"),
    ("labels: [a b]", "labels[0]", "is not a label", "runs-on"),
    ("labels: [GPU]", "labels[0]", "is repeated", "remove"),
    ("unlabelled: 1", "unlabelled", "not true or false", "true or"),
    ("lifetime: 1 day", "lifetime", "not a duration", "write 1d"),
    ("lifetime: 2w", "lifetime", "not a duration", "write 14d"),
    ("lifetime: 90", "lifetime", "90 has no unit", "write 90s or 90m"),
    ("idle: {timeout: 10}", "idle.timeout", "10 has no unit", "write 10s or 10m"),
    ('idle: {timeout: "10"}', "idle.timeout", "10 has no unit", "write 10s or 10m"),
    ("idle: {timeout: 1.5}", "idle.timeout", "1.5 is not text", "quotes"),
    ("max_machine: 3", "max_machine", "unknown key", "did you mean max_machines?"),
    ("label: [a]", "label", "unknown key", "did you mean labels?"),
    ('image: {nme: "a"}', "image", "is repeated", "remove"),
    ("lifetime:", "lifetime", "has no value", "remove the key"),
    ("lifetime: 0s", "lifetime", "is 0", "longer than 0s"),
    ("lifetime: 9999d", "lifetime", "longer than 365d", "shorter"),
    ("deadlines: {boot: soon}", "deadlines.boot", "not a duration", "90s"),
    ("driver: maybe", "driver", "preinstalled, install or none", "write"),
    (
        "accelerator: {vendor: nvidia, count: 1}\ndriver: none",
        "driver",
        "contradicts accelerator",
        "remove one of them",
    ),
    ("accelerator: {vendor: intel, count: 1}", "accelerator.vendor", "nvidia or amd", "write"),
    (
        "accelerator: {vendor: nvidia, count: 1, models: [gfx942]}",
        "accelerator.models[0]",
        '"gfx942" is not a model of nvidia',
        "NVIDIA A10G",
    ),
    (
        "accelerator: {vendor: amd, count: 1, models: [gfx90a, MI300X]}",
        "accelerator.models[1]",
        '"MI300X" is not a model of amd',
        "gfx942",
    ),
    ("accelerator: {vendor: amd, count: 1, models: []}", "accelerator.models", "is empty", "one"),
    (
        "accelerator: {vendor: nvidia, count: 1, models: [a\tb]}",
        "accelerator.models[0]",
        "model",
        "gfx",
    ),
    (
        "accelerator: {vendor: nvidia, count: 1, driver_version: 580.95}",
        "accelerator.driver_version",
        "580.95 is not text",
        "quotes",
    ),
    (
        "accelerator: {vendor: nvidia, count: 1, driver_version: r580}",
        "accelerator.driver_version",
        "not a driver's version",
        '"580"',
    ),
    (
        "os: windows\naccelerator: {vendor: amd, count: 1}",
        "accelerator.vendor",
        "need Linux",
        "remove accelerator",
    ),
    ("access: {repositories: []}", "access.repositories", "is empty", "one"),
    ("access: {repositories: [widgets]}", "access.repositories[0]", "not a glob", "OWNER/NAME"),
    ('access: {repositories: ["a/[b"]}', "access.repositories[0]", "bracket", "OWNER/NAME"),
    ("access: {branches: []}", "access.branches", "is empty", "one"),
    ("access: {branches: [refs/heads/main]}", "access.branches[0]", "is a ref", "release/*"),
    ('access: {branches: ["a b"]}', "access.branches[0]", "characters", "release/*"),
    ('access: {branches: ["v[1"]}', "access.branches[0]", "bracket", "release/*"),
    ('access: {repositories: ["a/b c"]}', "access.repositories[0]", "characters", "OWNER/NAME"),
    ("fair_share: 0.5", "fair_share", "max_machines is missing", "add max_machines"),
    ("max_machines: 4\nfair_share: 0", "fair_share", "not above 0", "number above"),
    ("max_machines: 4\nfair_share: 50%", "fair_share", "not a number", "a number"),
    ("max_machines: 4\nfair_share: 1.5", "fair_share", "1", "1"),
    ("max_machines: 1\nidle: {min: 2}", "idle.min", "more than max_machines", "lower"),
    (
        'idle: {schedule: [{cron: "0 7 * *", min: 1}]}',
        "idle.schedule[0].cron",
        "five fields",
        "weekday",
    ),
    (
        'idle: {schedule: [{cron: "61 7 * * *", min: 1}]}',
        "idle.schedule[0].cron",
        "Bad minute",
        "five",
    ),
    (
        'idle: {schedule: [{cron: "0 0 30 2 *", min: 1}]}',
        "idle.schedule[0].cron",
        "Bad day",
        "five",
    ),
    (
        'idle: {schedule: [{cron: "0 0 1 1 *", min: 1, timezone: Europe/Berln}]}',
        "idle.schedule[0].timezone",
        "not a time zone",
        "write Europe/Berlin",
    ),
    (
        'idle: {schedule: [{cron: "0 0 1 1 *", min: 1, timezone: ../etc/passwd}]}',
        "idle.schedule[0].timezone",
        "not a time zone",
        "write",
    ),
    (
        'idle: {schedule: [{cron: "0 0 1 1 *", min: 1, timezone: America}]}',
        "idle.schedule[0].timezone",
        "not a time zone",
        "write",
    ),
    (
        'idle: {schedule: [{cron: "0 0 1 1 *"}]}',
        "idle.schedule[0].min",
        "is missing",
        "add the key min (How many",
    ),
]

# The replaced text, its replacement; line, key, message and fix of the problem.
VALUES = [
    (
        "[sg-0a]}",
        "[sg-0a]}\n  also:\n    ec2: {region: us-east-1, subnets: [subnet-1], security_groups: [sg-1]}",
        14,
        "providers.also.ec2.region",
        'provider "east" (line 11)',
        "list the subnets of both",
    ),
    ("  gpu:\n", "  Linux:\n", 14, "skus.Linux", "default label of all runners", "another name"),
    (
        "  gpu:\n",
        "  no-rerun:\n",
        14,
        "skus.no-rerun",
        "default label of all runners",
        "another name",
    ),
    ("  gpu:\n", "  g pu:\n", 14, 'skus."g pu"', "not a name", "letters"),
    (
        "on: [{provider: east, instance_types: [g5.xlarge]}]",
        "on: []",
        15,
        "skus.gpu.on",
        "is empty",
        "at least one",
    ),
    (
        "{provider: east",
        "{provider: eats",
        15,
        "skus.gpu.on[0].provider",
        "not a provider",
        "did you mean east?",
    ),
    (
        "{provider: east",
        "{provider: azure",
        15,
        "skus.gpu.on[0].provider",
        "not a provider",
        "write east, or add",
    ),
    (
        ", instance_types: [g5.xlarge]",
        "",
        15,
        "skus.gpu.on[0].instance_types",
        "requires it",
        "add",
    ),
    (
        "[g5.xlarge]",
        "null",
        15,
        "skus.gpu.on[0].instance_types",
        "has no value",
        "write one",
    ),
    (
        "[g5.xlarge]",
        "[g5]",
        15,
        "skus.gpu.on[0].instance_types[0]",
        "not an instance type",
        "g5.4x",
    ),
    (
        "[g5.xlarge]",
        "[g5.xlarge, g5.xlarge]",
        15,
        "skus.gpu.on[0].instance_types[1]",
        "is repeated",
        "remove",
    ),
    (
        "[g5.xlarge]",
        "[g5.xlarge], price: 1",
        15,
        "skus.gpu.on[0].price",
        "not supported by",
        "remove",
    ),
    (
        "[g5.xlarge]",
        "[g5.xlarge], capacity: [spto]",
        15,
        "skus.gpu.on[0].capacity[0]",
        "spot, on-demand or capacity-block",
        "did you mean spot?",
    ),
    ("[g5.xlarge]", "[g5.xlarge], capacity: []", 15, "skus.gpu.on[0].capacity", "is empty", "one"),
    ('    image: {name: "runner-*"}\n', "", 14, "skus.gpu.image", "is missing", "add image"),
    (
        'image: {name: "runner-*"}',
        'image: {name: "a{b"}',
        16,
        "skus.gpu.image.name",
        "not an image name",
        "gpu-*",
    ),
    (
        'image: {name: "runner-*"}',
        "image: {name: a, owner: bob}",
        16,
        "skus.gpu.image.owner",
        "image owner",
        "self",
    ),
    (
        'image: {name: "runner-*"}',
        'image: {name: "runner-*"}\n  gpu:\n    on: []',
        17,
        "skus.gpu",
        "is repeated; the first one is on line 14",
        "rename",
    ),
]


@pytest.mark.parametrize(("lines", "key", "what", "fix"), KEYS)
def test_one_wrong_key_of_a_sku_is_one_problem(
    folder: Folder, lines: str, key: str, what: str, fix: str
) -> None:
    added = "".join(f"    {line}\n" for line in lines.splitlines())
    problem = folder.problem(MINIMAL + added)
    assert problem.key == f"skus.gpu.{key}", str(problem)
    assert problem.line == 16 + len(lines.splitlines())
    assert what in problem.what
    assert fix in problem.fix


@pytest.mark.case(
    "a SKU with the name of a label that every runner has",
    topic="Operators' files",
    source="GitHub: labels",
)
@pytest.mark.parametrize(("old", "new", "line", "key", "what", "fix"), VALUES)
def test_one_wrong_value_of_a_sku_is_one_problem(
    folder: Folder, old: str, new: str, line: int, key: str, what: str, fix: str
) -> None:
    problem = folder.problem(changed((old, new)))
    assert (problem.line, problem.key) == (line, key), str(problem)
    assert what in problem.what
    assert fix in problem.fix
