"""Long polls: answered when something changes, and safe to cancel."""

import asyncio

import pytest

from autoscaler.controller.ports.bootstrap import Assigned
from autoscaler.model.jobs.job import JobState
from tests.controller.agents import assigned_machine, launched, refusal, runner_of, say
from tests.controller.controllers import World, cancelled
from tests.controller.virtual_time import on_virtual_time


@on_virtual_time
async def test_a_poll_is_answered_when_the_registration_is_registered() -> None:
    controller, (agent,) = await launched(World())
    await agent.make_ready()
    poll = asyncio.create_task(agent.poll(wait=50.0))
    await asyncio.sleep(10.0)
    assert not poll.done()
    began = controller.world.clock.now()
    await controller.loop.turn()
    answer = await poll
    assert isinstance(answer, Assigned)
    assert controller.world.clock.now() - began < 1.0
    assert controller.world.github.registered == [answer.runner]


@on_virtual_time
async def test_an_assignment_says_where_the_job_runs_why_it_waited_and_who_may_use_it() -> None:
    controller, (agent,) = await launched(World())
    await asyncio.sleep(80.0)
    await agent.make_ready()
    await asyncio.sleep(5.0)
    await controller.turn()
    answer = await agent.poll()
    assert isinstance(answer, Assigned)
    machine = controller.only_machine()
    offering = machine.placement
    assert answer.job == {
        "machine": machine.id,
        "sku": machine.sku,
        "instance": offering.provider_id,
        "offering": f"{machine.provider} {offering.instance_type} {offering.zone} {offering.capacity_type}",
        "image": offering.image,
        "ready_s": 85,
        "idle_s": 10,
        "waited_s": 95,
        "launched_for_it": True,
        "access": {
            "repositories": ["*"],
            "forks": True,
            "public_repositories": True,
            "branches": [],
            "contact": "",
        },
    }


@on_virtual_time
async def test_a_poll_without_an_assignment_ends_after_its_time_and_keeps_the_machine_alive() -> (
    None
):
    world = World()
    controller, (agent,) = await launched(world)
    await agent.make_ready()
    began = world.clock.now()
    assert await agent.poll(wait=50.0) is None
    assert world.clock.now() - began == pytest.approx(50.0, abs=0.01)
    assert controller.only_machine().work.last_seen == pytest.approx(world.clock.now(), abs=0.01)


@on_virtual_time
async def test_a_cancelled_poll_leaves_no_waiter() -> None:
    world = World()
    controller, (agent,) = await launched(world)
    await agent.make_ready()
    before = len(asyncio.all_tasks())
    for _ in range(3):
        poll = asyncio.create_task(agent.poll())
        await asyncio.sleep(5.0)
        await cancelled(poll)
    await asyncio.sleep(0.1)
    assert len(asyncio.all_tasks()) == before
    await controller.turn()
    assert isinstance(await agent.poll(), Assigned)
    assert len(world.github.registered) == 1


@on_virtual_time
async def test_a_cancelled_older_poll_does_not_disturb_the_newer_one() -> None:
    """The server notices a broken connection late, when the machine has polled again."""
    world = World()
    controller, (agent,) = await launched(world)
    await agent.make_ready()
    old = asyncio.create_task(agent.poll())
    await asyncio.sleep(1.0)
    new = asyncio.create_task(agent.poll())
    await asyncio.sleep(1.0)
    await cancelled(old)
    began = world.clock.now()
    await controller.loop.turn()
    assert isinstance(await new, Assigned)
    assert world.clock.now() - began < 1.0


@on_virtual_time
async def test_a_poll_cancelled_while_its_assignment_is_written_uses_up_that_registration() -> None:
    """The answer may have been sent, so the registration counts as sent."""
    world = World()
    controller, agent = await assigned_machine(world)
    first = runner_of(controller).name
    poll = asyncio.create_task(agent.poll())
    await asyncio.sleep(0.001)
    assert runner_of(controller).configuration_sent_at is not None
    await cancelled(poll)
    second = await agent.take_assignment()
    assert second.runner != first
    assert set(world.github.registrations) == {second.runner}


@pytest.mark.parametrize("after", [0.05, 0.15, 0.201, 0.21, 0.3])
@on_virtual_time
async def test_a_poll_cancelled_while_a_registration_is_replaced_loses_nothing(
    after: float,
) -> None:
    world = World()
    controller, agent = await assigned_machine(world)
    first = await agent.take_assignment()
    poll = asyncio.create_task(agent.poll())
    await asyncio.sleep(after)
    await cancelled(poll)
    await asyncio.sleep(5.0)
    assigned = await agent.take_assignment()
    assert assigned.runner != first.runner
    assert set(world.github.registrations) == {assigned.runner}
    assert controller.crashes == []


@on_virtual_time
async def test_two_polls_at_once_never_get_the_same_assignment() -> None:
    world = World()
    controller, (agent,) = await launched(world)
    await agent.make_ready()
    polls = [asyncio.create_task(agent.poll()) for _ in range(4)]
    await asyncio.sleep(1.0)
    await controller.turn()
    answers = await asyncio.gather(*polls, return_exceptions=True)
    configs = [a.jit_config for a in answers if isinstance(a, Assigned)]
    assert len(configs) == len(set(configs))
    assert len(world.github.registrations) <= 1
    assert controller.crashes == []


@on_virtual_time
async def test_a_shutdown_answers_every_poll_at_once() -> None:
    world = World()
    controller, (agent,) = await launched(world)
    await agent.make_ready()
    poll = asyncio.create_task(agent.poll())
    await asyncio.sleep(1.0)
    began = world.clock.now()
    controller.bootstrap.shut_down()
    assert await poll is None
    assert world.clock.now() - began < 0.1


@on_virtual_time
async def test_the_poll_of_a_terminated_ready_machine_is_answered_410() -> None:
    world = World()
    controller, (agent,) = await launched(world)
    await say(controller, 1, JobState.COMPLETED)
    await agent.make_ready()
    poll = asyncio.create_task(agent.poll(wait=3600.0))
    await asyncio.sleep(290.0)
    await agent.controller.bootstrap.heartbeat(agent.machine, agent.nonce)
    await asyncio.sleep(290.0)
    await agent.controller.bootstrap.heartbeat(agent.machine, agent.nonce)
    await asyncio.sleep(25.0)
    await controller.turn()
    assert await refusal(poll) == (410, "ended")
    assert world.east.ended == [(agent.instance.id,)]


@on_virtual_time
async def test_stage_reports_and_heartbeats_reset_the_silence_of_a_machine() -> None:
    world = World()
    controller, (agent,) = await launched(world)
    await agent.attest()
    await world.clock.sleep(60.0)
    await controller.bootstrap.stage(agent.machine, agent.nonce, "driver")
    assert controller.only_machine().progress.stage == "driver"
    await world.clock.sleep(60.0)
    await controller.bootstrap.heartbeat(agent.machine, agent.nonce)
    assert controller.only_machine().work.last_seen == world.clock.now()
