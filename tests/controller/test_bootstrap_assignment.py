"""One assignment for each machine: sent once, replaced only while it is unused, then never again."""

import asyncio

import pytest
from structlog.testing import capture_logs

from autoscaler.controller.machines.attestation import ANSWERED_WITHIN
from autoscaler.controller.ports.bootstrap import Assigned, NotKnownYetError
from autoscaler.controller.ports.github import RetryLaterError
from autoscaler.controller.ports.provider import OutcomeUnknownError
from autoscaler.controller.ports.provider_errors import ProviderError
from autoscaler.model.events import InstallationAdopted
from autoscaler.model.identifiers import InstallationId, ProviderMachineId, RunnerName
from autoscaler.model.jobs.job import JobState
from autoscaler.model.jobs.runners import MAX_ASSIGNMENTS, Runner, RunnerState
from autoscaler.model.machines.failures import FailureClass
from autoscaler.model.machines.machine import MachineState
from tests.controller.agents import assigned_machine, launched, queue, refusal, runner_of, say
from tests.controller.controllers import Controller, World
from tests.controller.virtual_time import on_virtual_time
from tests.ledger.builders import ALICE
from tests.planner.fleets import EAST


@on_virtual_time
async def test_a_second_assignment_is_refused_once_the_first_is_acknowledged() -> None:
    controller, agent = await assigned_machine(World())
    first = await agent.take_assignment()
    await agent.acknowledge(first.runner)
    assert await refusal(agent.poll()) == (409, "second_assignment")
    await say(controller, 1, JobState.IN_PROGRESS, first.runner)
    await controller.turn()
    assert runner_of(controller).state is RunnerState.BUSY
    assert await refusal(agent.poll()) == (409, "second_assignment")
    assert len(controller.world.github.registered) == 1


@on_virtual_time
async def test_a_machine_can_acknowledge_only_the_assignment_that_it_got() -> None:
    controller, agent = await assigned_machine(World())
    name = runner_of(controller).name
    assert await refusal(agent.acknowledge(name)) == (409, "second_assignment")
    await agent.take_assignment()
    assert await refusal(agent.acknowledge(RunnerName("ci-other-1"))) == (409, "second_assignment")
    await agent.acknowledge(name)


@on_virtual_time
async def test_acknowledging_a_closed_assignment_is_refused_as_expired() -> None:
    """The acknowledgement comes after GitHub reported that the job on this runner is completed."""
    controller, agent = await assigned_machine(World())
    assigned = await agent.take_assignment()
    await say(controller, 1, JobState.COMPLETED, assigned.runner)
    await controller.turn()
    assert await refusal(agent.acknowledge(assigned.runner)) == (409, "expired")


@on_virtual_time
async def test_a_repeated_acknowledgement_is_answered_and_changes_nothing() -> None:
    controller, agent = await assigned_machine(World())
    assigned = await agent.take_assignment()
    await agent.acknowledge(assigned.runner)
    at = runner_of(controller).listening_at
    await controller.world.clock.sleep(30.0)
    await agent.acknowledge(assigned.runner)
    assert runner_of(controller).listening_at == at


@on_virtual_time
async def test_a_repeated_exit_report_is_answered_and_changes_nothing() -> None:
    world = World()
    controller, (agent,) = await launched(world)
    await agent.start_runner()
    await agent.exit()
    since = controller.only_machine().since
    await agent.exit()
    assert controller.only_machine().since == since
    # The machine has two minutes to power itself off.
    await controller.turn()
    assert world.east.ended == []
    await world.clock.sleep(120.0)
    await controller.turn()
    assert world.east.ended == [(agent.instance.id,)]
    await agent.exit()


@pytest.mark.parametrize("step", ["acknowledge", "exit"])
@on_virtual_time
async def test_a_repeated_report_waits_until_the_first_is_stored(step: str) -> None:
    """A 2xx answer means durable, also for a repeated request."""
    world = World()
    controller, agent = await assigned_machine(world)
    assigned = await agent.take_assignment()
    if step == "exit":
        await agent.acknowledge(assigned.runner)
    world.store.latency = 5.0
    began = world.clock.now()

    async def ask() -> None:
        await (agent.acknowledge(assigned.runner) if step == "acknowledge" else agent.exit())

    first = asyncio.create_task(ask())
    await asyncio.sleep(1.0)
    await ask()
    assert world.clock.now() - began >= 5.0
    assert first.done()
    assert controller.crashes == []


