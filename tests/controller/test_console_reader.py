"""The console output of a machine that did not become ready: read once before its termination, and stored."""

import asyncio

import pytest
from structlog.testing import capture_logs

from autoscaler.controller.machines.console import (
    AT_ONCE,
    BEFORE_TERMINATION,
    HIDDEN,
    MOST_WAITING,
    PATIENCE,
    SHOWN,
    readable,
)
from autoscaler.controller.machines.terminator import GATHER_FOR
from autoscaler.controller.ports.provider import MOST_CONSOLE, OutcomeUnknownError, ProviderError
from autoscaler.model.identifiers import MachineId, ProviderMachineId
from autoscaler.model.machines.failures import FailureClass
from autoscaler.model.machines.machine import Machine, MachineState, TerminationReason
from tests.controller.agents import launched
from tests.controller.controllers import Controller, World
from tests.controller.virtual_time import on_virtual_time
from tests.planner.fleets import EAST

BOOT_DEADLINE = 15 * 60.0
HEALTH_CHECK_DEADLINE = 10 * 60.0


async def settled(controller: Controller) -> None:
    """Wait until no read is under way."""
    assert await controller.effects.drain(PATIENCE * MOST_WAITING) == 0


def one_at(controller: Controller, instance: ProviderMachineId) -> Machine:
    """Return the record of one of the provider's machines."""
    (found,) = (
        m for m in controller.state.machines.values() if m.placement.provider_id == instance
    )
    return found


async def reported(world: World, machine: MachineId) -> list[str]:
    """Return the console texts in the machine's history."""
    rows = await world.store.history("machine", machine)
    return [row.detail for row in rows if row.event == "console"]


@pytest.mark.case(
    "why a machine did not come up: its history has the end of its console output",
    topic="EC2's machines",
    source="EC2: GetConsoleOutput",
)
@on_virtual_time
async def test_the_console_of_a_machine_that_misses_its_boot_deadline_is_kept() -> None:
    world = World()
    controller, (agent,) = await launched(world)
    world.east.console_script.append("[  1.2] Kernel panic - not syncing\r\n")
    await world.clock.sleep(BOOT_DEADLINE)
    with capture_logs() as logs:
        await controller.turn()
        await asyncio.sleep(1.0)
    await settled(controller)
    machine = one_at(controller, agent.instance.id)
    assert machine.termination.reason is TerminationReason.DEADLINE
    failed = ("launch_failures", "gpu", FailureClass.BOOT_DEADLINE)
    assert world.telemetry.said.count(failed) == 1
    assert await reported(world, machine.id) == ["[  1.2] Kernel panic - not syncing"]
    (line,) = (one for one in logs if one["event"] == "machine_not_ready")
    assert line["shown"] == "[  1.2] Kernel panic - not syncing"
    assert line["reason"] == machine.reason != ""
    assert line["provider_id"] == agent.instance.id


@on_virtual_time
async def test_the_console_is_read_once_despite_repeated_terminations() -> None:
    world = World()
    controller, (agent,) = await launched(world)
    world.east.end_script.append(OutcomeUnknownError("reset"))
    await world.clock.sleep(BOOT_DEADLINE)
    await controller.turn()
    await world.clock.sleep(120.0)
    await controller.turn()
    await settled(controller)
    assert len(world.east.ended) == 2
    assert world.east.consoles_asked == [agent.instance.id]


@pytest.mark.parametrize("late", ["health-checks", "ready"])
@on_virtual_time
async def test_the_console_is_read_after_other_missed_deadlines_too(late: str) -> None:
    world = World()
    controller, (agent,) = await launched(world)
    await agent.attest()
    if late == "ready":
        await agent.health_checks()
    await world.clock.sleep(HEALTH_CHECK_DEADLINE)
    await controller.turn()
    await settled(controller)
    assert await reported(world, agent.machine) == ["the console output is empty"]


