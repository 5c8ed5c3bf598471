"""Programs of the cluster end with their parent, however it ends, and no other program ends with them."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from lab.kubernetes.processes import ProgramFailedError, RunningProgram
from tests.patience import PATIENCE

PARENT = """
import sys
from pathlib import Path
from lab.kubernetes.processes import RunningProgram

program = RunningProgram(["sleep", "1000"], Path(sys.argv[1]))
program.start()
print("started", flush=True)
sys.stdin.read()
"""


def sleeps(parent: int) -> list[psutil.Process]:
    found = psutil.Process(parent).children(recursive=True)
    return [one for one in found if one.name() == "sleep"]


def wait_for_sleep(parent: int) -> psutil.Process:
    return wait_for_sleeps(parent, 1)[0]


def wait_for_sleeps(parent: int, count: int) -> list[psutil.Process]:
    while len(found := sleeps(parent)) < count:
        assert psutil.pid_exists(parent)
        time.sleep(0.02)
    return found


def test_a_killed_program_is_gone_and_another_one_stays(tmp_path: Path) -> None:
    first = RunningProgram(["sleep", "1000"], tmp_path / "first.log")
    second = RunningProgram(["sleep", "1000"], tmp_path / "second.log")
    first.start()
    sleeping = wait_for_sleep(os.getpid())
    second.start()
    wait_for_sleeps(os.getpid(), 2)
    first.kill()
    first.kill()
    sleeping.wait(PATIENCE)
    assert len(sleeps(os.getpid())) == 1
    second.check()
    second.kill()


def test_the_error_of_a_program_that_ended_has_its_output(tmp_path: Path) -> None:
    program = RunningProgram(["sh", "-c", "echo no such flag >&2; exit 3"], tmp_path / "log")
    program.start()
    with pytest.raises(ProgramFailedError, match="no such flag"):
        check_for_ever(program)
    program.kill()


def check_for_ever(program: RunningProgram) -> None:
    while True:
        program.check()
        time.sleep(0.02)


def test_a_program_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path / "log")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "started\n"
        program = wait_for_sleep(parent.pid)
        parent.send_signal(signal.SIGKILL)
        program.wait(PATIENCE)
    assert not program.is_running()