@on_virtual_time
async def test_a_second_poll_before_the_acknowledgement_replaces_the_registration() -> None:
    """The answer may be lost, so the controller deletes the first registration."""
    world = World()
    controller, agent = await assigned_machine(world)
    first = await agent.take_assignment()
    second = await agent.take_assignment()
    assert second.runner != first.runner
    assert second.jit_config != first.jit_config
    assert world.github.deleted == [first.runner]
    assert set(world.github.registrations) == {second.runner}
    closed = controller.state.runners[first.runner]
    assert (closed.state, closed.reason) == (RunnerState.DONE, "its configuration did not arrive")
    assert await refusal(agent.acknowledge(first.runner)) == (409, "second_assignment")
    await agent.acknowledge(second.runner)
    assert runner_of(controller).state is RunnerState.LISTENING


@pytest.mark.case(
    "an agent acknowledges its registration while the controller replaces it",
    topic="Runner and listener",
    source="GitHub: REST, self-hosted runners",
)
@on_virtual_time
async def test_acknowledging_a_registration_that_is_being_replaced_is_refused() -> None:
    """The controller is deleting the registration: a runner that starts now would get no job."""
    world = World()
    _, agent = await assigned_machine(world)
    first = await agent.take_assignment()
    again = asyncio.create_task(agent.take_assignment())
    await asyncio.sleep(0.05)
    assert world.github.asked[-1] == "delete_runner"
    assert await refusal(agent.acknowledge(first.runner)) == (409, "expired")
    second = await again
    assert world.github.deleted == [first.runner]
    await agent.acknowledge(second.runner)


@on_virtual_time
async def test_a_registration_whose_job_starts_while_it_is_replaced_is_the_machines_only_one() -> (
    None
):
    world = World()
    controller, agent = await assigned_machine(world)
    first = await agent.take_assignment()
    again = asyncio.create_task(refusal(agent.poll()))
    await asyncio.sleep(0.05)
    assert world.github.asked[-1] == "delete_runner"
    await say(controller, 1, JobState.IN_PROGRESS, first.runner)
    await controller.intake.apply_waiting()
    assert await again == (409, "second_assignment")
    assert world.github.registered == [first.runner]


@on_virtual_time
async def test_a_registration_that_could_not_be_replaced_can_be_acknowledged_after_all() -> None:
    world = World()
    controller, agent = await assigned_machine(world)
    first = await agent.take_assignment()
    world.github.script("delete_runner", RetryLaterError("502", 5.0))
    with pytest.raises(NotKnownYetError):
        await agent.poll()
    await agent.acknowledge(first.runner)
    assert runner_of(controller).state is RunnerState.LISTENING


@on_virtual_time
async def test_after_three_registrations_a_machine_gets_no_more() -> None:
    world = World()
    controller, agent = await assigned_machine(world)
    names = [(await agent.take_assignment()).runner for _ in range(MAX_ASSIGNMENTS)]
    assert len(set(names)) == 3
    for _ in range(3):
        assert await refusal(agent.poll()) == (410, "ended")
    assert world.github.registered == names
    assert world.github.deleted == names
    assert world.east.ended == [], "it powers itself off: it may be busy for all we know"
    assert controller.only_machine().state is MachineState.ASSIGNED


@on_virtual_time
async def test_registrations_from_before_an_adoption_count_too() -> None:
    controller, agent = await assigned_machine(World())
    for installation in ("01d01d01", "2bad2bad", "3bad3bad")[:MAX_ASSIGNMENTS]:
        await agent.take_assignment()
        taken = InstallationAdopted(controller.journal.now, InstallationId(installation), ALICE)
        await controller.journal.record(taken)
    assert await refusal(agent.poll()) == (410, "ended")


@on_virtual_time
async def test_a_registration_with_a_job_is_not_replaced_and_the_machine_gets_no_more() -> None:
    """GitHub answers 422: a runner is already running a job with the assignment."""
    world = World()
    _, agent = await assigned_machine(world)
    assigned = await agent.take_assignment()
    job = world.github.occupy(assigned.runner)
    assert await refusal(agent.poll()) == (410, "ended")
    world.github.actions.complete(job, "success")
    assert await refusal(agent.poll()) == (410, "ended"), "closed is closed"
    assert world.github.registered == [assigned.runner]
    assert world.github.deleted == []


@on_virtual_time
async def test_while_github_cannot_delete_the_old_registration_the_machine_has_to_wait() -> None:
    world = World()
    _, agent = await assigned_machine(world)
    first = await agent.take_assignment()
    world.github.script("delete_runner", RetryLaterError("502", 5.0))
    with pytest.raises(NotKnownYetError):
        await agent.poll()
    assert set(world.github.registrations) == {first.runner}
    assert (await agent.take_assignment()).runner != first.runner


@on_virtual_time
async def test_no_registration_is_replaced_while_its_scope_is_on_hold() -> None:
    world = World()
    controller, agent = await assigned_machine(world)
    await agent.take_assignment()
    world.github.script("register", RetryLaterError("429", 60.0))
    for _ in range(2):
        with pytest.raises(NotKnownYetError):
            await agent.poll()
    assert world.github.asked.count("register") == 2
    await world.clock.sleep(60.0)
    assert isinstance(await agent.poll(), Assigned)
    assert controller.crashes == []
    assert len(world.github.registrations) == 1


