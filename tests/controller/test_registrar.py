"""Registrations: created once with a recorded name, and deleted when no job needs them."""

import asyncio

import pytest

from autoscaler.controller.github.registrar import REGISTRATIONS_AT_ONCE
from autoscaler.controller.ports.bootstrap import Assigned
from autoscaler.controller.ports.github import (
    GitHubError,
    OperatorError,
    RegistrationOutcomeUnknownError,
    RetryLaterError,
    RunnerBusyError,
    RunnerExistsError,
)
from autoscaler.model.cooldowns import RateLimit
from autoscaler.model.identifiers import RunnerName
from autoscaler.model.jobs.job import JobState
from autoscaler.model.jobs.runners import Runner, RunnerState
from autoscaler.model.machines.machine import MachineState
from tests.controller.agents import Agent, launched, say
from tests.controller.controllers import Controller, World
from tests.controller.fakes_github import AnswerLost
from tests.controller.virtual_time import EPOCH, on_virtual_time
from tests.planner.fleets import EAST


async def ready(world: World) -> tuple[Controller, Agent]:
    controller, (agent,) = await launched(world)
    await agent.make_ready()
    return controller, agent


@on_virtual_time
async def test_a_runner_name_is_stored_before_it_is_registered_with_the_jobs_labels() -> None:
    world = World()
    controller, _ = await ready(world)
    stored: list[RunnerName] = []

    def look(name: RunnerName) -> None:
        (runner,) = world.store.of_kind(Runner)
        assert (runner.name, runner.state) == (name, RunnerState.NAMED)
        stored.append(name)

    world.github.on_register = look
    await controller.turn()
    assert stored == world.github.registered
    assert world.github.registrations[stored[0]].labels == {"gpu"}
    assert controller.crashes == []


@pytest.mark.case(
    "only the API can delete a JIT registration",
    topic="GitHub's REST API",
    source="actions/runner#2920",
)
@pytest.mark.parametrize(
    "error",
    [
        RunnerExistsError("409"),
        RegistrationOutcomeUnknownError("502"),
        AnswerLost(RegistrationOutcomeUnknownError("reset")),
    ],
)
@on_virtual_time
async def test_a_registration_without_its_jit_configuration_is_deleted_and_another_is_created(
    error: GitHubError | AnswerLost,
) -> None:
    world = World()
    controller, agent = await ready(world)
    if isinstance(error, RunnerExistsError):
        name = RunnerName(f"ci-0badcafe-{agent.machine}-1")
        world.github.actions.register("org:acme", name, ("gpu",))
    world.github.script("register", error)
    await controller.turn()
    assert controller.only_machine().state is MachineState.READY
    assert world.github.registrations == {}
    assert world.github.asked[:2] == ["register", "find_runner"]
    await controller.turn()
    assigned = await agent.take_assignment()
    assert assigned.runner.endswith("-2")
    assert set(world.github.registrations) == {assigned.runner}


@pytest.mark.case(
    "a registration exists at GitHub at once, offline: after a failed request the controller "
    "looks it up and does not repeat it",
    topic="GitHub's REST API",
    source="runs-on#30; ubicloud#692",
)
@on_virtual_time
async def test_after_an_unknown_outcome_the_name_is_looked_up_first() -> None:
    world = World()
    controller, _ = await ready(world)
    world.github.script("register", RegistrationOutcomeUnknownError("502"))
    world.github.script("find_runner", RetryLaterError("503", 30.0), RetryLaterError("503", 1.0))
    await controller.turn(then=20.0)
    assert controller.only_machine().state is MachineState.ASSIGNED, "unknown means keep"
    assert world.github.asked == ["register", "find_runner"]
    await world.clock.sleep(60.0)
    assert world.github.asked == ["register"] + ["find_runner"] * 3
    assert controller.only_machine().state is MachineState.READY


@pytest.mark.parametrize(
    ("error", "pause", "limit"),
    [
        (RetryLaterError("429", 40.0, RateLimit.SECONDARY), 40.0, "secondary_rate_limit"),
        (RetryLaterError("503", 40.0), 40.0, ""),
        (OperatorError("403"), 60.0, ""),
    ],
)
@on_virtual_time
async def test_a_failed_registration_returns_the_machine_to_ready_and_puts_the_scope_on_hold(
    error: GitHubError, pause: float, limit: str
) -> None:
    world = World()
    controller, agent = await ready(world)
    world.github.script("register", error)
    await controller.turn()
    assert controller.only_machine().state is MachineState.READY
    for _ in range(5):
        await controller.turn()
    assert world.github.asked == ["register"]
    (hold,) = controller.journal.ledger.state.cooldowns.values()
    assert hold.error == limit
    await world.clock.sleep(pause)
    poll = asyncio.create_task(agent.poll())
    await controller.turn()
    assert isinstance(await poll, Assigned)
    assert world.github.asked == ["register", "register"]


@on_virtual_time
async def test_a_registration_whose_job_ended_is_deregistered_and_its_machine_is_ready() -> None:
    world = World()
    controller, agent = await ready(world)
    await controller.turn()
    assert len(world.github.registrations) == 1
    await say(controller, 1, JobState.COMPLETED)
    await controller.turn()
    assert world.github.registrations == {}
    assert controller.only_machine().state is MachineState.READY
    assert await agent.poll(wait=1.0) is None
    assert world.east.ended == []


