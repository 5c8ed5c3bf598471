"""The console output of a machine that did not become ready: read once, stored, and never waited for."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from structlog.testing import capture_logs

from autoscaler.controller.console_reader import HIDDEN, MOST_WAITING, PATIENCE, SHOWN, readable
from autoscaler.controller.ports.provider import MOST_CONSOLE, OutcomeUnknownError, ProviderError
from autoscaler.model.failures import FailureClass
from autoscaler.model.identifiers import MachineId, ProviderMachineId
from autoscaler.model.machines import Machine, MachineState, TerminationReason
from tests.controller.agents import launched
from tests.controller.controllers import Controller, World
from tests.controller.virtual_time import on_virtual_time
from tests.planner.fleets import EAST

BOOT_DEADLINE = 15 * 60.0
HEALTH_CHECK_DEADLINE = 10 * 60.0


@asynccontextmanager
async def asking(controller: Controller) -> AsyncIterator[None]:
    """Run the console reader, as beside a running loop."""
    consoles = controller.parts.console_reader
    tasks = [asyncio.ensure_future(task()) for task in consoles.tasks]
    yield
    await asyncio.sleep(PATIENCE * (MOST_WAITING + 1))
    for task in tasks:
        task.cancel()


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
def test_the_console_of_a_machine_that_misses_its_boot_deadline_is_kept() -> None:
    @on_virtual_time
    async def scenario() -> None:
        world = World()
        controller, (agent,) = await launched(world)
        world.east.console_script.append("[  1.2] Kernel panic - not syncing\r\n")
        async with asking(controller):
            await world.clock.sleep(BOOT_DEADLINE)
            with capture_logs() as logs:
                await controller.turn()
                await asyncio.sleep(1.0)
        machine = one_at(controller, agent.instance.id)
        assert machine.termination.reason is TerminationReason.DEADLINE
        failed = ("launch_failures", "gpu", FailureClass.BOOT_DEADLINE)
        assert world.telemetry.said.count(failed) == 1
        assert await reported(world, machine.id) == ["[  1.2] Kernel panic - not syncing"]
        (line,) = (one for one in logs if one["event"] == "machine_not_ready")
        assert line["shown"] == "[  1.2] Kernel panic - not syncing"
        assert line["provider_id"] == agent.instance.id

    scenario()


def test_the_console_is_read_once_despite_repeated_terminations() -> None:
    @on_virtual_time
    async def scenario() -> None:
        world = World()
        controller, (agent,) = await launched(world)
        async with asking(controller):
            world.east.end_script.append(OutcomeUnknownError("reset"))
            await world.clock.sleep(BOOT_DEADLINE)
            await controller.turn()
            await world.clock.sleep(120.0)
            await controller.turn()
        assert len(world.east.ended) == 2
        assert world.east.consoles_asked == [agent.instance.id]

    scenario()


@pytest.mark.parametrize("late", ["health-checks", "ready"])
def test_the_console_is_read_after_other_missed_deadlines_too(late: str) -> None:
    @on_virtual_time
    async def scenario() -> None:
        world = World()
        controller, (agent,) = await launched(world)
        async with asking(controller):
            await agent.attest()
            if late == "ready":
                await agent.health_checks()
            await world.clock.sleep(HEALTH_CHECK_DEADLINE)
            await controller.turn()
        assert await reported(world, agent.machine) == ["the console output is empty"]

    scenario()


@pytest.mark.case(
    "why a machine did not come up: its history has the end of its console output",
    topic="EC2's machines",
    source="EC2: GetConsoleOutput",
)
def test_the_console_of_a_machine_that_shuts_down_before_it_is_ready_is_read() -> None:
    @on_virtual_time
    async def scenario() -> None:
        world = World()
        controller, (agent,) = await launched(world)
        world.east.console_script.append("no agent on this image")
        async with asking(controller):
            agent.instance.leaving = True
            await controller.poller.list_machines(EAST)
            agent.instance.terminated = True
            await controller.poller.list_machines(EAST)
        machine = one_at(controller, agent.instance.id)
        assert (machine.state, machine.failure) == (MachineState.TERMINATED, FailureClass.UNKNOWN)
        assert await reported(world, machine.id) == ["no agent on this image"]
        assert len(world.east.consoles_asked) == 1

    scenario()


@pytest.mark.case(
    "a sidecar ends again and again: its log is in the machine's history",
    topic="Kubernetes",
    source="Kubernetes: Pod Lifecycle",
)
def test_the_log_of_a_pod_whose_container_does_not_start_is_read_once() -> None:
    @on_virtual_time
    async def scenario() -> None:
        world = World()
        controller, (agent,) = await launched(world)
        world.east.console_script.append("missing entries in /etc/subuid")
        async with asking(controller):
            agent.instance.cannot_start = True
            agent.instance.reason = "CrashLoopBackOff: container dind: back-off 40s"
            agent.instance.failure = FailureClass.CONFIGURATION
            await controller.poller.list_machines(EAST)
            await controller.turn()
        machine = one_at(controller, agent.instance.id)
        assert machine.termination.reason is TerminationReason.CANNOT_START
        assert await reported(world, machine.id) == ["missing entries in /etc/subuid"]
        assert len(world.east.consoles_asked) == 1

    scenario()


@pytest.mark.parametrize("why", ["no node", "quota", "health-checks", "idle"])
def test_the_console_is_not_read_if_the_machines_failure_has_a_reason(why: str) -> None:
    @on_virtual_time
    async def scenario() -> None:
        world = World()
        controller, (agent,) = await launched(world)
        async with asking(controller):
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
            await controller.poller.list_machines(EAST)
            await controller.turn()
        assert world.east.consoles_asked == []

    scenario()


@pytest.mark.case(
    "a console has no latest output, is empty, may not be read, or does not answer",
    topic="EC2's machines",
    source="EC2: instance console output",
)
def test_an_unreadable_console_is_reported_and_delays_no_termination() -> None:
    @on_virtual_time
    async def scenario() -> None:
        world = World()
        controller, agents = await launched(world, 3)
        denied = ProviderError(FailureClass.CONFIGURATION, "UnauthorizedOperation", "not allowed")
        world.east.console_script.extend([3600.0, denied, OutcomeUnknownError("reset")])
        async with asking(controller):
            await world.clock.sleep(BOOT_DEADLINE)
            await controller.turn()
            assert {m for request in world.east.ended for m in request} == {
                agent.instance.id for agent in agents
            }
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

    scenario()


def test_the_number_of_waiting_console_reads_is_bounded() -> None:
    @on_virtual_time
    async def scenario() -> None:
        world = World()
        controller, _ = await launched(world, MOST_WAITING + 30)
        async with asking(controller):
            await world.clock.sleep(BOOT_DEADLINE)
            await controller.turn()
        assert MOST_WAITING <= len(world.east.consoles_asked) <= MOST_WAITING + 1

    scenario()


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
