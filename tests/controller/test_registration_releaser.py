"""The release of an idle machine's registration: the answer to the machine for each answer of GitHub."""

import asyncio
import copy

import pytest

from autoscaler.controller.ports.github import (
    GitHubError,
    OperatorError,
    RetryLaterError,
    RunnerBusyError,
)
from autoscaler.model.cooldowns import registration_key
from autoscaler.model.jobs.job import JobState
from autoscaler.model.jobs.runners import RunnerState
from tests.controller.agents import Agent, launched, refusal, say
from tests.controller.controllers import Controller, World, cancelled
from tests.controller.virtual_time import on_virtual_time


async def idle(world: World) -> tuple[Controller, Agent]:
    """A machine whose runner listens and has no job."""
    controller, (agent,) = await launched(world)
    await agent.start_runner()
    return controller, agent


async def may_release(agent: Agent) -> bool:
    return await agent.controller.bootstrap.may_release(agent.machine, agent.nonce)


async def release(agent: Agent) -> int:
    return await agent.controller.bootstrap.release(agent.machine, agent.nonce)


def state_of_runner(controller: Controller) -> RunnerState:
    (runner,) = controller.state.runners.values()
    return runner.state


@on_virtual_time
async def test_an_idle_runner_may_be_released_and_is_deleted() -> None:
    world = World()
    controller, agent = await idle(world)
    assert await may_release(agent)
    assert world.github.asked.count("delete_runner") == 0, "asking is not doing"
    assert await release(agent) == 204
    assert world.github.registrations == {}
    assert state_of_runner(controller) is RunnerState.DONE
    (runner,) = controller.state.runners.values()
    assert runner.reason == "released idle by its machine"


@pytest.mark.case(
    "the answer to a release is lost: the agent may ask again",
    topic="Runner and listener",
    source="GitHub: REST, self-hosted runners",
)
@on_virtual_time
async def test_a_release_whose_answer_was_lost_can_be_repeated() -> None:
    """Otherwise the machine would run its listener until its lifetime ends."""
    world = World()
    controller, agent = await idle(world)
    assert await release(agent) == 204
    assert await may_release(agent)
    assert await release(agent) == 404
    assert state_of_runner(controller) is RunnerState.DONE


@on_virtual_time
async def test_a_registration_cannot_be_released_before_its_acknowledgement() -> None:
    controller, (agent,) = await launched(World())
    await agent.make_ready()
    assert not await may_release(agent)
    assert await release(agent) == 404
    await controller.turn()
    assert not await may_release(agent)


@pytest.mark.case(
    "SIGTERM cancels the job: the agent stops a runner only if its registration is deleted and no"
    " worker runs",
    topic="Runner and listener",
    source="actions/runner run-helper.sh",
)
@on_virtual_time
async def test_a_busy_runner_is_refused_without_a_request_to_github() -> None:
    world = World()
    controller, agent = await idle(world)
    await say(controller, 1, JobState.IN_PROGRESS, world.github.registered[0])
    await controller.turn()
    assert state_of_runner(controller) is RunnerState.BUSY
    assert not await may_release(agent)
    assert await release(agent) == 422
    assert "delete_runner" not in world.github.asked


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (RunnerBusyError("422"), 422),  # it got a job that no webhook reported yet
        (RetryLaterError("502", 1.0), 503),
        (OperatorError("403"), 503),
    ],
)
@on_virtual_time
async def test_a_refused_deregistration_is_reported_and_changes_nothing(
    error: GitHubError, status: int
) -> None:
    world = World()
    controller, agent = await idle(world)
    world.github.script("delete_runner", error)
    assert await release(agent) == status
    assert state_of_runner(controller) is RunnerState.LISTENING
    assert len(world.github.registrations) == 1


@pytest.mark.case(
    "GitHub removes an offline ephemeral runner after a day",
    topic="GitHub's REST API",
    source="GitHub: removal of self-hosted runners",
)
@on_virtual_time
async def test_a_registration_that_does_not_exist_counts_as_deleted() -> None:
    world = World()
    controller, agent = await idle(world)
    for name in world.github.registrations:
        world.github.remove(name)
    assert await release(agent) == 404
    assert state_of_runner(controller) is RunnerState.DONE


@on_virtual_time
async def test_no_release_is_allowed_while_its_scope_is_on_hold() -> None:
    world = World()
    controller, agent = await idle(world)
    world.github.script("register", RetryLaterError("429", 300.0))
    other = await launched_for_another_job(controller)
    await other.make_ready()
    await controller.turn()
    assert registration_key("org:acme") in controller.state.cooldowns
    assert not await may_release(agent)
    await world.clock.sleep(300.0)
    assert await may_release(agent)


