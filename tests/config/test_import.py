"""scale-config.yml becomes SKUs, and every key that does not is reported with its line."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from autoscaler.app.translation import health_check_parameters
from autoscaler.cli import _hardware_of
from autoscaler.config import ConfigurationError, Settings, load
from autoscaler.config.importing.conversion import Imported, import_scale_config, report_lines
from autoscaler.config.importing.runner_keys import ImportOptions
from autoscaler.config.importing.runner_types import prefixed
from autoscaler.config.reading.document import parse
from autoscaler.model.catalogue import Architecture, OperatingSystem
from autoscaler.providers.registry import provider_kinds
from tests.config.fleet_file import Folder, filled, on_ec2, unserved

ROOT = Path(__file__).parents[2]
FIXTURE = Path(__file__).parent / "data" / "scale-config.yml"
PYTORCH = Path(os.environ.get("SCALE_CONFIGS", ROOT / "../shared/data/pytorch"))
FILES = [FIXTURE, *sorted(PYTORCH.glob("scale-config*.yml"))]
"""Also PyTorch's two files, if they exist on this host."""

IMAGES = {OperatingSystem.LINUX: "mine-*|self", OperatingSystem.WINDOWS: "win-*|amazon"}
TYPE = 'runner_types."{}".{}'


def imported(file: Path, prefix: str = "", *, whole: bool = True) -> tuple[str, Imported]:
    """Return the output and the report of a file."""
    options = ImportOptions(prefix, "east", IMAGES)
    return import_scale_config(file, options, _hardware_of, whole=whole)


def settings_of(text: str, folder: Path) -> Settings:
    """Return the settings that the text becomes. Any problem of `check` fails the test."""
    file = folder / "fleet.yaml"
    file.write_text(filled(text))
    configuration = load(file, provider_kinds(), files=False)
    assert unserved(configuration, files=False) == ()
    return configuration.settings


def of_text(tmp_path: Path, text: str, prefix: str = "") -> Imported:
    """Return the report of a file with this text."""
    file = tmp_path / "scale-config.yml"
    file.write_text(text)
    return imported(file, prefix)[1]


def reported(account: Imported) -> dict[str, str]:
    return {one.key: one.why for one in account.reported}


def runner_type(**keys: Any) -> str:
    """Return a file with one valid type, with keys changed or added."""
    lines = {"instance_type": "c5.large", "os": "linux", "is_ephemeral": "true", "disk_size": 15}
    body = "".join(f"    {key}: {value}\n" for key, value in (lines | keys).items())
    return f"runner_types:\n  linux.one:\n{body}"


@pytest.mark.case(
    "scale-config.yml: every type and variant becomes a SKU",
    topic="Operators' files",
    source="pytorch/test-infra scale-config.yml",
)
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
@pytest.mark.parametrize("prefix", ["", "lf.", "c.", "lf.c."])
def test_every_type_and_variant_becomes_a_sku_that_check_accepts(
    file: Path, prefix: str, tmp_path: Path
) -> None:
    text, account = imported(file, prefix)
    found = settings_of(text, tmp_path).skus
    types = parse(file.read_bytes(), file.name).content["runner_types"]
    wanted = [
        prefixed(label, prefix, variant)
        for label, keys in types.items()
        for variant in ("", *((keys or {}).get("variants") or ()))
    ]
    unfit = {f"{prefix}{label}" for label in ("linux.unknown", "macos.m2", "linux.nothing")}
    assert list(found) == [label for label in wanted if label not in unfit]
    assert all(label.startswith(prefix) for label in found)
    assert all(sku.image is not None for sku in found.values())
    assert len({*account.carried, *reported(account)}) == len(account.carried) + len(
        account.reported
    )


