"""Operators' requests to a controller on fakes: accepted, refused with a reason, carried out."""

import pytest
from structlog.testing import capture_logs

from autoscaler.controller.operators.actions import OperatorActions
from autoscaler.controller.ports.github import RegisteredRunner, RetryLaterError
from autoscaler.controller.ports.operator_requests import (
    OperatorRequestRefusedError,
    RefusalKind,
)
from autoscaler.controller.ports.provider import OutcomeUnknownError
from autoscaler.controller.ports.store import StoreError
from autoscaler.model.identifiers import (
    InstallationId,
    Installations,
    LaunchRequestId,
    MachineId,
    ProviderMachineId,
    RunnerName,
)
from autoscaler.model.machines.machine import MachineState, TerminationReason
from autoscaler.model.plan import MarkUnverified, Plan
from tests.controller.agents import launched
from tests.controller.controllers import Controller, World
from tests.controller.fakes_provider import Instance
from tests.controller.fakes_store import INSTALLATION
from tests.controller.virtual_time import on_virtual_time
from tests.ledger.builders import ALICE, GPU
from tests.planner.fleets import EAST

OLD = InstallationId("01d01d01")
SCOPE = "org:acme"
LIMIT = RetryLaterError("secondary rate limit", 60.0)


class OperatedController:
    """A controller with an empty store whose provider lists one unknown machine, and its operator requests."""

    def __init__(self, installation: str = INSTALLATION) -> None:
        self.world = World()
        self.reported = self.world.east.adopted
        instance = ProviderMachineId("i-1")
        self.world.east.instances[instance] = Instance(
            instance, LaunchRequestId("lost"), GPU, "east/g5.xlarge/a/on-demand", "t0", installation
        )
        self.lists = self.world.lists

    async def open(self) -> "OperatedController":
        """Start the controller and list the machine."""
        self.controller = Controller(self.world)
        await self.controller.resume()
        await self.controller.machine_lists.list_machines(EAST)
        self.operator_actions = self.controller.operator_actions
        return self

    async def refused(self, machine: str, *, force: bool = False) -> OperatorRequestRefusedError:
        """Return the reason for which a termination is refused."""
        with pytest.raises(OperatorRequestRefusedError) as caught:
            await self.operator_actions.terminate(machine, by=ALICE, force=force)
        return caught.value

    async def not_taken(self, installation: str, *, force: bool = False) -> str:
        """Return the reason for which an adoption is refused."""
        with pytest.raises(OperatorRequestRefusedError) as caught:
            await self.operator_actions.adopt(installation, by=ALICE, force=force)
        assert caught.value.kind is RefusalKind.CONTRADICTED
        assert self.reported == []
        return caught.value.reason

    def at_work(self, name: str, *, online: bool = False, busy: bool = False) -> None:
        """Let GitHub list a registration with this name."""
        self.lists.registrations = [RegisteredRunner(1, RunnerName(name), online, busy)]


@pytest.mark.case(
    "only an operator can decide that no job needs a machine",
    topic="EC2's machines",
    source="ARC#4397",
)
@on_virtual_time
async def test_an_operator_terminates_an_unverified_machine_by_machine_id_or_instance_id() -> None:
    for name in ("x-i-1", "i-1"):
        operated = await OperatedController().open()
        port: OperatorActions = operated.operator_actions
        assert [one.machine for one in port.unverified()] == ["x-i-1"]
        assert await port.terminate(name, by=ALICE) == "x-i-1"
        assert (
            operated.world.store.machine(MachineId("x-i-1")).termination.reason
            is TerminationReason.OPERATOR
        )
        assert port.unverified() == []
        await operated.controller.turn()
        assert operated.world.east.ended == [("i-1",)]
        assert operated.lists.asked["runners"] == 1


@pytest.mark.case(
    "a provider cannot be listed after the start: the list of unverified machines is shown as "
    "incomplete",
    topic="EC2's machines",
    source="EC2: request throttling",
)
@on_virtual_time
async def test_a_provider_counts_as_not_listed_until_a_complete_listing_since_the_start() -> None:
    operated = await OperatedController().open()
    port: OperatorActions = operated.operator_actions
    assert port.providers_not_listed() == []
    await operated.controller.kill()
    operated.world.east.list_script.append(OutcomeUnknownError("half a list"))
    await operated.open()
    port = operated.operator_actions
    assert port.providers_not_listed() == [EAST]
    await operated.controller.machine_lists.list_machines(EAST)
    assert port.providers_not_listed() == []


@on_virtual_time
async def test_an_accepted_operator_request_survives_a_restart() -> None:
    operated = await OperatedController().open()
    await operated.operator_actions.terminate("i-1", by=ALICE)
    await operated.controller.kill()
    await operated.open()
    await operated.controller.turn()
    assert operated.world.east.ended == [("i-1",)]


@pytest.mark.case(
    "only an operator can decide that no job needs a machine",
    topic="EC2's machines",
    source="ARC#4397",
)
@on_virtual_time
async def test_a_machine_that_may_run_a_job_is_terminated_only_with_force() -> None:
    operated = await OperatedController().open()
    for shown in ({"busy": True}, {"online": True}):
        operated.at_work(f"ci-{INSTALLATION}-m-1", **shown)
        refused = await operated.refused("i-1")
        assert refused.kind is RefusalKind.CONTRADICTED
        assert "x-i-1 may be running a job: GitHub shows 1 busy or online runner" in refused.reason
        assert "--force" in refused.reason
    await operated.controller.turn()
    assert operated.world.east.ended == []
    asked = operated.lists.asked["runners"]
    with capture_logs() as logs:
        await operated.operator_actions.terminate("i-1", by=ALICE, force=True)
    (line,) = [one for one in logs if one["event"] == "machine_terminated_by_operator"]
    assert (line["by"], line["forced"]) == (ALICE, True)
    assert operated.lists.asked["runners"] == asked
    await operated.controller.turn()
    assert operated.world.east.ended == [("i-1",)]


