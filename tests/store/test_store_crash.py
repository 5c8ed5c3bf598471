"""SIGKILL during deliveries: acknowledged deliveries are stored, and no commit is stored in part."""

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from autoscaler.controller.ports.store import Delivery
from autoscaler.store.sqlite.store import SqliteStore

ROOT = Path(__file__).parents[2]


async def kill_after(path: Path, lines: int) -> list[str]:
    """Kill a child process after it printed so many lines. Return what it printed."""
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.store.accepting_child", str(path)),
        stdout=subprocess.PIPE,
        cwd=ROOT,
    )
    assert child.stdout is not None
    said = [await child.stdout.readline() for _ in range(lines)]
    child.send_signal(signal.SIGKILL)
    rest = await child.stdout.read()
    assert await child.wait() == -signal.SIGKILL
    return (b"".join(said) + rest).decode().split("\n")[:-1]


@pytest.mark.parametrize("lines", [1, 97, 1500])
async def test_acknowledged_writes_survive_a_kill(path: Path, lines: int) -> None:
    said = await kill_after(path, lines)
    accepted = [line[2:] for line in said if line.startswith("a ")]
    committed = {line[2:] for line in said if line.startswith("c ")}
    assert len(said) >= lines

    store = await SqliteStore.open(path)
    state = await store.load(0.0)
    waiting = {delivery.id for delivery in state.unapplied}
    jobs = {str(job.id) for job in state.jobs}
    assert committed <= jobs
    assert not committed & waiting
    # A commit is stored whole or not at all, and a delivery waits until its commit is stored.
    assert jobs == {runner.name[1:] for runner in state.runners}
    assert not jobs & waiting
    assert set(accepted) <= jobs | waiting
    for number in jobs:
        assert len(await store.history("job", number)) == 1
    for number in accepted:
        body = b"%06d" % int(number) * 500
        assert not await store.accept(Delivery(number, "workflow_job", 1.0, body))
    await store.close()