@pytest.mark.case(
    "scale-config.yml: the prefix (`lf.`, `c.`, `lf.c.`) stays first, before the variant",
    topic="Operators' files",
    source="pytorch/test-infra scale-config.yml",
)
@pytest.mark.parametrize(
    ("label", "prefix", "variant", "expected"),
    [
        ("linux.large", "", "", "linux.large"),
        ("linux.large", "", "am2", "am2.linux.large"),
        ("linux.large", "lf.", "am2", "lf.am2.linux.large"),
        ("linux.large", "lf.c.", "am2", "lf.c.am2.linux.large"),
        ("linux.large", "c.", "", "c.linux.large"),
        ("lf.linux.large", "", "am2", "lf.am2.linux.large"),
        ("lf.c.linux.large", "", "am2", "lf.c.am2.linux.large"),
        ("lf.linux.large", "lf.", "", "lf.linux.large"),
        ("lf.linux.large", "lf.", "am2", "lf.am2.linux.large"),
    ],
)
def test_the_fleets_prefix_stays_first(
    label: str, prefix: str, variant: str, expected: str
) -> None:
    assert prefixed(label, prefix, variant) == expected


@pytest.mark.case(
    "scale-config.yml: `ami`, `max_available`, `min_available`, `labels`, `disk_size`",
    topic="Operators' files",
    source="pytorch/test-infra scale-config.yml",
)
def test_the_importer_translates_each_key(tmp_path: Path) -> None:
    found = settings_of(imported(FIXTURE)[0], tmp_path).skus
    gpu = found["linux.g5.4xlarge.nvidia.gpu"]
    assert (gpu.os, gpu.arch, gpu.disk_gb) == (OperatingSystem.LINUX, Architecture.X64, 150)
    assert (gpu.max_machines, gpu.idle.minimum, gpu.labels) == (2400, 2, ("a10g", "fast"))
    assert gpu.launch_options[0].provider == "east"
    assert on_ec2(gpu).instance_types == ("g5.4xlarge",)
    assert gpu.image is not None
    assert (gpu.image.name, gpu.image.owner) == ("acme-gpu-2026*", "123456789012")
    arm = found["linux.arm64.m7g.4xlarge"]
    assert arm.arch is Architecture.ARM64
    assert arm.image is not None
    assert (arm.image.name, arm.image.owner) == (
        "al2023-ami-2023.5.202*-kernel-6.1-arm64",
        "amazon",
    )
    assert (arm.max_machines, arm.idle.minimum) == (None, 0)
    windows = found["windows.4xlarge.nonephemeral"]
    assert windows.os is OperatingSystem.WINDOWS
    assert windows.image is not None
    assert (windows.image.name, windows.image.owner) == ("win-*", "amazon")


@pytest.mark.case(
    "scale-config.yml: `ami_experiment`",
    topic="Operators' files",
    source="pytorch/test-infra scale-config.yml",
)
def test_an_ami_experiment_becomes_a_canary_with_its_share(tmp_path: Path) -> None:
    text, account = imported(FIXTURE)
    image = settings_of(text, tmp_path).skus["linux.g5.4xlarge.nvidia.gpu"].image
    assert image is not None
    assert image.canary is not None
    assert image.canary.model_dump() == {
        "name": "acme-gpu-next-*",
        "owner": "123456789012",
        "percent": 10.0,
    }
    for key in ("ami", "percentage"):
        key = TYPE.format("linux.g5.4xlarge.nvidia.gpu", f"ami_experiment.{key}")
        assert key in account.carried


@pytest.mark.case(
    "scale-config.yml: `variants` override and inherit",
    topic="Operators' files",
    source="pytorch/test-infra scale-config.yml",
)
def test_a_variant_overrides_and_inherits(tmp_path: Path) -> None:
    found = settings_of(imported(FIXTURE, "lf.")[0], tmp_path).skus
    canary = found["lf.canary.linux.g5.4xlarge.nvidia.gpu"]
    assert canary.image is not None
    assert canary.image.name == "acme-gpu-2027*"
    assert (canary.disk_gb, canary.max_machines, canary.idle.minimum) == (150, 2400, 2)
    big = found["lf.big.linux.g5.4xlarge.nvidia.gpu"]
    assert on_ec2(big).instance_types == ("g5.12xlarge",)
    assert (big.max_machines, big.idle.minimum) == (1, 0)
    assert "lf.am2.linux.c5.large" in found


