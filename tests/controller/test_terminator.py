"""Terminations: sent together, repeated if refused, and never without proof."""

from collections.abc import MutableMapping
from typing import Any

import pytest
from structlog.testing import capture_logs

from autoscaler.controller.executor import TERMINATED_AT_ONCE
from autoscaler.controller.ports.github import RegistrationOutcomeUnknownError
from autoscaler.controller.ports.operator_requests import OperatorRequestRefusedError, RefusalKind
from autoscaler.controller.ports.provider import OutcomeUnknownError, ProviderError
from autoscaler.controller.ports.store import StoreError
from autoscaler.ledger.machines.operator_requests import unverified
from autoscaler.model.identifiers import ProviderMachineId
from autoscaler.model.jobs.job import JobState
from autoscaler.model.machines.failures import FailureClass
from autoscaler.model.machines.machine import MachineState, TerminationReason
from tests.controller.agents import Agent, assigned_machine, launched, runner_of, say
from tests.controller.controllers import Controller, World
from tests.controller.fakes_github import AnswerLost
from tests.controller.virtual_time import on_virtual_time
from tests.ledger.builders import ALICE
from tests.planner.fleets import EAST


async def surplus(world: World, machines: int) -> tuple[Controller, list[Agent]]:
    """Return ready machines without jobs whose idle time is over."""
    controller, agents = await launched(world, machines)
    for job in range(1, machines + 1):
        await say(controller, job, JobState.COMPLETED)
    for agent in agents:
        await agent.make_ready()
    for _ in range(3):
        await world.clock.sleep(200.0)
        for agent in agents:
            await controller.bootstrap.heartbeat(agent.machine, agent.nonce)
    return controller, agents


@pytest.mark.case(
    "machines that end together share a request",
    topic="EC2's API",
    source="Karpenter pkg/batcher",
)
@on_virtual_time
async def test_machines_that_terminate_together_share_one_request() -> None:
    world = World()
    controller, agents = await surplus(world, 5)
    await controller.turn()
    assert [set(request) for request in world.east.ended] == [{a.instance.id for a in agents}]
    assert world.telemetry.said.count(("machine_terminated", "gpu", TerminationReason.IDLE)) == 5
    await controller.machine_lists.list_machines(EAST)
    assert {m.state for m in controller.state.machines.values()} == {MachineState.TERMINATED}


@on_virtual_time
async def test_a_termination_is_stored_before_it_is_sent() -> None:
    world = World()
    controller, (agent,) = await surplus(world, 1)
    stored: list[MachineState] = []

    def look(machine: ProviderMachineId) -> None:
        assert machine == agent.instance.id
        stored.append(world.store.machine(agent.machine).state)

    world.east.on_end = look
    await controller.turn()
    assert stored == [MachineState.TERMINATING]


@on_virtual_time
async def test_an_unused_registration_is_deleted_after_the_termination_is_stored() -> None:
    """Rule 3: otherwise, after a crash, the store would have an assignment whose registration is deleted."""
    world = World()
    controller, agent = await assigned_machine(world)
    registered = runner_of(controller)
    stored: list[MachineState] = []
    world.github.on_delete = lambda number: stored.append(world.store.machine(agent.machine).state)
    await world.clock.sleep(600.0)
    await controller.turn()
    assert stored == [MachineState.TERMINATING]
    assert world.github.deleted == [registered.name]
    assert world.east.ended == [(agent.instance.id,)]


@on_virtual_time
async def test_no_machine_is_terminated_before_its_termination_is_stored() -> None:
    world = World()
    controller, _ = await assigned_machine(world)
    await world.clock.sleep(600.0)
    world.store.failure = StoreError("disk full")
    with pytest.raises(StoreError):
        await controller.turn()
    await world.clock.sleep(60.0)
    assert "delete_runner" not in world.github.asked
    assert len(world.github.registrations) == 1
    assert world.east.ended == []


@pytest.mark.parametrize("answered", [True, False], ids=["answered", "answer lost"])
@on_virtual_time
async def test_a_machine_terminated_while_its_runner_is_registered_leaves_no_registration(
    answered: bool,
) -> None:
    world = World()
    controller, (agent,) = await launched(world)
    await agent.make_ready()
    world.github.latency = 700.0
    if not answered:
        world.github.script("register", AnswerLost(RegistrationOutcomeUnknownError("reset")))
    await controller.turn(then=600.0)
    await controller.turn(then=2000.0)
    assert world.east.ended == [(agent.instance.id,)]
    assert len(world.github.registered) == 1
    assert world.github.registrations == {}
    assert controller.crashes == []


