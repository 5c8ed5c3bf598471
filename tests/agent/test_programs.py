"""Programs of the image are bounded in their time and output, with all their children."""

import itertools
import os
import select
from pathlib import Path
from types import ModuleType

import pytest

from tests.patience import PATIENCE


def write(folder: Path, script: str) -> str:
    program = folder / "program"
    program.write_text(f"#!/bin/sh\n{script}")
    program.chmod(0o755)
    return str(program)


def test_only_the_end_of_a_long_output_is_kept(agent: ModuleType, tmp_path: Path) -> None:
    program = write(tmp_path, f"head -c {5 * agent.MOST_OUTPUT} /dev/zero\necho the end\nexit 3\n")
    found = agent.run_program([program], 600.0)
    assert found.status == 3
    assert found.text == "\0" * (agent.MOST_OUTPUT - len("the end\n")) + "the end\n"


def test_a_program_that_closes_its_output_is_awaited(agent: ModuleType, tmp_path: Path) -> None:
    program = write(tmp_path, "echo said\nexec >&- 2>&-\nsleep 0.2\nexit 4\n")
    assert agent.run_program([program], 600.0) == (4, "said\n")


@pytest.mark.parametrize("last", ["wait\n", "exit 0\n"], ids=["with its child", "before its child"])
def test_a_program_that_is_ended_leaves_no_child(
    agent: ModuleType, tmp_path: Path, last: str
) -> None:
    """The child keeps the pipe open as long as it lives."""
    pipe, started = tmp_path / "pipe", tmp_path / "started"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    program = write(tmp_path, f'(echo >"{started}"; exec sleep 1000) 9>"{pipe}" &\n{last}')
    # On a busy host, a program may be ended before its child has started.
    for tries in itertools.count():
        with pytest.raises(agent.NoUsableAnswer, match="did not answer in time"):
            agent.run_program([program], 0.1 * 2**tries)
        if started.exists():
            break
    assert select.select([reader], [], [], PATIENCE)[0]
    assert os.read(reader, 1) == b""  # comes when the child's end of the pipe is closed
    os.close(reader)