@pytest.mark.case(
    "scale-config.yml: `is_ephemeral: false`, and a name with `nonephemeral` that says `true`",
    topic="Operators' files",
    source="pytorch/test-infra scale-config.yml",
)
def test_every_key_without_an_equivalent_is_reported() -> None:
    why = reported(imported(FIXTURE)[1])
    odd, gpu = "linux.odd", "linux.g5.4xlarge.nvidia.gpu"
    arm, win = "linux.arm64.m7g.4xlarge", "windows.4xlarge.nonephemeral"
    expected = {
        "notes": "unknown key",
        'runner_types."linux.nothing"': "not a runner type",
        TYPE.format(gpu, "min_available"): "2 is more than max_available, 1",
        TYPE.format(arm, "is_ephemeral"): "this fleet starts a new machine for each job",
        TYPE.format(arm, "max_available"): "0 means no limit",
        TYPE.format(arm, "min_available"): "0 means the default of PyTorch's fleet",
        TYPE.format(win, "is_ephemeral"): "true contradicts the name",
        TYPE.format("linux.unknown", "instance_type"): "instance type z9.mega is not known",
        TYPE.format("linux.unknown", "os"): "skipped with its type",
        TYPE.format("linux.unknown", "disk_size"): "skipped with its type",
        TYPE.format("linux.unknown", "is_ephemeral"): "skipped with its type",
        TYPE.format("macos.m2", "os"): '"macos" is not linux or windows',
        TYPE.format("macos.m2", "instance_type"): "skipped with its type",
        TYPE.format("macos.m2", "disk_size"): "skipped with its type",
        TYPE.format("macos.m2", "is_ephemeral"): "skipped with its type",
        TYPE.format(odd, "disk_size"): '"big" is not a whole number: skipped',
        TYPE.format(odd, "is_ephemeral"): '"yes" is not true or false',
        TYPE.format(odd, "min_available"): "9 is more than max_available, 4",
        TYPE.format(odd, "labels[0]"): '"linux" is a default label of all runners',
        TYPE.format(odd, "labels[2]"): "is already a label of the SKU",
        TYPE.format(odd, "labels[3]"): "is already a label of the SKU",
        TYPE.format(
            odd, "ami_experiment.ami"
        ): "skipped, because the experiment's other key is wrong",
        TYPE.format(odd, "ami_experiment.percentage"): "200 is above 100",
        TYPE.format(odd, "ami_experiment.until"): "unknown key",
        TYPE.format(odd, "spot"): "unknown key",
        TYPE.format(odd, "variants"): "has no variants",
    }
    assert why.keys() == expected.keys()
    assert {key: expected[key] in why[key] for key in why} == dict.fromkeys(why, True)


@pytest.mark.case(
    "a SKU with the name of a label that every runner has",
    topic="Operators' files",
    source="GitHub: labels",
)
def test_a_type_with_the_name_of_every_fleets_label_is_reported(tmp_path: Path) -> None:
    account = of_text(
        tmp_path, runner_type() + runner_type().partition("\n")[2].replace("linux.one", "Linux")
    )
    assert list(account.skus) == ["linux.one"]
    why = '"Linux" is a default label of all runners'
    rows = [one.why for one in account.reported]
    assert rows == [f"skipped: {why}", *["skipped with its type"] * 4]


def test_each_reason_is_reported_once(tmp_path: Path) -> None:
    """The other keys of a type add nothing to it."""
    bad = runner_type(instance_type="z9.mega")
    account = of_text(tmp_path, runner_type() + bad.partition("\n")[2].replace("one", "two"))
    assert sum("z9.mega" in one.why for one in account.reported) == 1
    text = runner_type(
        instance_type="z9.mega", variants="{am2: {instance_type: z9.giga, os: linux}}"
    )
    with pytest.raises(ConfigurationError) as caught:
        of_text(tmp_path, text)
    found = [one.what for one in caught.value.problems]
    assert [sum(name in what for what in found) for name in ("z9.mega", "z9.giga")] == [1, 1]


def test_a_label_that_exists_already_is_reported(tmp_path: Path) -> None:
    other = runner_type().partition("\n")[2]
    text = runner_type() + other.replace("linux.one", "Linux.One")
    account = of_text(tmp_path, text)
    assert list(account.skus) == ["linux.one"]
    why = 'Linux.One is already the label of runner_types."linux.one"'
    rows = [one.why for one in account.reported]
    assert rows == [f"skipped: {why}", *["skipped with its type"] * 4]
    text = runner_type(variants="{am2: {disk_size: 20}}") + other.replace("linux", "am2.linux")
    account = of_text(tmp_path, text)
    assert account.skus["am2.linux.one"]["disk_gb"] == 20
    assert len(account.reported) == 5


