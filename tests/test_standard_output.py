"""Standard output that is closed or full, or whose reader has gone: one line on stderr, and status 1."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.command_line import SCALE_CONFIG
from tests.command_line import example as example

pytestmark = pytest.mark.systems


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
