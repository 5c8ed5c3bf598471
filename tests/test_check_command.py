"""`autoscaler check`: what it reports, its table, and its exit status."""

import json
import os
import re
from io import StringIO
from pathlib import Path

import pytest

from autoscaler.app.preflight import load_for_service
from autoscaler.app.summary import summarise
from tests.command_line import SCALE_CONFIG, edit, run
from tests.command_line import example as example
from tests.config.fleet_file import MINIMAL, Folder
from tests.config.keys import certificate, curve_key

QUEUE = "https://sqs.us-east-1.amazonaws.com/123456789012/q"


def test_check_accepts_the_example_and_shows_it(example: Path) -> None:
    result = run("check", example)
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    assert "fleet ci-gpu" in result.stdout
    row = next(line for line in result.stdout.splitlines() if "nvidia" in line)
    assert "linux, x64" in row
    assert "us-east-1: g5.4xlarge, g6.4xlarge (spot, on-demand)" in row
    assert row.split()[-4:] == ["2", "to", "20", "2,400"]
    assert "machines: 4,000; dollars an hour: 9,000" in result.stdout
    assert "gpu-cluster: pod runner-rocm:7.2" in result.stdout
    assert not [line for line in result.stdout.splitlines() if "not in force" in line]


@pytest.mark.case(
    "unknown keys, wrong types, missing files: all reported at once, each with file, line, key "
    "and fix",
    topic="Operators' files",
    source="YAML 1.2.2",
)
def test_check_prints_every_error_to_stderr_and_ends_with_2(example: Path) -> None:
    edit(example, "fleet: ci-gpu", "fleet: CI")
    edit(example, "    os: windows", "    os: window")
    result = run("check", example)
    assert result.exit_code == 2
    assert result.stdout == ""
    first, second = result.stderr.splitlines()
    assert first.startswith(f"{example}:1: fleet: ")
    assert second.endswith("fix: did you mean windows?")


def test_check_validates_instance_types_prices_and_quotas(example: Path) -> None:
    edit(example, "[g4dn.xlarge]", "[g4dn.huge]")
    edit(example, "    arch: arm64\n", "")
    edit(example, "region: us-east-1 ", "quotas: {Q: 1}\n      region: us-east-1 ")
    result = run("check", example)
    assert result.exit_code == 2
    lines = result.stderr.splitlines()
    assert [re.sub(r"; fix: .*", "", line).partition(": ")[2] for line in lines] == [
        'providers.us-east-1.ec2.quotas.Q: "Q" is not a quota family',
        'skus."windows.g4dn.xlarge".on[0].instance_types[0]: instance type g4dn.huge is not known',
        'skus."linux.arm64.m7g.4xlarge".on[0].instance_types[0]: '
        "m7g.4xlarge is arm64, the SKU is x64",
        'skus."linux.arm64.m7g.4xlarge".image.name: "autoscaler/linux-cpu-arm64-*" '
        "looks like an image for arm64, and arch is x64",
    ]


def test_check_reports_a_type_without_a_price_and_accepts_the_operators_price(
    example: Path,
) -> None:
    from autoscaler.providers.ec2.instance_types import instance_types

    unpriced = next(
        kind.name
        for kind in instance_types().values()
        if kind.linux_dollars_per_hour is None and kind.arch.value == "x64"
    )
    edit(example, "[g4dn.xlarge]", f"[{unpriced}]")
    result = run("check", example)
    assert result.exit_code == 2
    assert f"no price is known for instance type {unpriced}" in result.stderr
    edit(example, "region: us-east-1 ", f"prices: {{{unpriced}: 9}}\n      region: us-east-1 ")
    assert run("check", example).exit_code == 0


def test_check_reads_secret_files_unless_an_option_excludes_them(example: Path) -> None:
    (example.parent / "github-app.pem").write_text("no key")
    (example.parent / "webhook-secret").write_text("")
    result = run("check", example)
    assert result.exit_code == 2
    assert "contains no readable private key" in result.stderr
    assert "contains no secret" in result.stderr
    (example.parent / "webhook-secret").unlink()
    assert run("check", "--skip-files", example).exit_code == 0


