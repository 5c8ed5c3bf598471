"""The crowd's machines behave like the agent, and it runs hundreds of them."""

import asyncio
from collections.abc import Coroutine, Generator
from dataclasses import replace
from typing import Any, TypeVar

import pytest

from autoscaler.agent import limits
from lab.machines import crowd_machine
from lab.machines.crowd import CrowdHost
from lab.machines.settings import controller_settings, lab_runner
from tests.lab.machines.conftest import UserData
from tests.lab.machines.world import World, running, until


def test_the_crowds_timers_are_those_of_the_agent() -> None:
    shared = [name for name in vars(crowd_machine) if name.isupper() and hasattr(limits, name)]
    assert len(shared) == 9
    for name in shared:
        assert getattr(crowd_machine, name) == getattr(limits, name)


@pytest.mark.systems
async def test_the_crowd_runs_hundreds_of_machines(user_data: UserData) -> None:
    async with running(World(scale=20, jobs=[0.05] * 300)) as world:
        host = CrowdHost(world.scale)
        text = user_data(world)
        for number in range(300):
            await host.boot(world.machine(f"i-{number}", text))
        await until(lambda: len(world.off) == 300)
        await host.close()
        assert len(set(world.off)) == 300
        assert world.count("completed") == 300
        assert world.wrong == []


async def test_user_data_without_an_agent_powers_off_by_the_scheduled_shutdown() -> None:
    async with running(World(scale=6000)) as world:
        host = CrowdHost(world.scale)
        await host.boot(world.machine("i-1", "#!/bin/bash\n{}\n{not json\n"))
        await until(lambda: bool(world.off))
        await host.close()
        assert world.reported == []


async def test_a_machine_whose_check_fails_reports_it_with_its_runners_version(
    user_data: UserData,
) -> None:
    async with running(World(scale=20)) as world:
        host = CrowdHost(world.scale)
        host.failing_checks["linux.gpu"] = ("gpu_count", "0 GPUs of 1")
        machine = world.machine("i-1", user_data(world))
        await host.boot(replace(machine, sku="linux.gpu", runner_version="2.330.0"))
        await until(lambda: bool(world.off))
        await host.close()
    version = {"name": "runner_version", "ok": True, "detail": "2.330.0"}
    failed = {"name": "gpu_count", "ok": False, "detail": "0 GPUs of 1"}
    assert world.wrong == [f"health checks {{'passed': False, 'checks': [{version}, {failed}]}}"]
    assert world.count("poll") == 0


async def test_a_machine_with_an_old_runner_reports_that_github_refuses_it(
    user_data: UserData,
) -> None:
    async with running(World(scale=20, forever={"message": 403})) as world:
        host = CrowdHost(world.scale)
        await host.boot(world.machine("i-1", user_data(world)))
        await until(lambda: bool(world.off))
        await host.close()
    assert [one["reason"] for one in world.exits] == ["version_deprecated"]


Result = TypeVar("Result")


class Deaf(asyncio.Task[Result]):
    """A task that ignores a cancellation, like one that is just returning."""

    def cancel(self, msg: object = None) -> bool:
        del msg
        return not self.done()


async def test_a_machine_that_is_killed_while_it_ends_does_not_power_off() -> None:
    lives: list[asyncio.Future[Any]] = []

    def deaf(
        loop: asyncio.AbstractEventLoop,
        life: Generator[Any, None, Result] | Coroutine[Any, Any, Result],
        /,
    ) -> asyncio.Future[Result]:
        task = Deaf(life, loop=loop)
        lives.append(task)
        return task

    world = World(scale=6000)
    host = CrowdHost(world.scale)
    asyncio.get_running_loop().set_task_factory(deaf)
    try:
        await host.boot(world.machine("i-1", "#!/bin/bash\n{}\n{not json\n"))
    finally:
        asyncio.get_running_loop().set_task_factory(None)
    await host.close()
    (life,) = lives
    assert life.exception() is None
    assert world.off == []


@pytest.mark.parametrize("text", ["", "#!/bin/bash\n", '{"controller": 1, "provider": "p"}'])
def test_user_data_without_a_controller_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no controller"):
        controller_settings(text)


@pytest.mark.parametrize("text", ["", "?", "bm8=", "/w==", "e30=", "W10="])
def test_a_text_that_is_no_lab_jit_configuration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a lab JIT"):
        lab_runner(text)
