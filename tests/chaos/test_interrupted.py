"""After Ctrl-C, once or twice, no process is left and nothing hangs."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.chaos.bugs import ROOT
from tests.patience import PATIENCE

pytestmark = pytest.mark.systems

LONG = PATIENCE


@contextmanager
def started(*command: str) -> Iterator[subprocess.Popen[str]]:
    """Run a command in its own process group, as a shell does. Kill it at the end if it still runs."""
    arguments = [sys.executable, "-m", *command]
    with subprocess.Popen(
        arguments, cwd=ROOT, stdout=subprocess.PIPE, text=True, process_group=0
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def children(process: int, at_least: int) -> list[int]:
    """Return the children of a process, once it has this many."""
    path = Path(f"/proc/{process}/task/{process}/children")
    assert waited(lambda: len(path.read_text().split()) >= at_least)
    return [int(child) for child in path.read_text().split()]


def runs(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def waited(until: Callable[[], bool]) -> bool:
    """Wait until this holds, for LONG seconds at most. Return whether it holds."""
    last = time.monotonic() + LONG
    while time.monotonic() < last and not until():
        time.sleep(0.02)
    return until()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_hunt_leaves_no_process(number: signal.Signals) -> None:
    with started("tests.chaos.bugs", "no_dedupe") as hunting:
        # The first child applies the patch.
        assert waited(lambda: "--until-found" in _reported(children(hunting.pid, 1)))
        (player,) = children(hunting.pid, 1)
        all_of_it = [player, *children(player, at_least=2)]
        os.kill(hunting.pid, number)
        assert hunting.communicate(timeout=LONG)[0] == "interrupted\n"
        assert hunting.returncode == 130
    assert waited(lambda: not any(map(runs, all_of_it)))


def test_seeds_end_at_once_after_ctrl_c_twice() -> None:
    with started("tests.chaos", "--seeds", "2000") as playing:
        workers = children(playing.pid, at_least=3)
        os.killpg(playing.pid, signal.SIGINT)
        os.killpg(playing.pid, signal.SIGINT)
        playing.communicate(timeout=LONG)
    assert playing.returncode == 130
    assert waited(lambda: not any(map(runs, workers)))


def _reported(processes: list[int]) -> str:
    return " ".join(map(_command_line, processes))


def _command_line(process: int) -> str:
    """Return the command line of a process; empty once it has ended."""
    try:
        return Path(f"/proc/{process}/cmdline").read_text()
    except FileNotFoundError:
        return ""
