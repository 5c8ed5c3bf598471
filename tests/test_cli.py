"""The command line: the options of each command, its output, and its exit status."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from io import StringIO
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command
from typer.testing import CliRunner, Result

from autoscaler.app.preflight import load_for_service
from autoscaler.app.summary import summarise
from autoscaler.cli import commands
from autoscaler.config import load
from autoscaler.providers.registry import provider_kinds
from tests.config.fleet_file import EXAMPLE, MINIMAL, Folder, filled
from tests.config.keys import certificate, curve_key

SCALE_CONFIG = Path(__file__).parent / "config" / "data" / "scale-config.yml"
QUEUE = "https://sqs.us-east-1.amazonaws.com/123456789012/q"
DOCUMENT = Path(__file__).parents[1] / "docs" / "commands.md"


@pytest.fixture
def example(tmp_path: Path) -> Path:
    """The example with every file that it names."""
    file = Folder(tmp_path).path / "fleet.yaml"
    file.write_text(EXAMPLE.read_text())
    return file


def run(*arguments: str | Path) -> Result:
    """Run one command in this process, with a wide terminal."""
    return CliRunner(env={"COLUMNS": "200"}).invoke(commands, [str(part) for part in arguments])


def edit(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


class Given:
    """The arguments with which a command started its program."""

    def __init__(self, status: int) -> None:
        self.status = status
        self.path: Path | None = None
        self.options: dict[str, Any] = {}

    def __call__(self, path: Path | None = None, **options: Any) -> int:
        self.path, self.options = path, options
        return self.status


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str, Any], None]:
    """Replace the program that a command imports by one of the test."""

    def put(module: str, name: str, what: Any) -> None:
        stand_in = ModuleType(module)
        setattr(stand_in, name, what)
        monkeypatch.setitem(sys.modules, module, stand_in)

    return put


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


def test_check_online_asks_the_clusters_and_says_which_providers_it_did_not_ask(
    example: Path,
) -> None:
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
    [line] = result.stderr.splitlines()
    assert "providers.gpu-cluster.kubernetes.context: the cluster cannot be asked" in line
    without_pods = "\n".join(
        one for one in example.read_text().splitlines() if "gpu-cluster" not in one
    )
    without_pods = without_pods.replace("    kubernetes: {", "#").partition("  linux.rocm")[0]
    example.write_text(without_pods)
    result = run("check", "--online", example)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.endswith("us-east-1: not checked online\n")
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
        'image: {name: "gpu-runner-windows-*", owner: self}',
        "image: {name: W, owner: amazon}",
    )
    edit(example, '{name: "runner-linux-arm64-*", owner: self}', "{name: W, owner: amazon}")
    result = run("check", "--skip-files", example)
    assert result.exit_code == 0
    (line,) = (line for line in result.stderr.splitlines() if "stock image" in line)
    assert line.endswith(
        'warning: skus."windows.g4dn.xlarge".image: "W" is a stock image, without GitHub\'s runner in '
        "/opt/actions-runner (of 1 more SKU too); fix: build your own image from it with the runner "
        "and Python (docs/agent.md)"
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
    edit(example, "sqlite:///state.db", "postgresql://autoscaler@db/autoscaler")
    for result in (run("check", example), run("serve", "-c", example)):
        lines = result.stderr.splitlines()
        assert (result.exit_code, result.stdout) == (2, "")
        assert [line for line in lines if ": warning: " in line] == of_all
        assert [line.split(": ")[1] for line in lines if line not in of_all] == ["store"]
        assert lines == sorted(lines, key=lambda line: int(line.split(":")[1]))
    # A warning about a wrong key would be noise, and some need a file of the right form.
    edit(example, "os: windows", "os: window")
    (example.parent / "server.pem").write_text("")
    lines = run("check", example).stderr.splitlines()
    assert [line.partition(": ")[2].partition(":")[0] for line in lines] == [
        "warning",
        "server.tls.certificate_file",
        "store",
        'skus."windows.g4dn.xlarge".os',
    ]


def test_check_prints_what_serve_would_refuse(example: Path) -> None:
    edit(example, "sqlite:///state.db", "postgresql://autoscaler@db/autoscaler")
    edit(example, "region: us-east-1 ", "region: us-esat-1 ")
    (example.parent / "server.key").write_text("")
    result = run("check", example)
    assert result.exit_code == 2
    keys = [line.split(": ")[1] for line in result.stderr.splitlines()]
    assert keys[:3] == ["server.tls.key_file", "store", "providers.us-east-1.ec2.region"]


def test_serve_refuses_what_check_refuses_without_starting_anything(example: Path) -> None:
    (example.parent / "server.key").write_text("")
    reported = run("check", example)
    served = run("serve", "-c", example)
    assert (served.exit_code, served.stderr) == (2, reported.stderr)
    assert "server.tls.key_file" in served.stderr
    assert not (example.parent / "state.db").exists()


def test_import_writes_skus_to_stdout_and_its_report_to_stderr() -> None:
    result = run("import", SCALE_CONFIG, "--prefix", "lf.")
    assert result.exit_code == 0
    assert result.stdout.splitlines()[1] == "skus:"
    assert "  lf.canary.linux.g5.4xlarge.nvidia.gpu:" in result.stdout.splitlines()
    lines = result.stderr.splitlines()
    assert lines[0].startswith(f"{SCALE_CONFIG}:")
    assert re.fullmatch(r"\d+ keys: \d+ carried over into 10 SKUs, \d+ reported", lines[-1])


def test_import_writes_a_whole_file_that_check_accepts(tmp_path: Path) -> None:
    file = tmp_path / "fleet.yaml"
    images = ("--linux-ami", "mine-*|self", "--windows-ami", "win-*")
    result = run("import", SCALE_CONFIG, "--whole", "-o", file, *images)
    assert (result.exit_code, result.stdout) == (0, "")
    checked = run("check", "--skip-files", file)
    assert checked.exit_code == 2
    assert [" is a placeholder; fix: write " in line for line in checked.stderr.splitlines()] == (
        [True] * 5
    )
    file.write_text(filled(file.read_text()))
    checked = run("check", "--skip-files", file)
    assert checked.exit_code == 0
    lines = checked.stderr.splitlines()
    # A variant has its type's extra labels too, and the type stands first.
    winner = '"linux.g5.4xlarge.nvidia.gpu" also has the label'
    assert sum(winner in line for line in lines) == 4
    stock = [line for line in lines if "is a stock image, without GitHub's runner" in line]
    assert len(stock) == len(lines) - 4
    assert any('"win-*" is a stock image' in line for line in stock)
    assert "linux.c7i.large" in checked.stdout
    assert 'image: {name: "win-*", owner: amazon}' in file.read_text()


def test_import_does_not_overwrite_a_file(tmp_path: Path) -> None:
    file = tmp_path / "fleet.yaml"
    file.write_text("mine")
    result = run("import", SCALE_CONFIG, "--output", file)
    assert result.exit_code == 2
    assert f"{file}: cannot be written: File exists; fix: name a new file" in result.stderr
    assert file.read_text() == "mine"


def test_import_strict_writes_nothing_if_a_key_is_not_converted(tmp_path: Path) -> None:
    file = tmp_path / "fleet.yaml"
    result = run("import", SCALE_CONFIG, "--strict", "-o", file)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "reported" in result.stderr
    assert not file.exists()
    assert run("import", SCALE_CONFIG, "--strict").stdout == ""
    whole = tmp_path / "scale-config.yml"
    whole.write_text(
        "runner_types: {linux.one: {instance_type: c5.large, os: linux, is_ephemeral: true}}"
    )
    result = run("import", whole, "--strict", "-o", file)
    assert result.exit_code == 0
    assert file.read_text().startswith("# Imported")


def test_import_reports_an_unreadable_file(tmp_path: Path) -> None:
    result = run("import", tmp_path / "gone.yml")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "gone.yml: cannot be read: No such file or directory; fix: " in result.stderr
    result = run("import", SCALE_CONFIG, "--prefix", "lf")
    assert result.exit_code == 2
    assert '--prefix: "lf" is not a prefix of labels' in result.stderr


@pytest.mark.case(
    "the reader of the output has gone away",
    topic="Operators' files",
    source="Python: SIGPIPE",
)
@pytest.mark.parametrize(
    "arguments",
    [["schema"], ["check", "--skip-files", "FILE"], ["import", "SCALE"], ["version"], ["--help"]],
)
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_closed_pipe_on_stdout_is_not_an_error(
    arguments: list[str], unbuffered: str, example: Path
) -> None:
    places = {"FILE": str(example), "SCALE": str(SCALE_CONFIG)}
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "autoscaler.cli", *(places.get(a, a) for a in arguments)],
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
    )
    os.close(writer)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr


WRITING = [
    ["schema"],
    ["check", "--skip-files", "FILE"],
    ["import", "SCALE"],
    ["version"],
    ["--help"],
    ["check", "--help"],
    ["images", "check"],
]


@pytest.mark.parametrize("arguments", WRITING)
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk_on_stdout_is_reported_in_one_line(
    arguments: list[str], unbuffered: str, example: Path
) -> None:
    places = {"FILE": str(example), "SCALE": str(SCALE_CONFIG)}
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "autoscaler.cli", *(places.get(a, a) for a in arguments)],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        )
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last == "standard output: cannot be written: No space left on device"
    assert "Traceback" not in done.stderr
    assert "ignored" not in done.stderr


@pytest.mark.parametrize("arguments", WRITING)
def test_a_closed_stdout_is_reported_in_one_line(arguments: list[str], example: Path) -> None:
    places = {"FILE": str(example), "SCALE": str(SCALE_CONFIG)}
    done = without_stdout(*(places.get(a, a) for a in arguments))
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last == "standard output: cannot be written: it is closed"
    assert "Traceback" not in done.stderr


def test_a_command_that_writes_nothing_to_stdout_does_not_need_it(tmp_path: Path) -> None:
    done = without_stdout("import", str(SCALE_CONFIG), "-o", str(tmp_path / "fleet.yaml"))
    assert done.returncode == 0
    assert "keys: " in done.stderr.splitlines()[-1]


def without_stdout(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run one command in a process whose stdout is closed."""
    command = [sys.executable, "-m", "autoscaler.cli", *arguments]
    return subprocess.run(
        ["bash", "-c", 'exec "$@" >&-', "-", *command],
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )


