"""Both kinds of hosts of lab machines behave alike for a controller and GitHub."""

import asyncio
import math

import pytest

from autoscaler.model.catalogue import OperatingSystem
from tests.lab.machines.conftest import Hosts, UserData
from tests.lab.machines.world import World, running, until
from tests.lab.system.pace import yielding

BEFORE = ["attest", "stage", "health-checks", "poll", "acknowledge"]


async def test_a_machine_runs_one_job_and_powers_off(make_host: Hosts, user_data: UserData) -> None:
    async with running(World(scale=50, jobs=[0.2])) as world:
        host = make_host(world.scale)
        await host.boot(world.machine("i-1", user_data(world)))
        await until(lambda: bool(world.off))
        job = ["connect", "message", "started", "completed", "exit"]
        assert world.steps("i-1", "heartbeat") == BEFORE + job
        assert world.off == ["i-1"]
        assert world.wrong == []


async def test_a_host_runs_many_machines_at_once(make_host: Hosts, user_data: UserData) -> None:
    names = [f"i-{number}" for number in range(6)]
    async with running(World(scale=50, jobs=[0.1] * 6)) as world:
        host = make_host(world.scale)
        for name in names:
            await host.boot(world.machine(name, user_data(world)))
        await until(lambda: len(world.off) == 6)
        assert sorted(world.off) == names
        assert world.count("completed") == 6
        assert world.wrong == []


@pytest.mark.case(
    "Windows has `run.cmd`, and starts it in another way",
    topic="Runner and listener",
    source="GitHub: self-hosted runners",
)
async def test_a_windows_machine_does_the_same_steps(make_host: Hosts, user_data: UserData) -> None:
    async with running(World(scale=50, jobs=[0.1])) as world:
        host = make_host(world.scale)
        text = user_data(world, OperatingSystem.WINDOWS)
        await host.boot(world.machine("i-1", text, "windows"))
        await until(lambda: bool(world.off))
        assert world.count("completed") == 1
        assert world.wrong == []


async def test_a_machine_tries_again_after_refusals(make_host: Hosts, user_data: UserData) -> None:
    async with running(World(scale=150, jobs=[0.1])) as world:
        world.answers.update(
            {
                "attest": [503, 429, 401],
                "health-checks": [503],
                "poll": [401, 503, 409],
                "acknowledge": [503, 503],
            }
        )
        host = make_host(world.scale)
        await host.boot(world.machine("i-1", user_data(world)))
        await until(lambda: bool(world.off))
        assert world.count("acknowledge") == 3
        assert world.count("completed") == 1
        assert world.tokens >= 5, "every attestation has a fresh proof"
        assert len(set(world.served_machines["m-i-1"].nonces)) == 1
        assert world.wrong == []


@pytest.mark.parametrize(
    ("step", "status"), [("attest", 403), ("attest", 426), ("poll", 410), ("acknowledge", 410)]
)
async def test_a_machine_powers_off_when_the_controller_answers_ended(
    make_host: Hosts, user_data: UserData, step: str, status: int
) -> None:
    async with running(World(scale=50)) as world:
        world.forever[step] = status
        host = make_host(world.scale)
        await host.boot(world.machine("i-1", user_data(world)))
        await until(lambda: bool(world.off))
        assert world.count(step) == 1
        assert world.count("connect") == 0
        assert world.count("exit") == 0


async def test_the_agent_powers_off_after_15_minutes_without_a_controller_that_knows_it(
    make_host: Hosts, user_data: UserData
) -> None:
    async with running(World(scale=yielding(1000))) as world:
        world.forever["attest"] = 503
        host = make_host(world.scale)
        await host.boot(world.machine("i-1", user_data(world)))
        await until(lambda: bool(world.off))
        assert world.count("attest") > 3
        assert world.count("stage") == 0


async def test_the_agent_sends_heartbeats_while_ready(
    make_host: Hosts, user_data: UserData
) -> None:
    async with running(World(scale=yielding(400), assignment=False)) as world:
        host = make_host(world.scale)
        await host.boot(world.machine("i-1", user_data(world)))
        await until(lambda: world.count("heartbeat") >= 3)
        assert world.count("poll") >= 2
        assert world.off == []
        assert world.wrong == []


async def test_a_machine_releases_a_registration_without_a_job(
    make_host: Hosts, user_data: UserData
) -> None:
    world = World(scale=yielding(200), allowed=[False, True, True], deletions=[422, 404])
    async with running(world):
        host = make_host(world.scale)
        await host.boot(world.machine("i-1", user_data(world)))
        await until(lambda: bool(world.off))
        assert world.count("may-release") >= 3
        assert world.count("release") >= 2
        assert world.deletions == []
        assert world.count("completed") == 0
        assert world.count("exit") == 1


