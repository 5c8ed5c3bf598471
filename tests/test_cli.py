"""The command line: the options of each command, its output, and its exit status."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from autoscaler.app.following import ReplicaOptions
from autoscaler.cli import commands
from autoscaler.config import load
from autoscaler.providers.registry import provider_kinds
from tests.command_line import example as example
from tests.command_line import run

DOCUMENT = Path(__file__).parents[1] / "docs" / "commands.md"


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


def test_serve_refuses_what_check_refuses_without_starting_anything(example: Path) -> None:
    (example.parent / "server.key").write_text("")
    reported = run("check", example)
    served = run("serve", "-c", example)
    assert (served.exit_code, served.stderr) == (2, reported.stderr)
    assert "server.tls.key_file" in served.stderr
    assert not (example.parent / "state.db").exists()


def test_schema_prints_json() -> None:
    found = json.loads(run("schema").stdout)
    assert found["title"] == "fleet.yaml"
    assert found["required"] == ["fleet", "github", "server", "store", "providers", "skus"]


def test_version_prints_the_installed_version() -> None:
    assert run("version").stdout == version("gpu-runner-autoscaler") + "\n"


def test_the_version_is_also_an_option() -> None:
    assert run("--version").stdout == run("version").stdout


@pytest.mark.parametrize("command", [[], ["status"], ["images"], ["images", "bake"]])
def test_every_command_has_a_short_option_for_its_help(command: list[str]) -> None:
    short, long = run(*command, "-h"), run(*command, "--help")
    assert (short.exit_code, short.stdout) == (0, long.stdout)
    assert "Usage: " in short.stdout


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
        "replica": ReplicaOptions(),
    }
    options = ["--log-format", "console", "--log-level", "debug"]
    options += ["--replica-url", "https://10.0.0.7:8443", "--intake-only"]
    served.status = 3
    result = run("serve", "--config", example, *options)
    assert result.exit_code == 3
    assert served.options == {
        "log_format": "console",
        "log_level": "debug",
        "replica": ReplicaOptions("https://10.0.0.7:8443", intake_only=True),
    }


def test_intake_only_needs_a_store_that_replicas_share(example: Path) -> None:
    refused = run("serve", "-c", example, "--intake-only")
    assert refused.exit_code == 2
    assert (
        "store: is a SQLite file, which a process with --intake-only cannot share" in refused.stderr
    )
    assert not (example.parent / "state.db").exists()


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
        (["check", "a", "b"], "Got unexpected extra argument(s) (b)"),
        (["servee"], "No such command 'servee'. Did you mean 'serve'?"),
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
        "commands |= {'autoscaler.operator_commands.usage'}\n"
        "commands |= {'autoscaler.images', 'autoscaler.images.commands', 'autoscaler.images.recipes'}\n"
        "commands.add('autoscaler.operator_commands.queries')\n"
        "commands |= {'autoscaler.setup', 'autoscaler.setup.command'}\n"
        "images = 'autoscaler.operator_commands.images'\n"
        "commands |= {images} | {f'{images}.{name}' for name in ('bake', 'commands')}\n"
        "commands |= {f'autoscaler.operator_commands.{name}' for name in ('alerts', 'fleet_file', 'options')}\n"
        "commands |= {'autoscaler.operator_commands.cost', 'autoscaler.operator_commands.store'}\n"
        "commands |= {'autoscaler.doctor', 'autoscaler.doctor.command'}\n"
        "host = 'autoscaler.operator_commands.host'\n"
        "commands |= {host, f'{host}.commands'}\n"
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
        documented = set(re.findall(r"`(--?[a-z0-9-]+)`(?=.*\|$)", sections[name], re.MULTILINE))
        options = {
            word for option in command.params for word in option.opts if word.startswith("-")
        }
        assert documented == options, name


@pytest.mark.parametrize("arguments", [[], ["images"], ["store"]])
def test_no_command_of_a_list_is_cut_on_80_columns(arguments: list[str]) -> None:
    """A process of its own, because the test runner's terminal is wider than its columns say."""
    done = subprocess.run(
        [sys.executable, "-m", "autoscaler.cli", *arguments, "--help"],
        env={**os.environ, "COLUMNS": "80"},
        capture_output=True,
        text=True,
        check=True,
    )
    lines = done.stdout.partition("Commands:\n")[2].splitlines()
    assert lines
    assert [line for line in lines if line.rstrip().endswith("...")] == []