def test_import_leaves_no_partial_file_on_a_full_disk(tmp_path: Path) -> None:
    file = tmp_path / "fleet.yaml"
    command = [
        sys.executable,
        "-B",
        "-m",
        "autoscaler.cli",
        "import",
        str(SCALE_CONFIG),
        "-o",
        str(file),
    ]
    # A limit on the size of files: what a disk does that has room for 1 KiB more.
    done = subprocess.run(
        ["bash", "-c", 'ulimit -f 1 && exec "$@"', "-", *command],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines() == [f"{file}: cannot be written: File too large"]
    assert not file.exists()


def test_import_reports_an_output_path_that_cannot_be_written(tmp_path: Path) -> None:
    result = run("import", SCALE_CONFIG, "-o", tmp_path / "gone" / "fleet.yaml")
    assert result.exit_code == 2
    assert "cannot be written: No such file or directory; fix: name a file that can be written" in (
        result.stderr
    )


def test_the_provider_option_of_import_names_the_provider_of_the_skus() -> None:
    result = run("import", SCALE_CONFIG, "--provider", "mine")
    assert result.stdout.splitlines()[1] == "skus:"
    assert "{provider: mine, " in result.stdout
    assert "{provider: us-east-1, " in run("import", SCALE_CONFIG).stdout
    result = run("import", SCALE_CONFIG, "--provider", "")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("--provider: ")


def test_import_strict_refuses_a_type_that_only_its_variants_complete(tmp_path: Path) -> None:
    file = tmp_path / "scale-config.yml"
    base = "{os: linux, disk_size: 100, variants: {big: {instance_type: c7i.large}}}"
    file.write_text(f"runner_types: {{linux.base: {base}}}")
    result = run("import", file, "--strict")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "skipped: has no instance_type" in result.stderr


def test_check_of_a_scale_config_suggests_import() -> None:
    result = run("check", SCALE_CONFIG)
    assert result.exit_code == 2
    assert "runner_types: unknown key; fix: this is a scale-config.yml: convert it with" in (
        result.stderr
    )


def test_schema_prints_json() -> None:
    found = json.loads(run("schema").stdout)
    assert found["title"] == "fleet.yaml"
    assert found["required"] == ["fleet", "github", "server", "store", "providers", "skus"]


def test_version_prints_the_installed_version() -> None:
    assert run("version").stdout == version("gpu-runner-autoscaler") + "\n"


def test_serve_passes_its_options_on(
    program: Callable[[str, str, Any], None], example: Path
) -> None:
    served = Given(status=0)
    program("autoscaler.app.running", "serve", served)
    assert run("serve", "-c", example).exit_code == 0
    assert served.path == example
    assert served.options == {
        "log_format": "json",
        "log_level": "info",
    }
    options = ["--log-format", "console", "--log-level", "debug"]
    served.status = 3
    result = run("serve", "--config", example, *options)
    assert result.exit_code == 3
    assert served.options == {
        "log_format": "console",
        "log_level": "debug",
    }


def test_serve_prints_a_configurations_errors_and_ends_with_2(
    program: Callable[[str, str, Any], None], tmp_path: Path
) -> None:
    def serve(path: Path, **_: Any) -> int:
        load(path, provider_kinds())
        return 0

    program("autoscaler.app.running", "serve", serve)
    result = run("serve", "-c", tmp_path / "gone.yaml")
    assert result.exit_code == 2
    assert "gone.yaml: cannot be read" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["serve"], "Missing option '--config' / '-c'."),
        (
            ["serve", "-c", "f", "--log-format", "xml"],
            "Invalid value for '--log-format': 'xml' is not one of 'json', 'console'.",
        ),
        (
            ["serve", "-c", "f", "--log-level", "loud"],
            "Invalid value for '--log-level': 'loud' is not one of 'debug', 'info', 'warning', 'error'.",
        ),
        (
            ["images", "driver", "--budget", "soon"],
            "Invalid value for '--budget': it must be a whole number, not 'soon'.",
        ),
        (
            ["images", "prune", "--keep", "0"],
            "Invalid value for '--keep': it must be at least 1, not '0'.",
        ),
        (["check"], "Missing argument 'FILE'."),
        (["check", "a", "b"], "Got unexpected extra argument(s) (b)"),
        (["sevre"], "No such command 'sevre'. Did you mean 'serve'?"),
    ],
)
def test_an_invalid_command_line_is_explained_and_exits_with_2(
    arguments: list[str], message: str
) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.endswith(f"Error: {message}\n")