def test_a_type_that_only_its_variants_complete_is_reported_once(
    tmp_path: Path,
) -> None:
    base = "{os: linux, disk_size: 100, variants: {big: {instance_type: c7i.large}}}"
    text = f"runner_types:\n  linux.base: {base}\n"
    account = of_text(tmp_path, text)
    assert list(account.skus) == ["big.linux.base"]
    (found,) = account.reported
    assert (found.line, found.key) == (2, 'runner_types."linux.base"')
    assert found.why == "skipped: has no instance_type"
    assert len(account.carried) == 3


@pytest.mark.parametrize(
    ("experiment", "key", "error", "partner"),
    [
        ("{ami: mine-*, percentage: 200}", "percentage", "200 is above 100", "ami"),
        ('{ami: "{", percentage: 20}', "ami", "is not an image name", "percentage"),
    ],
)
def test_a_key_of_an_experiment_is_reported_with_its_own_error(
    tmp_path: Path, experiment: str, key: str, error: str, partner: str
) -> None:
    account = of_text(tmp_path, runner_type(ami_experiment=experiment))
    why = reported(account)
    assert error in why[TYPE.format("linux.one", f"ami_experiment.{key}")]
    said = why[TYPE.format("linux.one", f"ami_experiment.{partner}")]
    assert said.startswith("skipped, because the experiment's other key is wrong: every launch")


def test_counts_of_one_are_in_the_singular(tmp_path: Path) -> None:
    file = tmp_path / "scale-config.yml"
    file.write_text("runner_types: {linux.one: {instance_type: c5.large, os: linux}}")
    lines = list(report_lines(imported(file)[1], "f"))
    assert lines == [
        "no ami for 1 SKU: image mine-*|self",
        "2 keys: 2 carried over into 1 SKU, 0 reported",
    ]


def test_the_error_for_an_empty_file_suggests_pytorchs_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        of_text(tmp_path, "")
    (problem,) = caught.value.problems
    assert problem.fix.startswith("use PyTorch's scale-config.yml")


def test_a_whole_file_has_caps_and_lists_what_to_replace(tmp_path: Path) -> None:
    text, _ = imported(FIXTURE, whole=True)
    found = settings_of(text, tmp_path)
    assert (found.limits.machines, found.limits.dollars_per_hour) == (10, 20)
    words = " ".join(line.removeprefix("# ") for line in text.splitlines()[:3])
    for placeholder in ("YOUR-", "region", "autoscaler check", "name for the fleet", "limits"):
        assert placeholder in words


def test_a_prefix_changes_names_and_not_extra_labels(tmp_path: Path) -> None:
    account = of_text(tmp_path, runner_type(labels="[fast]"), prefix="lf.")
    assert {name: sku["labels"] for name, sku in account.skus.items()} == {"lf.linux.one": ["fast"]}


@pytest.mark.case(
    "scale-config.yml: types that cannot be launched, repeated labels and keys",
    topic="Operators' files",
    source="pytorch/test-infra scale-config.yml",
)
def test_a_duplicate_key_is_reported_and_the_first_one_is_used(tmp_path: Path) -> None:
    text = runner_type() + "    disk_size: 99\n"
    account = of_text(tmp_path, text)
    assert account.skus["linux.one"]["disk_gb"] == 15
    (found,) = account.reported
    assert (found.line, found.key) == (7, TYPE.format("linux.one", "disk_size"))
    assert "is repeated" in found.why