def test_check_online_asks_the_clusters_and_aws_without_credentials(
    example: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [one for one in os.environ if one.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, os.devnull)
    before, text = example.read_text().split("providers:\n")
    kubeconfig = {
        "contexts": [{"name": "gpu", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
    }
    (example.parent / "k").write_text(json.dumps(kubeconfig))
    text = text.replace("{context: gpu,", "{kubeconfig: k, context: gpu,")
    example.write_text(f"{before}providers:\n{text}")
    result = run("check", "--online", example)
    assert (result.exit_code, result.stdout) == (2, "")
    cluster = "providers.gpu-cluster.kubernetes.context: the cluster cannot be asked"
    assert any(cluster in line for line in result.stderr.splitlines())
    without_pods = "\n".join(
        one for one in example.read_text().splitlines() if "gpu-cluster" not in one
    )
    without_pods = without_pods.replace("    kubernetes: {", "#").partition("  linux.rocm")[0]
    example.write_text(without_pods)
    result = run("check", "--online", example)
    assert (result.exit_code, result.stdout) == (2, "")
    errors = [line for line in result.stderr.splitlines() if ": warning: " not in line]
    group = f"{example}: us-east-1 (EC2 in us-east-1)"
    assert len(errors) == 1
    assert errors[0].startswith(
        f"{group}: identity: GetCallerIdentity: Unable to locate credentials; "
    )
    assert f"{example}: warning: us-east-1 (EC2 in us-east-1): quotas: " in result.stderr
    assert run("check", "--online", "--skip-files", example).exit_code == 2


@pytest.mark.parametrize("provider", ["gone", "east", "neither", "both"])
def test_warnings_about_providers_beside_errors_in_them(tmp_path: Path, provider: str) -> None:
    folder = Folder(tmp_path)
    region = "{region: us-east-1, subnets: [subnet-0a], security_groups: [sg-0a]}"
    pods = "{context: c, namespace: n}"
    text = MINIMAL.replace("{provider: east,", f"{{provider: {provider},")
    text = text.replace(
        "skus:\n",
        f"""\
  neither: {{}}
  both: {{ec2: {region}, kubernetes: {pods}}}
  queue:
    ec2: {region[:-1].replace("east", "west")}, interruption_queue: {QUEUE}}}
skus:
  pod:
    on: [{{provider: {provider}, pod: {{image: i}}}}]
    image: {{name: "runner-*"}}
    rerun_interrupted: 1
""",
    )
    (folder.path / "fleet.yaml").write_text(text)
    result = run("check", folder.path / "fleet.yaml")
    assert result.exit_code == 2, result.output
    assert "providers.neither: has neither ec2 nor kubernetes" in result.stderr
    assert (
        "warning: providers.queue.ec2.interruption_queue: is a queue in us-east-1" in result.stderr
    )


def test_check_passes_with_warnings(example: Path) -> None:
    edit(example, "    os: windows", "    labels: [linux.rocm.gpu.2]\n    os: windows")
    result = run("check", example)
    assert result.exit_code == 0
    assert ": warning: " in result.stderr
    assert "fleet ci-gpu" in result.stdout


class Terminal(StringIO):
    """A terminal of this many columns, as far as a program asks."""

    def isatty(self) -> bool:
        return True


def many_skus(example: Path) -> None:
    """Add SKUs of long names, with more labels and launch options than a line takes."""
    image = 'image: {name: "mine-*"}'
    options = "[{provider: us-east-1, instance_types: [g6.4xlarge, g5.4xlarge], capacity: [spot]}]"
    with example.open("a") as file:
        for number in range(80):
            name = f"lf.c.linux.g6.4xlarge.experimental.nvidia.gpu.{number}"
            file.write(f"  {name}: {{on: {options}, {image}, labels: [fast.{number}]}}\n")


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_the_table_of_check_fits_the_terminal_with_a_line_for_each_sku(
    example: Path, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    many_skus(example)
    monkeypatch.setenv("COLUMNS", str(columns))
    out = Terminal()
    summarise(load_for_service(example, files=False), out)
    head, heads, *rows = out.getvalue().splitlines()
    table = rows[: rows.index(next(row for row in rows if row.startswith("machines: ")))]
    assert head == "fleet ci-gpu"
    assert heads.split() == ["SKU", "labels", "on", "ready", "at", "most"]
    assert len(table) == 84
    assert max(map(len, [heads, *table])) <= columns
    assert {row.split("  ")[-1] for row in table[4:]} == {"no limit"}
    assert all(row.startswith("lf.c.linux.g6") for row in table[4:])


def test_the_table_of_check_is_not_cut_for_a_pipe(
    example: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    many_skus(example)
    monkeypatch.setenv("COLUMNS", "80")
    rows = run("check", "--skip-files", example).stdout.splitlines()
    (last,) = (
        row for row in rows if row.startswith("lf.c.linux.g6.4xlarge.") and ".gpu.79 " in row
    )
    assert re.split(r"  +", last) == [
        "lf.c.linux.g6.4xlarge.experimental.nvidia.gpu.79",
        "fast.79, linux, x64",
        "us-east-1: g6.4xlarge, g5.4xlarge (spot)",
        "0",
        "no limit",
    ]
    assert "…" not in "".join(rows)


@pytest.mark.case(
    "scale-config.yml: images without GitHub's runner in them, which PyTorch's machines download "
    "at boot",
    topic="Operators' files",
    source="GAR install-config-runner.sh",
)
def test_check_warns_of_stock_images_once_each(example: Path) -> None:
    edit(
        example,
        'image: {name: "autoscaler/windows-gpu-x64-*", owner: self}',
        "image: {name: W, owner: amazon}",
    )
    edit(example, '{name: "autoscaler/linux-cpu-arm64-*", owner: self}', "{name: W, owner: amazon}")
    result = run("check", "--skip-files", example)
    assert result.exit_code == 0
    (line,) = (line for line in result.stderr.splitlines() if "stock image" in line)
    assert line.endswith(
        'warning: skus."windows.g4dn.xlarge".image: "W" is a stock image, without GitHub\'s runner in '
        "/opt/actions-runner (of 1 more SKU too); fix: write stock: ubuntu-24.04, or build an image "
        "of your own (docs/images.md)"
    )


@pytest.mark.parametrize("relative", [False, True])
def test_check_of_a_missing_file_reports_it_and_where_a_relative_name_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, relative: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run("check", "docs/gone.yaml" if relative else tmp_path / "docs/gone.yaml")
    assert result.exit_code == 2
    [line] = result.stderr.splitlines()
    what, fix = line.split("; fix: ")
    assert what.endswith("docs/gone.yaml: cannot be read: No such file or directory")
    assert fix == (
        f"create the file, or correct the name, which is relative to {tmp_path}"
        if relative
        else "name a file to read"
    )


def test_check_prints_warnings_beside_errors(example: Path) -> None:
    (example.parent / "server.pem").write_text(
        certificate(curve_key(), "other.example", signed_by=curve_key("authority"))
    )
    (example.parent / "github-app.pem").chmod(0o644)
    edit(example, "    os: windows", "    labels: [linux.rocm.gpu.2]\n    os: windows")
    of_all = [line for line in run("check", example).stderr.splitlines() if ": warning: " in line]
    assert len(of_all) == 3
    edit(example, "[g4dn.xlarge]", "[g4dn.xlrage]")
    for result in (run("check", example), run("serve", "-c", example)):
        lines = result.stderr.splitlines()
        assert (result.exit_code, result.stdout) == (2, "")
        assert [line for line in lines if ": warning: " in line] == of_all
        assert [line.split(": ")[1] for line in lines if line not in of_all] == [
            'skus."windows.g4dn.xlarge".on[0].instance_types[0]'
        ]
        assert lines == sorted(lines, key=lambda line: int(line.split(":")[1]))
    # A warning about a wrong key would be noise, and some need a file of the right form.
    edit(example, "os: windows", "os: window")
    (example.parent / "server.pem").write_text("")
    lines = run("check", example).stderr.splitlines()
    assert [line.partition(": ")[2].partition(":")[0] for line in lines] == [
        "warning",
        "server.tls.certificate_file",
        'skus."windows.g4dn.xlarge".on[0].instance_types[0]',
        'skus."windows.g4dn.xlarge".os',
    ]


def test_check_prints_what_serve_would_refuse(example: Path) -> None:
    edit(example, "region: us-east-1 ", "region: us-esat-1 ")
    (example.parent / "server.key").write_text("")
    result = run("check", example)
    assert result.exit_code == 2
    keys = [line.split(": ")[1] for line in result.stderr.splitlines()]
    assert keys[:2] == ["server.tls.key_file", "providers.us-east-1.ec2.region"]


def test_check_of_a_scale_config_suggests_import() -> None:
    result = run("check", SCALE_CONFIG)
    assert result.exit_code == 2
    assert "runner_types: unknown key; fix: this is a scale-config.yml: convert it with" in (
        result.stderr
    )