@on_virtual_time
async def test_only_the_assigned_machine_gets_its_assignment() -> None:
    world = World()
    controller, (one, other) = await launched(world, jobs=2)
    await one.make_ready()
    await other.make_ready()
    await controller.turn()
    first, second = await one.take_assignment(), await other.take_assignment()
    assert first.runner != second.runner
    assert await refusal(other.acknowledge(first.runner)) == (409, "second_assignment")
    await one.acknowledge(first.runner)
    await other.acknowledge(second.runner)
    assert {r.machine for r in controller.state.runners.values()} == {one.machine, other.machine}


@on_virtual_time
async def test_a_machines_reports_after_its_assignment_affect_only_that_machine() -> None:
    world = World()
    controller, (one, other) = await launched(world, jobs=2)
    for agent in (one, other):
        await agent.make_ready()
    await controller.turn()
    for agent in (one, other):
        await agent.acknowledge((await agent.take_assignment()).runner)
    await one.exit()
    assert controller.state.machines[other.machine].state is MachineState.ASSIGNED
    await queue(controller, 3)
    await world.clock.sleep(125.0)
    await controller.turn()
    assert world.east.ended == [(one.instance.id,)]


@pytest.mark.case(
    "Karpenter removes the node of a pod that is only ready, and waits for a pod that may run a job",
    topic="Kubernetes",
    source="Karpenter: disruption",
)
@on_virtual_time
async def test_a_machine_is_protected_before_it_gets_its_registration() -> None:
    controller, agent = await assigned_machine(World())
    east = controller.world.east
    assert east.protected == []
    refused = ProviderError(
        FailureClass.CONFIGURATION, "Forbidden", "no right to patch pods", hint="mend it"
    )
    for error, hint in ((OutcomeUnknownError("no answer"), None), (refused, "mend it")):
        east.protect_script.append(error)
        with pytest.raises(NotKnownYetError), capture_logs() as logs:
            await agent.poll()
        (line,) = (one for one in logs if one["event"] == "machine_not_protected")
        assert (line["error"], line["hint"]) == (str(error), hint)
    assert runner_of(controller).configuration_sent_at is None
    assigned = await agent.take_assignment()
    assert east.protected == [agent.instance.id]
    assert runner_of(controller).configuration_sent_at is not None
    await agent.acknowledge(assigned.runner)


@on_virtual_time
async def test_a_machine_that_its_provider_does_not_protect_in_time_has_to_ask_again() -> None:
    """The agent waits for the answer, and gives up after ten seconds."""
    controller, agent = await assigned_machine(World())
    clock = controller.world.clock
    began = clock.now()
    controller.world.east.on_protect = lambda _: asyncio.sleep(3600.0)
    with pytest.raises(NotKnownYetError), capture_logs() as logs:
        await agent.poll()
    assert clock.now() - began == ANSWERED_WITHIN
    (line,) = (one for one in logs if one["event"] == "machine_not_protected")
    assert line["error"] == f"no answer within {ANSWERED_WITHIN:g} s"
    assert runner_of(controller).configuration_sent_at is None


@on_virtual_time
async def test_a_registration_that_ends_while_its_machine_is_protected_is_not_sent() -> None:
    """GitHub reports the job of this registration as completed, so the runner would get no job."""
    controller, agent = await assigned_machine(World())
    name = runner_of(controller).name

    async def completed(_: ProviderMachineId) -> None:
        await say(controller, 1, JobState.COMPLETED, name)
        await controller.intake.apply_waiting()

    controller.world.east.on_protect = completed
    agent_gets = await agent.poll(0.0)
    assert agent_gets is None
    assert controller.state.runners[name].configuration_sent_at is None


@on_virtual_time
async def test_a_machine_whose_provider_left_the_configuration_is_registered() -> None:
    controller, agent = await assigned_machine(World())
    del controller.world.providers[EAST]
    assigned = await agent.take_assignment()
    await agent.acknowledge(assigned.runner)
    assert runner_of(controller).state is RunnerState.LISTENING


@on_virtual_time
async def test_a_machine_that_ends_while_it_is_protected_gets_no_registration() -> None:
    controller, agent = await assigned_machine(World())

    async def interrupted(machine: ProviderMachineId) -> None:
        instance = controller.world.east.instances[machine]
        instance.terminated = True
        await controller.machine_lists.list_machines(EAST)

    controller.world.east.on_protect = interrupted
    assert await refusal(agent.poll()) == (410, "ended")
    assert runner_of_last(controller).configuration_sent_at is None


def runner_of_last(controller: Controller) -> Runner:
    """The only runner so far, of a machine that may be gone."""
    (found,) = controller.state.runners.values()
    return found