@on_virtual_time
async def test_a_deregistration_that_github_refuses_is_tried_again() -> None:
    world = World()
    controller, agent = await ready(world)
    await controller.turn()
    await say(controller, 1, JobState.COMPLETED)
    world.github.script(
        "delete_runner",
        RetryLaterError("502", 0.0),
        OperatorError("403"),
        RetryLaterError("429", 90.0),
    )
    began = world.clock.now()
    await controller.turn(then=50.0)
    assert world.github.asked.count("delete_runner") == 3
    assert await agent.poll(wait=1.0) is None, "no configuration is sent meanwhile"
    await world.clock.sleep(60.0)
    assert world.github.registrations == {}
    assert controller.only_machine().state is MachineState.READY
    assert world.clock.now() - began > 90.0


@pytest.mark.case(
    "the deletion of a busy runner gets 422",
    topic="GitHub's REST API",
    source="ARC runner_graceful_stop.go",
)
@on_virtual_time
async def test_a_busy_registration_that_was_never_sent_to_its_machine_is_kept() -> None:
    """If GitHub answers 422, the runner is busy, even if the controller cannot explain why."""
    world = World()
    controller, _ = await ready(world)
    await controller.turn()
    (name,) = world.github.registered
    world.github.script("delete_runner", RunnerBusyError("422"))
    await say(controller, 1, JobState.COMPLETED)
    await controller.turn(then=300.0)
    assert world.github.asked.count("delete_runner") == 1
    runner = controller.state.runners[name]
    assert runner.state is RunnerState.DONE
    assert runner.reason == "busy, but its configuration was never sent"
    assert not controller.registrar.has_secret(name)
    assert world.east.ended == []
    (row,) = [one for one in await world.store.history("runner", name) if one.event == "done"]
    assert EPOCH < row.at <= world.clock.now()


@on_virtual_time
async def test_an_assignment_cancelled_during_registration_leaves_no_registration() -> None:
    world = World()
    world.github.latency = 4.0
    controller, agent = await ready(world)
    await controller.turn(then=1.0)
    await say(controller, 1, JobState.COMPLETED)
    await controller.turn(then=60.0)
    assert len(world.github.registered) == 1
    assert world.github.registrations == {}
    assert await agent.poll(wait=1.0) is None
    assert controller.only_machine().state is MachineState.READY


@on_virtual_time
async def test_a_registration_that_completes_after_its_name_was_looked_up_is_deleted() -> None:
    world = World()
    world.github.latency = 4.0
    controller, _ = await ready(world)
    await controller.turn(then=0.1)
    (runner,) = controller.state.runners.values()
    world.github.latency = 0.2
    world.github.script("find_runner", None)
    await say(controller, 1, JobState.COMPLETED)
    await controller.turn(then=1.0)
    assert runner.state is RunnerState.DONE
    world.github.script("delete_runner", RetryLaterError("502", 0.0))
    await world.clock.sleep(30.0)
    assert len(world.github.registered) == 1
    assert world.github.registrations == {}
    assert not controller.registrar.has_secret(runner.name)
    assert controller.only_machine().state is MachineState.READY


@on_virtual_time
async def test_a_machine_that_ends_during_its_registration_leaves_no_registration() -> None:
    world = World()
    world.github.latency = 4.0
    controller, agent = await ready(world)
    await controller.turn(then=1.0)
    world.east.shut_down(agent.instance.id)
    await controller.machine_lists.list_machines(EAST)
    await world.clock.sleep(60.0)
    assert len(world.github.registered) == 1
    assert world.github.registrations == {}


@on_virtual_time
async def test_no_jit_configuration_is_kept_after_it_was_fetched_or_deregistered() -> None:
    world = World()
    controller, _ = await ready(world)
    await controller.turn()
    (name,) = world.github.registered
    assert controller.registrar.has_secret(name)
    assert controller.registrar.take(name) == world.github.secrets[name]
    assert controller.registrar.take(name) is None
    assert not controller.registrar.has_secret(name)


@on_virtual_time
async def test_a_bounded_number_of_registrations_is_created_at_once_and_none_without_a_job() -> (
    None
):
    world = World()
    wave = REGISTRATIONS_AT_ONCE + 3
    controller, agents = await launched(world, jobs=wave)
    for agent in agents:
        await agent.make_ready()
    world.github.latency = 60.0
    await controller.loop.turn()
    await asyncio.sleep(1.0)
    assert world.github.asked == ["register"] * REGISTRATIONS_AT_ONCE
    for job in range(1, wave + 1):
        await say(controller, job, JobState.COMPLETED)
    await controller.loop.turn()
    await asyncio.sleep(600.0)
    assert world.github.asked.count("register") == REGISTRATIONS_AT_ONCE
    assert world.github.registrations == {}
    assert {r.state for r in controller.state.runners.values()} == {RunnerState.DONE}


@on_virtual_time
async def test_every_machine_of_a_boot_wave_is_registered() -> None:
    world = World()
    controller, agents = await launched(world, jobs=REGISTRATIONS_AT_ONCE + 3)
    for agent in agents:
        await agent.make_ready()
    await controller.turn()
    assert len(world.github.registered) == REGISTRATIONS_AT_ONCE + 3