@pytest.mark.case(
    "EC2 accepts or refuses TerminateInstances again and again, and the machine still exists",
    topic="EC2's machines",
    source="EC2: TerminateInstances",
)
@pytest.mark.parametrize("refused", [True, False])
@on_virtual_time
async def test_a_machine_that_does_not_terminate_is_reported_from_the_third_request_on(
    refused: bool,
) -> None:
    world = World()
    controller, (agent,) = await surplus(world, 1)
    instance = agent.instance.id
    world.east.stuck.add(instance)
    if refused:
        world.east.end_script.extend([{instance: "OperationNotPermitted: protected"}] * 5)
    reported: list[MutableMapping[str, Any]] = []
    with capture_logs() as logs:
        for expected in (0, 0, 1, 2, 3):
            await controller.turn()
            await controller.machine_lists.list_machines(EAST)
            reported = [one for one in logs if one["event"] == "machine_not_terminated"]
            assert len(reported) == expected
            await controller.turn()
            assert world.telemetry.counts.machines_not_terminating == min(expected, 1)
            assert len(unverified(controller.state)) == min(expected, 1)
            await world.clock.sleep(600.0)
    words = "OperationNotPermitted: protected" if refused else "running"
    operator_actions = controller.operator_actions
    with pytest.raises(
        OperatorRequestRefusedError, match=f"east does not terminate it: {words}"
    ) as caught:
        await operator_actions.terminate(agent.machine, by=ALICE)
    assert caught.value.kind is RefusalKind.CONTRADICTED
    assert reported[-1] == {
        "event": "machine_not_terminated",
        "log_level": "warning",
        "machine": agent.machine,
        "launch_request": "0000000000000001",
        "provider": EAST,
        "provider_id": instance,
        "sku": "gpu",
        "attempts": 5,
        "provider_says": words,
    }
    assert len(world.east.ended) == 5


@pytest.mark.case(
    "EC2 cannot terminate a machine, or refuses",
    topic="EC2's machines",
    source="GARM#854",
)
@pytest.mark.parametrize("how", ["one", "all", "unknown"])
@on_virtual_time
async def test_a_refused_termination_is_repeated(how: str) -> None:
    world = World()
    controller, (one, other) = await surplus(world, 2)
    world.east.end_script.append(
        {
            "one": {one.instance.id: "termination protection"},
            "all": ProviderError(FailureClass.THROTTLED, "RequestLimitExceeded", "later"),
            "unknown": OutcomeUnknownError("reset"),
        }[how]  # type: ignore[arg-type]
    )
    await controller.turn()
    assert controller.state.machines[one.machine].state is MachineState.TERMINATING
    refused = await world.store.history("machine", one.machine)
    assert "termination_refused" in [row.event for row in refused]
    await controller.machine_lists.list_machines(EAST)
    await controller.turn()
    assert len(world.east.ended) == 1, "not at once"
    await world.clock.sleep(120.0)
    await controller.turn()
    assert len(world.east.ended) == 2
    assert one.instance.id in world.east.ended[1]
    assert (other.instance.id in world.east.ended[1]) is (how != "one")
    assert world.east.running == []


@on_virtual_time
async def test_many_terminations_are_sent_in_requests_that_the_provider_accepts() -> None:
    world = World()
    # Their consoles are not read, so none of them waits for a read.
    controller, agents = await surplus(world, 501)
    for _ in range(-(-501 // TERMINATED_AT_ONCE)):
        await controller.turn(0.0)
    await controller.turn()
    assert [len(request) for request in world.east.ended] == [500, 1]
    assert {m for request in world.east.ended for m in request} == {a.instance.id for a in agents}


@on_virtual_time
async def test_no_request_is_sent_to_a_provider_that_left_the_configuration() -> None:
    world = World()
    controller, _ = await surplus(world, 1)
    del world.providers[EAST]
    await controller.turn()
    assert controller.crashes == []
    machine = controller.only_machine()
    assert machine.state is MachineState.TERMINATING
    rows = await world.store.history("machine", machine.id)
    assert "provider east is no longer configured" in [row.detail for row in rows]