@on_virtual_time
async def test_an_idle_registration_does_not_prevent_a_termination() -> None:
    operated = await OperatedController().open()
    operated.at_work(f"ci-{INSTALLATION}-m-1")
    await operated.operator_actions.terminate("i-1", by=ALICE)


@on_virtual_time
async def test_a_machine_is_kept_while_github_cannot_be_read() -> None:
    operated = await OperatedController().open()
    operated.lists.broken[SCOPE] = LIMIT
    refused = await operated.refused("i-1")
    assert refused.kind is RefusalKind.UNREACHABLE
    assert "secondary rate limit" in refused.reason
    assert "check the machine itself and repeat the command with --force" in refused.reason
    assert [one.machine for one in operated.operator_actions.unverified()] == ["x-i-1"]


@on_virtual_time
async def test_an_operator_can_terminate_only_known_machines() -> None:
    operated = await OperatedController().open()
    assert (await operated.refused("i-2", force=True)).kind is RefusalKind.UNKNOWN
    await operated.operator_actions.terminate("i-1", by=ALICE)
    again = await operated.refused("i-1", force=True)
    assert (again.kind, "is being terminated already" in again.reason) == (
        RefusalKind.CONTRADICTED,
        True,
    )
    strange = await OperatedController(OLD).open()
    refused = await strange.refused("i-1", force=True)
    assert (refused.kind, "another installation" in refused.reason) == (
        RefusalKind.CONTRADICTED,
        True,
    )


@on_virtual_time
async def test_a_machine_that_is_terminated_already_is_named_with_its_history() -> None:
    operated = await OperatedController().open()
    await operated.operator_actions.terminate("i-1", by=ALICE)
    await operated.controller.turn()
    await operated.controller.machine_lists.list_machines(EAST)
    assert operated.world.store.machine(MachineId("x-i-1")).state is MachineState.TERMINATED
    refused = await operated.refused("i-1")
    assert refused.kind is RefusalKind.CONTRADICTED
    assert refused.reason == "machine x-i-1 is terminated already: see autoscaler history x-i-1"


@on_virtual_time
async def test_an_operators_request_that_is_not_stored_fails() -> None:
    operated = await OperatedController().open()
    operated.world.store.failure = StoreError("disk full")
    with pytest.raises(StoreError):
        await operated.operator_actions.terminate("i-1", by=ALICE)


@on_virtual_time
async def test_an_adopted_installation_is_stored_and_its_machine_is_not_terminated() -> None:
    operated = await OperatedController(OLD).open()
    assert [one.installation for one in operated.operator_actions.unverified()] == [OLD]
    assert "shown are: 01d01d01" in await operated.not_taken("2bad2bad")
    assert "already" in await operated.not_taken(INSTALLATION, force=True)
    with capture_logs() as logs:
        assert await operated.operator_actions.adopt(OLD, by=ALICE) == OLD
    (line,) = [one for one in logs if one["event"] == "installation_adopted"]
    assert line["installation"] == OLD
    assert operated.reported == [OLD]
    saved = await operated.world.store.load(0.0)
    assert saved.installations == Installations(OLD, (INSTALLATION,))
    assert [one.machine for one in operated.operator_actions.unverified()] == ["x-i-1"]
    await operated.controller.turn()
    assert operated.world.telemetry.counts.machines_foreign == 0
    assert operated.world.east.ended == []
    await operated.operator_actions.terminate("x-i-1", by=ALICE)
    await operated.controller.turn()
    assert operated.world.east.ended == [("i-1",)]


@on_virtual_time
async def test_an_adopted_installation_stays_adopted_after_a_restart() -> None:
    operated = await OperatedController(OLD).open()
    await operated.operator_actions.adopt(OLD, by=ALICE)
    saved = await operated.world.store.load(0.0)
    await operated.controller.kill()
    operated.world.catalogue = operated.world.catalogue.with_installations(saved.installations)
    late = ProviderMachineId("i-2")
    made = Instance(
        late, LaunchRequestId("lost"), GPU, "east/g5.xlarge/a/on-demand", "t0", INSTALLATION
    )
    operated.world.east.instances[late] = made
    await operated.open()
    assert [one.machine for one in operated.operator_actions.unverified()] == ["x-i-1", "x-i-2"]
    assert "is a former ID" in await _refused(operated, INSTALLATION)


async def _refused(operated: OperatedController, installation: str) -> str:
    with pytest.raises(OperatorRequestRefusedError) as caught:
        await operated.operator_actions.adopt(installation, by=ALICE, force=True)
    return caught.value.reason


@on_virtual_time
async def test_a_machine_that_the_planner_marks_unverified_is_listed_once_that_is_recorded() -> (
    None
):
    before, _ = await launched(World())
    machine = before.only_machine().id
    await before.kill()
    # Only a machine from before the start can be unverified.
    await before.world.clock.sleep(1.0)
    controller = Controller(before.world)
    await controller.resume()
    await controller.executor.carry_out(Plan((MarkUnverified(machine),)))
    assert controller.world.store.machine(machine).is_unverified
