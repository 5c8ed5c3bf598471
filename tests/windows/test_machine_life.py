"""The life of a Windows machine: a Windows CPython runs the real agent, from the boot to the power-off.

The machine has no host file for the commands of Windows, the paths or the task, so it uses the agent's own.
"""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lab.windows.disk import BASE, RUNNER
from lab.windows.host import WindowsHost
from lab.windows.parts import Parts
from lab.windows.processes import processes
from tests.lab.machines.world import ServedMachine, World, running, until
from tests.lab.system.pace import yielding
from tests.powershell import mistakes
from tests.windows.conftest import AGENT, Hosts, user_data

SCALE = 6.0
"""Seconds of a machine for one of a quiet host: the runner's task has 120 of the machine to begin."""

MESSAGE_EVERY = 1.5
"""Real seconds: a listener that runs asks for a message every second."""

BEFORE = ["attest", "stage", "health-checks", "poll", "acknowledge"]
JOB = ["connect", "message", "started", "completed", "exit"]
CANCEL, RUN_TASK, POWER_OFF = (
    "shutdown /a",
    "schtasks /run /tn actions-runner",
    "shutdown /s /f /t 0",
)


@pytest.mark.case(
    "Windows has `run.cmd`, and a scheduled task starts it",
    topic="Runner and listener",
    source="GitHub: self-hosted runners",
)
async def test_a_windows_machine_runs_one_job_and_powers_off(make_host: Hosts) -> None:
    job = {"machine": "m-1", "sku": "größe-1", "access": {"repositories": ["*"], "forks": True}}
    async with running(World(yielding(SCALE), jobs=[0.5], job=job)) as world:
        host = make_host(world.scale)
        machine = world.machine("i-1", user_data(world), "windows")
        await host.boot(replace(machine, free_gb=123_456.0))
        await until(lambda: bool(world.off))
        assert world.steps("i-1", "heartbeat") == BEFORE + JOB
        assert host.commands("i-1") == [(CANCEL, 0), (RUN_TASK, 0), (POWER_OFF, 0)]
        assert world.exits == [{"reason": "exited", "detail": "the runner exited with status 0"}]
        assert world.conclusions == ["success"]
        assert "Listening for Jobs" in host.console("i-1")
        disk = host.disk("i-1")
        assert disk.path(f"{BASE}\\state\\started").exists()
        assert not disk.path(f"{BASE}\\handover\\jit").exists()
        shown = disk.path(f"{RUNNER}\\_diag\\hooks.log").read_text("utf-8")
        assert "SKU: größe-1" in shown
        assert "Disk: 123456.0 GiB free after the job" in shown
        for script in ("launch", "job-started", "job-completed"):
            assert mistakes(disk.path(f"{BASE}\\handover\\{script}.ps1").read_text("utf-8")) == []
        assert processes(disk.prefix) == set()
        assert world.wrong == []


@pytest.mark.case(
    "Windows: `shutdown` exits with 1116 when there is no shutdown to cancel",
    topic="Runner and listener",
    source="Microsoft: system error codes",
)
async def test_a_machine_that_reboots_before_its_assignment_attests_again(make_host: Hosts) -> None:
    """A reboot forgets the scheduled shutdown, so the second agent has nothing to cancel."""
    async with running(World(yielding(SCALE), jobs=[0.5], assignment=False)) as world:
        host = make_host(world.scale)
        await host.boot(world.machine("i-1", user_data(world), "windows"))
        await until(lambda: world.count("poll") > 0)
        await host.reboot("i-1")
        world.assignment = True
        await until(lambda: bool(world.off))
        assert len(set(world.served_machines["m-i-1"].nonces)) == 2
        assert host.commands("i-1") == [(CANCEL, 0), (CANCEL, 1116), (RUN_TASK, 0), (POWER_OFF, 0)]
        assert (world.conclusions, world.wrong) == (["success"], [])


