"""Operators pause, drain, quarantine, resume and terminate on a controller on fakes."""

import pytest
from structlog.testing import capture_logs

from autoscaler.controller.operators.holds import OperatorHoldActions
from autoscaler.controller.ports.operator_requests import (
    OperatorRequestRefusedError,
    RefusalKind,
)
from autoscaler.controller.ports.provider import ProviderError
from autoscaler.model.machines.failures import FailureClass
from autoscaler.model.machines.machine import MachineState
from autoscaler.views.listed import Part
from autoscaler.views.machines import MachineFilter, machines
from tests.controller.agents import Agent, launched, queue
from tests.controller.controllers import Controller, World
from tests.controller.virtual_time import on_virtual_time
from tests.ledger.builders import ALICE
from tests.planner.fleets import EAST, catalogue, sku


def holds_of(controller: Controller) -> OperatorHoldActions:
    return controller.parts.operator_holds


async def ready(world: World) -> tuple[Controller, Agent]:
    """Return a controller with a ready machine whose job was cancelled."""
    controller, (agent,) = await launched(world)
    await agent.make_ready()
    return controller, agent


async def refused(request: str, controller: Controller, target: str) -> tuple[RefusalKind, str]:
    with pytest.raises(OperatorRequestRefusedError) as caught:
        await getattr(holds_of(controller), request)(target, by=ALICE)
    return caught.value.kind, caught.value.reason


@on_virtual_time
async def test_a_pause_stops_launches_over_a_restart_until_it_is_resumed() -> None:
    world = World()
    controller = Controller(world)
    await controller.resume()
    with capture_logs() as lines:
        outcome = await holds_of(controller).pause("gpu", by=ALICE)
    assert outcome.target == "sku/gpu"
    assert outcome.done.startswith("sku/gpu is paused by alice since ")
    assert outcome.next == (
        "no job waits now. Jobs wait with the code paused, unless another launch option serves them. "
        "Machines that boot or are ready still run jobs (0 now). `autoscaler resume sku/gpu` ends this"
    )
    (line,) = [one for one in lines if one["event"] == "held_by_operator"]
    assert (line["kind"], line["target"], line["by"]) == ("paused", "sku/gpu", "alice")
    await queue(controller, 1)
    await controller.kill()
    controller = Controller(world)
    await controller.resume()
    await controller.turn()
    assert world.east.sent == []
    outcome = await holds_of(controller).resume("sku/gpu", by=ALICE)
    assert outcome.done.startswith("sku/gpu was paused by alice since ")
    assert outcome.next == (
        "launches are allowed again, unless another hold, a limit or a failure stops them; "
        "1 job waits. `autoscaler explain JOB|LABEL` says what a job waits for"
    )
    await controller.turn()
    assert len(world.east.sent) == 1
    rows = await controller.queries.history("gpu")
    assert [(row.event, row.detail) for row in rows] == [
        ("paused", "by alice"),
        ("resumed", "by alice"),
    ]


@on_virtual_time
async def test_a_repeated_request_changes_nothing_and_says_so() -> None:
    controller = Controller(World())
    await controller.resume()
    holds = holds_of(controller)
    await holds.pause("all", by=ALICE)
    again = await holds.pause("all", by=ALICE)
    assert again.done.startswith("all is already paused by alice")
    assert "no job waits. " in (await holds.resume("all", by=ALICE)).next
    resumed = await holds.resume("all", by=ALICE)
    assert resumed.done == "all is not paused, drained or quarantined"
    assert resumed.next == "nothing has changed"
    assert len(await controller.queries.history("all")) == 2


@on_virtual_time
async def test_a_drained_machine_without_a_job_is_terminated() -> None:
    world = World()
    controller, agent = await ready(world)
    outcome = await holds_of(controller).drain(agent.instance.id, by=ALICE)
    assert outcome.target == f"machine/{agent.machine}"
    assert outcome.next.startswith("it has no job, and is terminated now")
    await controller.turn()
    assert world.east.ended == [(agent.instance.id,)]
    assert (await holds_of(controller).resume(agent.machine, by=ALICE)).next == (
        "it is terminating already"
    )
    kind, reason = await refused("drain", controller, agent.machine)
    assert (kind, "already" in reason) == (RefusalKind.CONTRADICTED, True)


@on_virtual_time
async def test_a_drain_of_a_provider_says_how_many_machines_end_now_and_how_many_later() -> None:
    world = World()
    controller, agents = await launched(world, 2)
    await agents[0].start_runner()
    outcome = await holds_of(controller).drain("east", by=ALICE)
    assert outcome.next.startswith(
        "terminating now: 1 machine without a job; after their jobs: 1; "
    )
    await controller.turn()
    assert world.east.ended == [(agents[1].instance.id,)]
    outcome = await holds_of(controller).drain(agents[0].machine, by=ALICE)
    assert "it runs its one job to the end" in outcome.next


@on_virtual_time
async def test_a_quarantined_machine_is_shown_and_kept_until_it_is_terminated() -> None:
    world = World()
    controller, agent = await ready(world)
    outcome = await holds_of(controller).quarantine(agent.machine, by=ALICE)
    assert "it gets no job" in outcome.next
    await controller.turn()
    (shown,) = [
        one
        for one in machines(controller.queries.fleet(), MachineFilter(), Part(0, 9)).rows
        if one.operator_hold
    ]
    assert (shown.id, shown.state) == (agent.machine, "ready")
    assert str(shown.operator_hold).startswith("quarantined by alice since ")
    faults = [(one.code, one.about) for one in controller.queries.status().faults]
    assert ("quarantined", agent.machine) in faults
    assert world.east.ended == []
    await controller.operator_actions.terminate(agent.machine, by=ALICE)
    await controller.turn()
    assert world.east.ended == [(agent.instance.id,)]


