"""The trace of a job: made from the moments of its records when it starts."""

from dataclasses import dataclass, field, replace
from itertools import pairwise

import pytest

from autoscaler.controller.composition import Ports
from autoscaler.controller.ports.telemetry import WaitTrace
from autoscaler.model.jobs.job import JobState
from tests.controller.agents import Agent, launched, queue, say
from tests.controller.controllers import Controller, World, delivery
from tests.controller.virtual_time import on_virtual_time


class Traces:
    """Keeps the traces."""

    def __init__(self) -> None:
        self.kept: list[WaitTrace] = []

    def trace_job(self, trace: WaitTrace) -> None:
        self.kept.append(trace)


@dataclass
class TracedWorld(World):
    """A world whose controllers make traces."""

    traces: Traces = field(default_factory=Traces)

    def ports(self) -> Ports:
        return replace(super().ports(), traces=self.traces)


def check_stages(trace: WaitTrace) -> list[str]:
    """Check that the stages fill the wait without gaps, and return their names."""
    assert trace.stages[0].began == trace.queued_at
    assert trace.stages[-1].ended == pytest.approx(trace.started_at)
    assert all(before.ended == after.began for before, after in pairwise(trace.stages))
    assert all(stage.ended > stage.began for stage in trace.stages)
    return [stage.name for stage in trace.stages]


async def start(world: TracedWorld, controller: Controller, agent: Agent) -> WaitTrace:
    """Boot the machine, give it the job, and return the job's trace."""
    for step in (agent.attest, agent.health_checks):
        await world.clock.sleep(10.0)
        await step()
    await controller.turn()
    assigned = await agent.take_assignment()
    await world.clock.sleep(3.0)
    await agent.acknowledge(assigned.runner)
    await world.clock.sleep(2.0)
    await say(controller, 1, JobState.IN_PROGRESS, assigned.runner)
    await controller.turn()
    (trace,) = world.traces.kept
    return trace


@on_virtual_time
async def test_a_job_whose_machine_was_launched_for_it_has_every_stage() -> None:
    world = TracedWorld()
    controller, (agent,) = await launched(world)
    trace = await start(world, controller, agent)
    assert {"boot", "health_checks", "register", "pick_up"} <= set(check_stages(trace))
    machine = controller.only_machine()
    assert (trace.job, trace.repository, trace.sku) == (1, "acme/widgets", "gpu")
    assert (trace.machine, trace.launch_request) == (machine.id, machine.launch_request)
    assert (trace.provider, trace.runner) == (machine.provider, machine.work.runner)
    (boot,) = [stage for stage in trace.stages if stage.name == "boot"]
    assert boot.ended == pytest.approx(machine.progress.booted_at)


@on_virtual_time
async def test_a_job_that_takes_a_ready_machine_spends_nothing_on_its_boot() -> None:
    world = TracedWorld()
    controller, (agent,) = await launched(world)
    await agent.make_ready()
    await say(controller, 1, JobState.COMPLETED)
    await controller.turn()
    await world.clock.sleep(60.0)
    await queue(controller, 2)
    await controller.turn()
    assigned = await agent.take_assignment()
    await agent.acknowledge(assigned.runner)
    await world.clock.sleep(1.0)
    await say(controller, 2, JobState.IN_PROGRESS, assigned.runner)
    await controller.turn()
    (trace,) = world.traces.kept
    assert not {"launch", "boot", "health_checks"} & set(check_stages(trace))


@on_virtual_time
async def test_a_job_on_an_unknown_runner_has_one_stage() -> None:
    world = TracedWorld()
    controller, _ = await launched(world)
    await world.clock.sleep(5.0)
    await say(controller, 1, JobState.IN_PROGRESS, None)
    await controller.turn()
    (trace,) = world.traces.kept
    assert check_stages(trace)[-1] == "other"
    assert (trace.machine, trace.runner) == (None, None)


@on_virtual_time
async def test_the_first_stage_of_a_late_delivery_is_deliver() -> None:
    world = TracedWorld()
    controller, (agent,) = await launched(world)
    await agent.make_ready()
    await say(controller, 1, JobState.COMPLETED)
    queued_at = world.clock.now()
    await world.clock.sleep(5.0)
    number, now = len(world.store.inbox) + 1, world.clock.now()
    await controller.intake.accept(delivery(number, 2, JobState.QUEUED, now, queued_at=queued_at))
    await controller.turn()
    assigned = await agent.take_assignment()
    await agent.acknowledge(assigned.runner)
    await world.clock.sleep(1.0)
    await say(controller, 2, JobState.IN_PROGRESS, assigned.runner)
    await controller.turn()
    (trace,) = world.traces.kept
    assert check_stages(trace)[0] == "deliver"
    assert trace.stages[0].ended - trace.queued_at == pytest.approx(5.0)