@pytest.mark.case(
    "why a machine did not come up: its history has the end of its console output",
    topic="EC2's machines",
    source="EC2: GetConsoleOutput",
)
@on_virtual_time
async def test_the_console_of_a_machine_that_shuts_down_before_it_is_ready_is_read() -> None:
    world = World()
    controller, (agent,) = await launched(world)
    world.east.console_script.append("no agent on this image")
    agent.instance.leaving = True
    await controller.machine_lists.list_machines(EAST)
    agent.instance.terminated = True
    await controller.machine_lists.list_machines(EAST)
    await settled(controller)
    machine = one_at(controller, agent.instance.id)
    assert (machine.state, machine.failure) == (MachineState.TERMINATED, FailureClass.UNKNOWN)
    assert await reported(world, machine.id) == ["no agent on this image"]
    assert len(world.east.consoles_asked) == 1


@pytest.mark.case(
    "a sidecar ends again and again: its log is in the machine's history",
    topic="Kubernetes",
    source="Kubernetes: Pod Lifecycle",
)
@on_virtual_time
async def test_the_log_of_a_pod_whose_container_does_not_start_is_read_once() -> None:
    world = World()
    controller, (agent,) = await launched(world)
    world.east.console_script.append("missing entries in /etc/subuid")
    agent.instance.cannot_start = True
    agent.instance.reason = "CrashLoopBackOff: container dind: back-off 40s"
    agent.instance.failure = FailureClass.CONFIGURATION
    await controller.machine_lists.list_machines(EAST)
    await controller.turn()
    await settled(controller)
    machine = one_at(controller, agent.instance.id)
    assert machine.termination.reason is TerminationReason.CANNOT_START
    assert await reported(world, machine.id) == ["missing entries in /etc/subuid"]
    assert len(world.east.consoles_asked) == 1


@pytest.mark.parametrize("why", ["no node", "quota", "health-checks", "idle"])
@on_virtual_time
async def test_the_console_is_not_read_if_the_machines_failure_has_a_reason(why: str) -> None:
    world = World()
    controller, (agent,) = await launched(world)
    if why == "no node":
        agent.instance.cannot_start = True
        agent.instance.reason = "Unschedulable: 0/1 nodes are available"
        agent.instance.failure = FailureClass.CAPACITY
    elif why == "quota":
        agent.instance.terminated = True
        agent.instance.reason = "Client.VolumeLimitExceeded: words"
        agent.instance.failure = FailureClass.QUOTA
    elif why == "health-checks":
        await agent.attest()
        await agent.health_checks(passed=False)
    else:
        await agent.make_ready()
        agent.instance.terminated = True
    await controller.machine_lists.list_machines(EAST)
    await controller.turn()
    await settled(controller)
    assert world.east.consoles_asked == []


@pytest.mark.case(
    "the API server keeps no log of a deleted pod: it is read before the deletion",
    topic="Kubernetes",
    source="Kubernetes: Pod Lifecycle",
)
@pytest.mark.parametrize("why", ["deadline", "cannot start"])
@on_virtual_time
async def test_a_machine_is_terminated_after_its_console_was_read(why: str) -> None:
    world = World()
    controller, (agent,) = await launched(world)
    world.east.latency = 2.0
    world.east.console_script.append("no room in the cache")
    if why == "deadline":
        await world.clock.sleep(BOOT_DEADLINE)
    else:
        agent.instance.cannot_start = True
        agent.instance.failure = FailureClass.CONFIGURATION
        await controller.machine_lists.list_machines(EAST)
    await controller.turn(1.5)
    assert world.east.ended == []
    await asyncio.sleep(1.0)
    assert world.east.ended == [(agent.instance.id,)]
    assert await reported(world, one_at(controller, agent.instance.id).id) == [
        "no room in the cache"
    ]


@pytest.mark.case(
    "a console has no latest output, is empty, may not be read, or does not answer",
    topic="EC2's machines",
    source="EC2: instance console output",
)
@on_virtual_time
async def test_an_unreadable_console_is_reported_and_delays_a_termination_for_seconds_only() -> (
    None
):
    world = World()
    controller, agents = await launched(world, 3)
    denied = ProviderError(FailureClass.CONFIGURATION, "UnauthorizedOperation", "not allowed")
    world.east.console_script.extend([3600.0, denied, OutcomeUnknownError("reset")])
    await world.clock.sleep(BOOT_DEADLINE)
    await controller.turn(1.0)
    first, second, third = (agent.instance.id for agent in agents)
    assert {m for request in world.east.ended for m in request} == {second, third}
    await asyncio.sleep(BEFORE_TERMINATION - 1.0 + GATHER_FOR + 0.1)
    assert world.east.ended[1:] == [(first,)]
    await settled(controller)
    said = [
        (await reported(world, machine.id))[0]
        for machine in controller.state.machines.values()
        if machine.termination.reason is TerminationReason.DEADLINE
    ]
    assert sorted(said) == [
        "the console output could not be read within 10 s",
        "the console output could not be read: UnauthorizedOperation: not allowed",
        "the console output could not be read: reset",
    ]
    assert controller.crashes == []