@on_virtual_time
async def test_a_machine_with_a_runner_cannot_be_quarantined() -> None:
    controller, (agent,) = await launched(World())
    await agent.start_runner()
    kind, reason = await refused("quarantine", controller, agent.machine)
    assert kind is RefusalKind.CONTRADICTED
    assert reason == (
        f"machine {agent.machine} cannot be quarantined: it has a runner, and powers itself off after "
        "the job; inspect it while the job runs, or quarantine another machine before it has a runner"
    )


@on_virtual_time
async def test_a_name_of_a_sku_and_a_provider_is_refused_with_the_names_of_both() -> None:
    controller = Controller(World(catalogue(sku(EAST))))
    await controller.resume()
    kind, reason = await refused("pause", controller, EAST)
    assert kind is RefusalKind.CONTRADICTED
    assert reason == f"{EAST} has several meanings: write sku/{EAST} or provider/{EAST}"
    assert (await holds_of(controller).pause(f"sku/{EAST}", by=ALICE)).target == f"sku/{EAST}"


@on_virtual_time
async def test_a_machine_that_was_never_launched_cannot_be_drained() -> None:
    world = World()
    world.east.launch_script.append(ProviderError(FailureClass.CAPACITY, "Code", "why"))
    controller = Controller(world)
    await controller.resume()
    await queue(controller, 1)
    await controller.turn()
    (machine,) = controller.state.machines.values()
    assert not machine.occupies
    kind, reason = await refused("drain", controller, machine.id)
    assert kind is RefusalKind.CONTRADICTED
    assert reason == f"machine {machine.id} is failed already"


@on_virtual_time
async def test_after_its_quarantine_a_failed_machine_is_terminated() -> None:
    world = World()
    controller, (agent,) = await launched(world, 1)
    await agent.attest()
    await holds_of(controller).quarantine(agent.machine, by=ALICE)
    await agent.health_checks(passed=False, detail="gpu_count: 7 of 8")
    assert controller.state.machines[agent.machine].state is MachineState.FAILED
    resumed = await holds_of(controller).resume(agent.machine, by=ALICE)
    assert resumed.next == "it is failed, and is terminated"
    await controller.turn()
    assert world.east.ended == [(agent.instance.id,)]


@on_virtual_time
async def test_only_pause_takes_the_whole_fleet() -> None:
    controller, _ = await launched(World())
    for request_name, name_a in (
        ("drain", "SKU or provider or machine"),
        ("quarantine", "machine"),
    ):
        kind, reason = await refused(request_name, controller, "all")
        assert kind is RefusalKind.CONTRADICTED
        assert f"name a {name_a}" in reason
        assert "autoscaler pause all stops launches" in reason
    assert controller.state.operator_holds == {}


@on_virtual_time
async def test_a_mistyped_name_is_refused_with_the_name_that_was_meant() -> None:
    controller, _ = await launched(World())
    for request_name in ("pause", "drain", "resume", "retry"):
        _, reason = await refused(request_name, controller, "gpuu")
        assert reason.endswith(" is called gpuu: did you mean gpu?")
    _, reason = await refused("quarantine", controller, "gpuu")
    assert "did you mean" not in reason


@pytest.mark.parametrize(
    ("request_name", "target", "kind"),
    [
        ("pause", "nothing", RefusalKind.UNKNOWN),
        ("quarantine", "gpu", RefusalKind.UNKNOWN),
        ("pause", "machine/0000000000000002", RefusalKind.UNKNOWN),
        ("resume", "provider/gpu", RefusalKind.UNKNOWN),
    ],
)
@on_virtual_time
async def test_a_target_that_a_request_does_not_fit_is_refused(
    request_name: str, target: str, kind: RefusalKind
) -> None:
    controller, _ = await launched(World())
    found, reason = await refused(request_name, controller, target)
    assert (found, f" is called {target}: " in reason) == (kind, True)
    assert controller.state.operator_holds == {}


@on_virtual_time
async def test_a_zone_is_refused_with_what_to_do_instead() -> None:
    controller, _ = await launched(World())
    found, reason = await refused("drain", controller, "a")
    assert found is RefusalKind.UNKNOWN
    assert "it is a zone; to launch nothing there, remove its subnet from fleet.yaml" in reason


@on_virtual_time
async def test_only_force_terminates_a_machine_with_a_runner() -> None:
    world = World()
    controller, (agent,) = await launched(world)
    await agent.start_runner()
    with pytest.raises(OperatorRequestRefusedError) as caught:
        await controller.operator_actions.terminate(agent.machine, by=ALICE)
    assert "may be running a job: its runner" in caught.value.reason
    assert "has no job yet" in caught.value.reason
    await controller.turn()
    assert world.east.ended == []
    await controller.operator_actions.terminate(agent.machine, by=ALICE, force=True)
    await controller.turn()
    assert world.east.ended == [(agent.instance.id,)]


@on_virtual_time
async def test_a_machine_from_before_the_start_is_terminated_once_its_agent_has_called() -> None:
    world = World()
    controller, agent = await ready(world)
    await controller.kill()
    controller = Controller(world)
    await controller.resume()
    with pytest.raises(OperatorRequestRefusedError, match="has sent no request since"):
        await controller.operator_actions.terminate(agent.machine, by=ALICE)
    agent.controller = controller
    await agent.poll(0.0)
    assert controller.only_machine().state is MachineState.READY
    await controller.operator_actions.terminate(agent.machine, by=ALICE)