@on_virtual_time
async def test_another_machines_registration_cannot_be_released() -> None:
    world = World()
    controller, agent = await idle(world)
    other = await launched_for_another_job(controller)
    await other.make_ready()
    assert await refusal(controller.bootstrap.release(agent.machine, other.nonce)) == (401, "nonce")
    assert await release(other) == 404
    assert len(world.github.registrations) == 1


async def launched_for_another_job(controller: Controller) -> Agent:
    """Launch a second machine, for a job that the first runner does not run."""
    world = controller.world
    known = set(world.east.instances)
    for job in (2, 3):
        await say(controller, job, JobState.QUEUED)
    await controller.turn()
    new = [instance for instance in world.east.running if instance.id not in known]
    return Agent(controller, new[0])


async def flood(agent: Agent, seconds: float) -> list[int]:
    """Return the answers to a job with root that requests its machine's release as often as it can."""
    clock, answers = agent.controller.world.clock, list[int]()
    until = clock.now() + seconds
    while clock.now() < until:
        answers += await asyncio.gather(*(release(agent) for _ in range(10)))
        await asyncio.sleep(0.05)
    return answers


@pytest.mark.case(
    "a job with root asks for releases and reports stages as fast as it can",
    topic="Hostile input",
    source="GitHub: rate limits",
)
@pytest.mark.parametrize(
    ("error", "status"),
    [(RunnerBusyError("422"), 422), (RetryLaterError("502", 1.0), 503), (None, 404)],
)
@on_virtual_time
async def test_repeated_release_requests_cause_one_delete_a_minute(
    error: GitHubError | None, status: int
) -> None:
    world = World()
    controller, agent = await idle(world)
    world.github.script("delete_runner", *[error] * 3000)
    commits = len(world.store.commits)
    answers = await flood(agent, 10.0)
    assert world.github.asked.count("delete_runner") == 1
    assert answers.count(status) >= len(answers) - 10
    assert len(world.store.commits) - commits <= 1
    assert await may_release(agent) is (status == 404)
    await world.clock.sleep(60.0)
    await flood(agent, 5.0)
    assert world.github.asked.count("delete_runner") == 2
    assert controller.crashes == []


@on_virtual_time
async def test_a_machine_has_one_release_in_flight_and_delays_no_other_machine() -> None:
    world = World()
    _controller, (one, other) = await launched(world, jobs=2)
    await one.start_runner()
    await other.start_runner()
    world.github.latency = 8.0
    began = world.clock.now()
    first = asyncio.create_task(release(one))
    await asyncio.sleep(1.0)
    assert not await may_release(one)
    assert await release(one) == 503
    assert world.clock.now() - began == pytest.approx(1.0)
    assert await may_release(other), "one machine's release keeps no other's"
    assert await release(other) == 204
    assert await first == 204
    assert world.github.asked.count("delete_runner") == 2


@on_virtual_time
async def test_a_release_can_be_repeated_after_its_caller_disconnected() -> None:
    world = World()
    _, agent = await idle(world)
    left = asyncio.create_task(release(agent))
    await asyncio.sleep(0.05)
    await cancelled(left)
    assert await release(agent) == 204


@on_virtual_time
async def test_answers_to_releases_are_remembered_for_a_minute() -> None:
    """Otherwise memory would keep an answer for each machine that was ever released."""
    world = World()
    controller, agents = await launched(world, jobs=20)
    for agent in agents:
        await agent.start_runner()
        assert await release(agent) == 204
        await world.clock.sleep(30.0)
    remembered = controller.releaser._answers
    assert len(remembered) <= 3


@pytest.mark.case(
    "a job with root asks for releases and reports stages as fast as it can",
    topic="Hostile input",
    source="GitHub: rate limits",
)
@on_virtual_time
async def test_a_stage_report_of_a_running_machine_writes_nothing() -> None:
    world = World()
    controller, agent = await idle(world)
    await controller.journal.commit()
    before, machine = len(world.store.commits), copy.copy(controller.only_machine())
    controller.journal.changed.clear()
    for number in range(1000):
        await controller.bootstrap.stage(agent.machine, agent.nonce, f"stage-{number}")
        await controller.bootstrap.health_checks(agent.machine, agent.nonce, False, f"{number}")
    await controller.journal.commit()
    assert len(world.store.commits) == before
    assert controller.only_machine() == machine
    assert not controller.journal.changed.is_set(), "and has nothing planned"