@pytest.mark.case(
    "the nodes of a few pods do not answer: the logs of the others are read before their deletion",
    topic="Kubernetes",
    source="Kubernetes: Pod Lifecycle",
)
@on_virtual_time
async def test_consoles_that_do_not_answer_do_not_stop_the_other_reads() -> None:
    world = World()
    controller, _ = await launched(world, 20)
    world.east.console_script.extend([3600.0] * (AT_ONCE - 1) + ["no room"] * 20)
    await world.clock.sleep(BOOT_DEADLINE)
    await controller.turn()
    await settled(controller)
    said = [text for one in controller.state.machines for text in await reported(world, one)]
    assert said.count("no room") == 20 - (AT_ONCE - 1)


@pytest.mark.case(
    "more machines fail at once than consoles are read: the log says how many are not",
    topic="EC2's machines",
    source="EC2: GetConsoleOutput",
)
@on_virtual_time
async def test_the_number_of_waiting_console_reads_is_bounded_and_the_others_are_counted() -> None:
    world = World()
    controller, _ = await launched(world, MOST_WAITING + 30)
    world.east.console_script.extend([3600.0] * MOST_WAITING)
    await world.clock.sleep(BOOT_DEADLINE)
    with capture_logs() as logs:
        await controller.turn(1.0)
    assert sum(map(len, world.east.ended)) == 30
    (line,) = (one for one in logs if one["event"] == "consoles_not_read")
    assert (line["provider"], line["machines"], line["limit"]) == (EAST, 30, MOST_WAITING)
    await asyncio.sleep(BEFORE_TERMINATION)
    assert sum(map(len, world.east.ended)) == MOST_WAITING + 30
    await asyncio.sleep(PATIENCE * MOST_WAITING / AT_ONCE)
    assert len(controller.effects) == 0
    # A later failure is read again.
    assert not controller.parts.console_reader._reading


JIT = "eyIucnVubmVyIjoi" + "QUJD" * 100 + "=="


@pytest.mark.case(
    "an image prints credentials on its console",
    topic="EC2's machines",
    source="CWE-532",
)
@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("", ""),
        ("a\r\nb\n\n", "a\nb"),
        ("\x1b[1;31mred\x1b[0m \x07bell \x00nul \u202eover", "red bell nul over"),
        (f"run.sh --jitconfig {JIT}\nnext", f"run.sh --jitconfig {HIDDEN}\nnext"),
        (
            "-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----\nup",
            f"{HIDDEN}\nup",
        ),
        ("-----BEGIN PRIVATE KEY-----\nabc", HIDDEN),
        ("token ghs_" + "a" * 36, f"token {HIDDEN}"),
        (
            "root=PARTUUID=0e1c2d3e-1111-2222-3333-0123456789ab ro",
            "root=PARTUUID=0e1c2d3e-1111-2222-3333-0123456789ab ro",
        ),
        (
            "/var/lib/cloud/instance/scripts/part-001: line 3: exit",
            "/var/lib/cloud/instance/scripts/part-001: line 3: exit",
        ),
        ("-" * 60 + "\nkey /" + "aB3/" * 10, "-" * 60 + f"\nkey {HIDDEN}"),
        ("first " + "word " * 1000 + "last", None),
    ],
)
def test_stored_console_text_is_printable_bounded_and_hides_credentials(
    written: str, shown: str | None
) -> None:
    kept = readable(written)
    if shown is None:
        assert len(kept) == SHOWN
        assert kept.endswith("last")
    else:
        assert kept == shown


def test_a_credential_cut_at_the_bound_is_removed() -> None:
    half = "x" * 20 + "\nend"
    assert readable("." * (MOST_CONSOLE - len(half)) + half) == "end"