def test_help_imports_only_what_it_needs() -> None:
    code = (
        "import sys; from autoscaler.cli import main; sys.argv = ['autoscaler', '--help']\n"
        "try: main()\n"
        "except SystemExit as end: assert end.code == 0\n"
        "ours = {name for name in sys.modules if name.partition('.')[0] == 'autoscaler'}\n"
        "commands = {'autoscaler.operator_commands', 'autoscaler.operator_commands.commands'}\n"
        "commands |= {'autoscaler.operator_commands.job_shell', 'autoscaler.operator_commands.usage'}\n"
        "commands.add('autoscaler.operator_commands.image_bake')\n"
        "commands |= {'autoscaler.images', 'autoscaler.images.commands', 'autoscaler.images.recipes'}\n"
        "commands |= {'autoscaler.images.publishing', 'autoscaler.operator_commands.queries'}\n"
        "commands |= {f'autoscaler.operator_commands.{name}' for name in ('alerts', 'arguments', 'holds')}\n"
        "commands.add('autoscaler.operator_commands.configuration')\n"
        "assert ours == {'autoscaler', 'autoscaler.cli'} | commands, ours\n"
        "assert not {'pydantic', 'yaml', 'aiohttp', 'boto3'} & set(sys.modules)\n"
    )
    # Not S603's case: nothing here comes from outside.
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "serve" in done.stdout