@pytest.mark.case(
    "scale-config.yml: types that cannot be launched, repeated labels and keys",
    topic="Operators' files",
    source="pytorch/test-infra scale-config.yml",
)
@pytest.mark.parametrize(
    ("keys", "key", "why"),
    [
        ({"ami": "a{b"}, "ami", "not an image name"),
        ({"ami": "a|bob"}, "ami", "not an image owner"),
        ({"ami": "[a]"}, "ami", "a list is not text"),
        ({"ami": ""}, "ami", "has no value"),
        ({"instance_type": "5"}, "instance_type", "5 is not text"),
        ({"instance_type": "m7g.large", "os": "windows"}, "instance_type", "no Windows"),
        ({"os": "{a: b}"}, "os", "linux or windows"),
    ],
)
def test_the_importer_skips_a_type_that_cannot_be_launched(
    tmp_path: Path, keys: dict[str, str], key: str, why: str
) -> None:
    text = runner_type(**keys) + runner_type().partition("\n")[2].replace("linux.one", "linux.two")
    account = of_text(tmp_path, text)
    assert list(account.skus) == ["linux.two"]
    assert why in reported(account)[TYPE.format("linux.one", key)]
    assert all('"linux.one"' in key for key in reported(account))


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "is empty"),
        ("runner_types: [", "no comma or closing bracket"),
        ("a: 1", "has no runner types"),
        ("runner_types: []", "has no runner types"),
        ("- a", "has no runner types"),
        ("runner_types: {a: {os: linux}}", "has no instance_type"),
        ("runner_types: {a b: {os: linux, instance_type: c5.large}}", "is not a name"),
    ],
)
def test_a_file_that_gives_no_sku_is_an_error(tmp_path: Path, text: str, what: str) -> None:
    with pytest.raises(ConfigurationError, match=what):
        of_text(tmp_path, text)


def test_a_file_with_too_many_skus_is_refused(tmp_path: Path) -> None:
    # Each variant has a few bytes in this file, and becomes a whole SKU.
    variants = "{" + ", ".join(f"v{number}: {{}}" for number in range(9000)) + "}"
    with pytest.raises(ConfigurationError, match="results in more than 1024 KiB"):
        of_text(tmp_path, runner_type(variants=variants))


