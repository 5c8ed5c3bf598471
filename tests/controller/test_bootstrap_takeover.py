"""A machine whose answer was lost with the leader repeats its request at the next one, and serves its job."""

import asyncio

import pytest

from autoscaler.controller.ports.bootstrap import NotKnownYetError
from autoscaler.controller.ports.replicas import LEASE_LENGTH
from autoscaler.model.jobs.runners import RunnerState
from autoscaler.model.machines.machine import MachineState
from tests.controller.agents import Agent, assigned_machine, launched, listed_at_github, runner_of
from tests.controller.controllers import Controller, World
from tests.controller.virtual_time import on_virtual_time


async def taken_over(controller: Controller, agent: Agent) -> Controller:
    """Kill the leader. Return the next one, which the agent asks from now on."""
    await controller.world.store.record_heartbeat(controller.world.clock.now())
    await controller.kill()
    await controller.world.clock.sleep(LEASE_LENGTH)
    following = Controller(controller.world)
    await following.resume()
    agent.controller = following
    return following


async def serve_job(controller: Controller, agent: Agent) -> None:
    """Have the agent do what is left, and check that its machine has the only registration."""
    world = controller.world
    polling = asyncio.create_task(agent.take_assignment())
    for _ in range(4):
        await controller.turn()
    assigned = await polling
    await agent.acknowledge(assigned.runner)
    assert runner_of(controller).state is RunnerState.LISTENING
    assert set(world.github.registrations) == {assigned.runner}
    assert controller.only_machine().state is MachineState.ASSIGNED
    assert len(world.east.running) == 1
    assert controller.crashes == []


@on_virtual_time
async def test_a_registration_whose_answer_was_lost_is_replaced_by_the_next_leader() -> None:
    world = World()
    controller, agent = await assigned_machine(world)
    lost = await agent.take_assignment()
    following = await taken_over(controller, agent)
    await serve_job(following, agent)
    assert world.github.deleted == [lost.runner]


@on_virtual_time
async def test_a_registration_that_only_the_old_leader_could_give_is_replaced() -> None:
    """Its JIT configuration was in the memory of the old leader."""
    world = World()
    controller, agent = await assigned_machine(world)
    lost = runner_of(controller).name
    following = await taken_over(controller, agent)
    await serve_job(following, agent)
    assert lost not in world.github.registrations


@on_virtual_time
async def test_an_acknowledgement_whose_answer_was_lost_is_answered_by_the_next_leader() -> None:
    world = World()
    controller, agent = await assigned_machine(world)
    assigned = await agent.take_assignment()
    await agent.acknowledge(assigned.runner)
    following = await taken_over(controller, agent)
    await agent.acknowledge(assigned.runner)
    assert runner_of(following).state is RunnerState.LISTENING
    assert set(world.github.registrations) == {assigned.runner}


@on_virtual_time
async def test_an_acknowledgement_that_the_old_leader_did_not_get_is_accepted_by_the_next() -> None:
    world = World()
    controller, agent = await assigned_machine(world)
    assigned = await agent.take_assignment()
    following = await taken_over(controller, agent)
    await agent.acknowledge(assigned.runner)
    await following.turn()
    assert runner_of(following).state is RunnerState.LISTENING
    assert set(world.github.registrations) == {assigned.runner}
    assert world.github.deleted == []


@pytest.mark.parametrize("lost", ["attest", "health-checks"])
@on_virtual_time
async def test_a_machine_that_boots_during_a_takeover_repeats_its_step(lost: str) -> None:
    controller, (agent,) = await launched(World())
    await agent.attest()
    if lost == "health-checks":
        await agent.health_checks()
    following = await taken_over(controller, agent)
    began = following.journal.now
    if lost == "attest":
        # The store could be a restored backup, until GitHub lists runners a minute after the start.
        while await _has_to_wait(agent):
            await following.turn(10.0)
            listed_at_github(following)
        assert following.journal.now - began <= 70.0
    await agent.health_checks()
    await serve_job(following, agent)


async def _has_to_wait(agent: Agent) -> bool:
    """Attest. Return whether the controller asks for another try."""
    try:
        await agent.attest()
    except NotKnownYetError:
        return True
    return False