async def test_a_machine_with_a_job_does_not_release_its_registration(
    make_host: Hosts, user_data: UserData
) -> None:
    scale = yielding(600)
    async with running(World(scale=scale, jobs=[480.0 / scale])) as world:
        host = make_host(world.scale)
        await host.boot(world.machine("i-1", user_data(world)))
        await until(lambda: bool(world.off))
        assert world.count("completed") == 1
        assert world.count("may-release") == 0
        assert world.count("renew") >= 2


async def test_an_endless_job_runs_until_github_ends_it(
    make_host: Hosts, user_data: UserData
) -> None:
    async with running(World(scale=600, jobs=[math.inf])) as world:
        world.answers["renew"] = [204, 200]
        host = make_host(world.scale)
        await host.boot(world.machine("i-1", user_data(world)))
        await until(lambda: bool(world.off))
        assert world.count("renew") == 2
        assert world.conclusions == ["success"]


async def test_a_machine_powers_off_when_github_refuses_the_registration(
    make_host: Hosts, user_data: UserData
) -> None:
    async with running(World(scale=50, registered=False)) as world:
        host = make_host(world.scale)
        await host.boot(world.machine("i-1", user_data(world)))
        await until(lambda: bool(world.off))
        assert world.steps("i-1", "heartbeat") == [*BEFORE, "connect", "exit"]


async def test_a_machine_repeats_its_exit_report_until_it_is_answered(
    make_host: Hosts, user_data: UserData
) -> None:
    async with running(World(scale=50, jobs=[0.0])) as world:
        world.answers["exit"] = [503, 503]
        host = make_host(world.scale)
        await host.boot(world.machine("i-1", user_data(world)))
        await until(lambda: bool(world.off))
        assert world.count("exit") == 3


async def test_a_machine_powers_off_although_its_exit_report_gets_no_answer(
    make_host: Hosts, user_data: UserData
) -> None:
    async with running(World(scale=yielding(1500), jobs=[0.0])) as world:
        world.forever["exit"] = 503
        host = make_host(world.scale)
        await host.boot(world.machine("i-1", user_data(world)))
        await until(lambda: bool(world.off))
        assert world.count("exit") > 3


async def test_a_killed_machine_ends_all_its_processes_at_once(
    make_host: Hosts, user_data: UserData
) -> None:
    async with running(World(scale=50, jobs=[60])) as world:
        host = make_host(world.scale)
        await host.boot(world.machine("i-1", user_data(world)))
        await until(lambda: world.count("started") == 1)
        await host.kill("i-1")
        await host.kill("i-unknown")
        reported = len(world.reported)
        await asyncio.sleep(0.2)
        await host.close()
        await host.close()
        assert len(world.reported) == reported
        assert world.off == []


@pytest.mark.case(
    "the operating system of an interrupted spot machine stops the agent: the runner reports a "
    "failure, the agent reports `stopped`, and the job is re-run",
    topic="EC2's machines",
    source="actions/runner#1792; EC2: how termination works",
)
async def test_a_shutdown_under_a_job_fails_the_job_and_reports_the_stop(
    make_host: Hosts, user_data: UserData
) -> None:
    """As in a spot interruption: runner and agent report before the machine terminates."""
    async with running(World(scale=5, jobs=[3600])) as world:
        host = make_host(world.scale)
        await host.boot(world.machine("i-1", user_data(world)))
        await until(lambda: world.count("started") == 1)
        await host.shut_down("i-1")
        await host.shut_down("i-unknown")
        reported = len(world.reported)
        assert world.steps("i-1", "heartbeat")[-2:] == ["completed", "exit"]
        assert (world.conclusions, [said["reason"] for said in world.exits]) == (
            ["failure"],
            ["stopped"],
        )
        await host.close()
        assert len(world.reported) == reported
        assert world.off == []
        assert world.wrong == []


async def test_a_shutdown_of_a_machine_without_a_registration_reports_nothing(
    make_host: Hosts, user_data: UserData
) -> None:
    async with running(World(scale=5, assignment=False)) as world:
        host = make_host(world.scale)
        await host.boot(world.machine("i-1", user_data(world)))
        await until(lambda: world.count("poll") == 1)
        await host.shut_down("i-1")
        assert (world.exits, world.off) == ([], [])


async def test_closing_the_host_ends_machines_in_every_stage(
    make_host: Hosts, user_data: UserData
) -> None:
    async with running(World(scale=50, assignment=False)) as world:
        host = make_host(world.scale)
        await host.boot(world.machine("i-1", user_data(world)))
        await until(lambda: world.count("poll") == 1)
        await host.boot(world.machine("i-2", user_data(world)))
        await host.close()
        await host.boot(world.machine("i-3", user_data(world)))
        assert world.off == []
        assert [who for who, _ in world.reported if who == "i-3"] == []