def flattened(group: TyperGroup, before: str = "") -> dict[str, TyperCommand]:
    """The commands of a group and of the groups in it, by what is written after `autoscaler`."""
    found: dict[str, TyperCommand] = {}
    for name, command in group.commands.items():
        if isinstance(command, TyperGroup):
            found |= flattened(command, f"{before}{name} ")
        else:
            assert isinstance(command, TyperCommand)
            found[before + name] = command
    return found


def test_every_command_and_option_is_documented() -> None:
    group = get_command(commands)
    assert isinstance(group, TyperGroup)
    parts = re.split(r"^## `autoscaler ([\w -]+)`$", DOCUMENT.read_text(), flags=re.MULTILINE)[1:]
    sections = dict(zip(parts[::2], parts[1::2], strict=True))
    assert list(sections) == list(flattened(group))
    for name, command in flattened(group).items():
        documented = set(re.findall(r"`(--?[a-z-]+)`(?=.*\|$)", sections[name], re.MULTILINE))
        options = {
            word for option in command.params for word in option.opts if word.startswith("-")
        }
        assert documented == options, name


@pytest.mark.parametrize("arguments", [[], ["images"]])
def test_no_command_of_a_list_is_cut_on_80_columns(arguments: list[str]) -> None:
    shown = CliRunner(env={"COLUMNS": "80"}).invoke(commands, [*arguments, "--help"]).stdout
    lines = shown.partition("Commands:\n")[2].splitlines()
    assert lines
    assert [line for line in lines if line.rstrip().endswith("...")] == []