async def test_a_machine_that_reboots_during_its_job_powers_off(make_host: Hosts) -> None:
    async with running(World(yielding(SCALE), jobs=[3600.0])) as world:
        host = make_host(world.scale)
        await host.boot(world.machine("i-1", user_data(world), "windows"))
        await until(lambda: world.count("started") == 1)
        await host.reboot("i-1")
        await until(lambda: bool(world.off))
        assert world.count("attest") == world.count("connect") == 1
        assert host.commands("i-1") == [(CANCEL, 0), (RUN_TASK, 0), (POWER_OFF, 0)]
        assert "a runner was started on this machine before" in host.console("i-1")


@pytest.mark.case(
    "Windows: `shutdown` exits with 1190 while the shutdown of the user data is scheduled",
    topic="Runner and listener",
    source="Microsoft: system error codes",
)
async def test_a_machine_with_invalid_settings_does_not_wait_for_the_scheduled_shutdown(
    make_host: Hosts,
) -> None:
    async with running(World(yielding(SCALE))) as world:
        host = make_host(world.scale)
        text = user_data(world).replace(world.url, "ftp://controller")
        await host.boot(world.machine("i-1", text, "windows"))
        await until(lambda: bool(world.off))
        assert host.commands("i-1") == [(POWER_OFF, 1190), (CANCEL, 0), (POWER_OFF, 0)]
        assert world.reported == []


class FrozenWorld(World):
    """A world that counts, during each release, the messages that the listener asks for."""

    def __init__(self, scale: float) -> None:
        super().__init__(scale, deletions=[422, 404])
        self.asked: list[int] = []
        self.asked_between = 0

    async def release(self, served_machine: ServedMachine, body: dict[str, Any]) -> dict[str, Any]:
        """Answer after the time in which a listener that runs asks for a message again."""
        before = self.count("message")
        if self.asked:
            self.asked_between = before - self.asked_between
        await asyncio.sleep(MESSAGE_EVERY)
        self.asked.append(self.count("message") - before)
        if len(self.asked) == 1:
            self.asked_between = self.count("message")
        return await super().release(served_machine, body)


async def test_the_listener_is_suspended_while_its_registration_is_deleted(
    make_host: Hosts,
) -> None:
    """GitHub refuses the first deletion, so the listener continues; the second one succeeds."""
    async with running(FrozenWorld(yielding(SCALE))) as world:
        assert isinstance(world, FrozenWorld)
        host = make_host(world.scale)
        await host.boot(world.machine("i-1", user_data(world), "windows"))
        await until(lambda: bool(world.off))
        assert world.asked == [0, 0]
        assert world.asked_between > 0
        assert [one["reason"] for one in world.exits] == ["unused"]
        assert world.count("started") == 0


async def test_a_registration_that_github_refuses_is_reported(make_host: Hosts) -> None:
    """The agent reads the listener's log, because Task Scheduler keeps no output."""
    async with running(World(yielding(SCALE), registered=False)) as world:
        host = make_host(world.scale)
        await host.boot(world.machine("i-1", user_data(world), "windows"))
        await until(lambda: bool(world.off))
        assert [one["reason"] for one in world.exits] == ["registration_refused"]


async def test_an_image_without_the_runners_task_is_reported(
    open_folder: Path, parts: Parts
) -> None:
    async with running(World(yielding(SCALE))) as world:
        host = WindowsHost(open_folder, AGENT, parts, world.scale, task="another")
        await host.boot(world.machine("i-1", user_data(world), "windows"))
        await until(lambda: bool(world.off))
        assert host.commands("i-1") == [(CANCEL, 0), (RUN_TASK, 1), (POWER_OFF, 0)]
        assert [one["reason"] for one in world.exits] == ["not_started"]
        await host.close()


async def test_a_machine_whose_agent_does_not_start_powers_off_at_once(make_host: Hosts) -> None:
    """The task cancels the shutdown of the user data, which would be 40 minutes away."""
    async with running(World(yielding(SCALE))) as world:
        host = make_host(world.scale, b"import sys\nsys.exit(1)\n")
        await host.boot(world.machine("i-1", user_data(world), "windows"))
        await until(lambda: bool(world.off))
        assert host.commands("i-1") == [(CANCEL, 0), (POWER_OFF, 0)]
