"""A program that does not stop when it should is killed with all that it started."""

import subprocess

from lab.ending import end
from tests.patience import PATIENCE


def start(script: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        ["sh", "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )


def test_a_program_ends_when_its_input_is_closed() -> None:
    process = start("read line; exit 7")
    end(process, PATIENCE)
    assert process.returncode == 7


def test_a_program_that_goes_on_is_killed_with_its_children() -> None:
    process = start("sleep 1000 & sleep 1000")
    end(process, 0.1)
    assert process.returncode == -9
    # Its child held the pipe open, until it was killed, too.
    assert process.stdout is not None
    assert process.stdout.closed