@pytest.mark.parametrize(
    ("options", "file"),
    [
        (ImportOptions("lf", "east", IMAGES), "--prefix"),
        (ImportOptions("l f.", "east", IMAGES), "--prefix"),
        (ImportOptions("", "a b", IMAGES), "--provider"),
        (ImportOptions("", "", IMAGES), "--provider"),
        (ImportOptions("", "east", {OperatingSystem.LINUX: "{"}), "--linux-ami"),
        (ImportOptions("", "east", {OperatingSystem.WINDOWS: "a|b"}), "--windows-ami"),
    ],
)
def test_invalid_options_of_import_are_refused(options: ImportOptions, file: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        import_scale_config(FIXTURE, options, _hardware_of)
    (problem,) = caught.value.problems
    assert problem.file == file
    assert problem.fix


def test_the_report_is_a_table_ordered_by_line_with_a_total() -> None:
    _, account = imported(FIXTURE)
    lines = list(report_lines(account, "scale-config.yml"))
    places = [line.split()[0] for line in lines if line.startswith("scale-config.yml:")]
    numbers = [int(place.partition(":")[2]) for place in places]
    assert numbers == sorted(numbers)
    assert len(numbers) == len(account.reported)
    columns = {line.index("runner_types") for line in lines if "runner_types" in line}
    assert len(columns) == 1
    assert [line for line in lines if line.startswith("no ami")] == [
        "no ami for 3 SKUs: image mine-*|self",
        "no ami for 1 SKU: image win-*|amazon",
    ]
    total = len(account.carried) + len(account.reported)
    assert lines[-1] == (
        f"{total} keys: {len(account.carried)} carried over into 10 SKUs, "
        f"{len(account.reported)} reported"
    )


def test_a_narrow_terminal_gets_wrapped_lines_with_the_whole_report() -> None:
    _, account = imported(FIXTURE)
    place = "/somewhere/scale-config.yml"
    lines = list(report_lines(account, place, 80))
    assert max(map(len, lines)) <= 80
    words = " ".join(" ".join(lines).split())
    for one in account.reported:
        assert one.key in words
        assert " ".join(one.why.split()) in words
    assert lines[-1] == list(report_lines(account, place))[-1]


def test_a_wide_terminal_gets_one_line_for_each_entry() -> None:
    _, account = imported(FIXTURE)
    assert len(list(report_lines(account, "f", 1000))) == len(list(report_lines(account, "f")))


@pytest.mark.case(
    "scale-config.yml: images without GitHub's runner in them, which PyTorch's machines download "
    "at boot",
    topic="Operators' files",
    source="GAR install-config-runner.sh",
)
def test_every_image_of_the_file_is_named_with_what_it_must_hold() -> None:
    """PyTorch's fleet downloads the runner at boot. Here the image must contain it."""
    _, account = imported(FIXTURE)
    lines = [line for line in report_lines(account, "f") if line.startswith("image ")]
    holds = (
        "must contain GitHub's runner, which PyTorch's fleet downloads at boot: see docs/agent.md"
    )
    stock = (
        "is a stock image, without GitHub's runner in /opt/actions-runner: "
        "write stock: ubuntu-24.04, or build an image of your own (docs/images.md)"
    )
    assert len(lines) == len(account.taken)
    assert f"image al2023-ami-2023.5.202*-kernel-6.1-arm64|amazon of 1 SKU {stock}" in lines
    assert f"image amzn2-ami-hvm-2.0.20240306.2-x86_64-ebs|amazon of 1 SKU {stock}" in lines
    assert f"image acme-gpu-next-*|123456789012 of 3 SKUs {holds}" in lines
    assert not [line for line in lines if "mine-*" in line]


PLACEHOLDERS = [
    ("github.apps[0].id", '"YOUR-APP-ID"'),
    ("github.scopes[0].org", '"YOUR-ORGANIZATION"'),
    ("server.public_url", '"https://YOUR-HOST:8443"'),
    ("providers.east.ec2.subnets[0]", '"YOUR-SUBNET-ID"'),
    ("providers.east.ec2.security_groups[0]", '"YOUR-SECURITY-GROUP-ID"'),
]


@pytest.mark.case(
    "scale-config.yml: a complete fleet.yaml with placeholders that were not replaced",
    topic="Operators' files",
    source="pytorch/test-infra scale-config.yml",
)
def test_each_unreplaced_placeholder_is_one_error(folder: Folder) -> None:
    text, _ = imported(FIXTURE)
    problems = [one for one in folder.refused(text) if "a placeholder" in one.what]
    assert [(one.key, one.what) for one in problems] == [
        (key, f"{value} is a placeholder") for key, value in PLACEHOLDERS
    ]
    assert all(one.fix.startswith("write ") for one in problems)
    keys = [one.key for one in folder.refused(text)]
    assert len(keys) == len(set(keys))
    assert folder.load(filled(text)).settings.github.apps[0].id == 1234


def test_the_skus_can_be_inserted_into_another_file(tmp_path: Path) -> None:
    part, _ = imported(FIXTURE, whole=False)
    whole, _ = imported(FIXTURE)
    assert part.startswith('# Imported from "scale-config.yml".\nskus:\n')
    assert whole.endswith(part)
    expected: Mapping[str, Any] = settings_of(whole, tmp_path).skus
    assert settings_of(whole.removesuffix(part) + part, tmp_path).skus == expected


def test_machines_of_imported_gpu_types_must_have_their_gpus(tmp_path: Path) -> None:
    """PyTorch's format has no key for them."""
    lines = {
        "linux.g5": ("g5.12xlarge", "linux"),
        "linux.p4d": ("p4d.24xlarge", "linux"),
        "windows.g4dn": ("g4dn.xlarge", "windows"),
        "linux.c5": ("c5.large", "linux"),
    }
    text = "runner_types:\n" + "".join(
        f"  {label}: {{instance_type: {name}, os: {os}, is_ephemeral: true, disk_size: 200}}\n"
        for label, (name, os) in lines.items()
    )
    (tmp_path / "scale-config.yml").write_text(text)
    skus, _ = imported(tmp_path / "scale-config.yml")
    Folder(tmp_path)
    (tmp_path / "fleet.yaml").write_text(filled(skus))
    configuration = load(tmp_path / "fleet.yaml", provider_kinds(), files=False)
    found = health_check_parameters(configuration, provider_kinds())
    counts = {
        name: [one["count"] for one in checks.accelerators.values()]
        for name, checks in found.items()
    }
    assert counts == {"linux.g5": [4], "linux.p4d": [8], "windows.g4dn": [1], "linux.c5": []}
    assert {one["vendor"] for checks in found.values() for one in checks.accelerators.values()} == {
        "nvidia"
    }
