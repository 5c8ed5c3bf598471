"""The machines of these tests end, also those that power themselves off at the same moment."""

import asyncio
import os

import pytest

from tests.ami.machines import first_process

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_the_first_process_is_that_below_two_others() -> None:
    nested = ["bash", "-c", "bash -c 'sleep 1000 & echo $!; wait' & wait"]
    outer = await asyncio.create_subprocess_exec(*nested, stdout=asyncio.subprocess.PIPE)
    assert outer.stdout is not None
    innermost = int(await outer.stdout.readline())
    try:
        assert first_process(outer.pid) == innermost
    finally:
        os.kill(innermost, 9)
        await outer.wait()


async def test_a_machine_that_has_just_ended_has_no_first_process() -> None:
    """machine.sh still removes the machine's control group then."""
    script = await asyncio.create_subprocess_exec("sleep", "1000")
    try:
        with pytest.raises(ProcessLookupError):
            first_process(script.pid)
    finally:
        script.kill()
        await script.wait()
    with pytest.raises(ProcessLookupError):
        first_process(script.pid)
