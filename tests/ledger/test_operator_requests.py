"""Operators' requests: unverified machines, adoption, and the reasons against a request."""

import pytest

from autoscaler.ledger.machines.operator_requests import (
    evidence_of_life,
    refusal_of_adoption,
    unverified,
)
from autoscaler.model import events as e
from autoscaler.model.identifiers import (
    InstallationId,
    Installations,
    JobId,
    MachineId,
    ProviderName,
    RunnerName,
    SkuName,
)
from autoscaler.model.jobs.job import JobState
from autoscaler.model.machines.failures import FailureClass
from autoscaler.model.machines.machine import MachineState, TerminationReason
from autoscaler.model.machines.unverified import UnverifiedMachine
from autoscaler.model.plan import Terminate
from tests.ledger.builders import ALICE, GPU, START, World, failure, listed
from tests.planner.fleets import EAST

INSTALLATION = InstallationId("0badcafe")
OLD = InstallationId("01d01d01")
ORPHAN = MachineId("x-i-9")


def orphaned() -> World:
    """A machine with this installation's ID and an unknown launch request."""
    world = World()
    world.lists(listed("i-9", call="lost"))
    return world


def lost_store() -> World:
    """Two machines of an older installation, with this fleet's name."""
    world = World()
    world.lists(
        *(listed(one, call="lost", installation=OLD, dollars=3.0) for one in ("i-1", "i-2"))
    )
    return world


def test_an_unverified_machine_that_an_operator_releases_is_terminated_once() -> None:
    world = orphaned()
    assert world.intents(Terminate) == []
    world.do(e.MachineReleasedByOperator, ORPHAN, ALICE)
    (end,) = world.intents(Terminate)
    assert (end.machine, end.reason_code) == (ORPHAN, TerminationReason.OPERATOR)
    world.carry_out()
    assert world.states() == {ORPHAN: "terminating"}
    assert world.machine(ORPHAN).termination.reason is TerminationReason.OPERATOR
    assert world.intents(Terminate) == []


def test_an_operators_release_survives_a_restart_and_a_late_report_of_the_machine() -> None:
    world = orphaned()
    world.do(e.MachineReleasedByOperator, ORPHAN, ALICE)
    world.do(e.MachineSeen, ORPHAN)
    world.restart(10.0)
    assert [one.machine for one in world.intents(Terminate)] == [ORPHAN]


@pytest.mark.parametrize("machine", ["c0", "d0", "f0", "unknown"])
def test_releasing_a_machine_that_cannot_be_terminated_changes_nothing(machine: str) -> None:
    """One that is not launched yet, terminates already, was not launched, or is not known."""
    world = World()
    world.send(1, "c")
    world.make_ready(1, "d")
    world.do(e.TerminationRequested, MachineId("d0"), TerminationReason.IDLE, "idle")
    world.send(1, "f")
    world.answer("f", failures=[failure(FailureClass.CAPACITY)])
    world.ledger.take_changes()
    world.do(e.MachineReleasedByOperator, MachineId(machine), ALICE)
    assert not world.ledger.take_changes()
    assert world.intents(Terminate) == []


def test_unverified_machines_are_listed_with_what_to_do() -> None:
    world = orphaned()
    world.make_ready(1)
    world.lists(listed("i-9", call="lost"), listed("i-c0"), listed("i-1", installation=OLD))
    ours, other = unverified(world.state)
    assert (ours.machine, ours.provider_id, ours.since) == (ORPHAN, "i-9", START)
    assert ours.why == "its launch request is not in the store"
    assert "autoscaler terminate x-i-9" in ours.what_to_do
    assert (other.machine, other.provider_id, other.launched) == (None, "i-1", "t0")
    assert (other.installation, other.since) == (OLD, None)
    assert f"autoscaler adopt {OLD}" in other.what_to_do
    world.do(e.MachineReleasedByOperator, ORPHAN, ALICE)
    assert [one.machine for one in unverified(world.state)] == [None]


def test_unverified_machines_are_listed_in_the_order_of_provider_ids() -> None:
    world = World()
    shown = [listed("i-9", call="lost"), listed("i-8", call="lost")]
    strangers = [listed("i-7", installation=OLD), listed("i-6", installation=OLD)]
    world.lists(*shown, *strangers)
    found = unverified(world.state)
    assert [one.provider_id for one in found] == ["i-8", "i-9", "i-6", "i-7"]
    assert found[1] == UnverifiedMachine(
        ORPHAN,
        EAST,
        shown[0].provider_id,
        "0badcafe",
        GPU,
        START,
        "t0",
        "its launch request is not in the store",
        "it terminates after its job; if no job needs it: autoscaler terminate x-i-9",
    )
    assert found[3] == UnverifiedMachine(
        None,
        EAST,
        strangers[0].provider_id,
        OLD,
        GPU,
        None,
        "t0",
        f"made by installation {OLD}, and this one is 0badcafe",
        "if the store of that installation was lost and no other controller uses it: autoscaler "
        f"adopt {OLD}; if one does, give this fleet another name",
    )


def life(world: World, machine: str, *at_work: str) -> str | None:
    names = [RunnerName(name) for name in at_work]
    return evidence_of_life(world.state, world.machine(machine), names, world.now)


def test_a_runner_without_a_known_machine_may_be_on_any_unverified_machine() -> None:
    world = orphaned()
    world.ready()
    assert life(world, ORPHAN) is None
    # An unverified machine cannot have a runner of another fleet, another installation or a known machine.
    others = (f"lab-{OLD}-m-1", "another-0badcafe-m-1", "ci-0badcafe-c0-1")
    assert life(world, ORPHAN, *others) is None
    assert life(world, ORPHAN, "ci-0badcafe-m-1", "ci-0badcafe-n-1") == (
        "GitHub shows 2 busy or online runners that may be on it, such as ci-0badcafe-m-1, ci-0badcafe-n-1"
    )


def test_at_most_three_of_the_runners_that_may_be_on_the_machine_are_named() -> None:
    world = orphaned()
    names = [f"ci-0badcafe-{one}-1" for one in "dcba"]
    words = "busy or online runners that may be on it, such as"
    assert (
        life(world, ORPHAN, *names[1:]) == f"GitHub shows 3 {words} {', '.join(sorted(names[1:]))}"
    )
    assert (
        life(world, ORPHAN, *names) == f"GitHub shows 4 {words} {', '.join(sorted(names[1:]))}, ..."
    )


def test_a_job_in_progress_on_a_runner_without_a_known_machine_protects_unverified_machines() -> (
    None
):
    world = orphaned()
    world.starts(1, "ci-0badcafe-m-1")
    assert (
        life(world, ORPHAN)
        == "GitHub shows 1 busy or online runner that may be on it, such as ci-0badcafe-m-1"
    )
    world.completes(1)
    assert life(world, ORPHAN) is None


def found_again() -> World:
    """A machine that had an assignment, was lost, and is listed again."""
    world = World()
    world.ready()
    for moment in (1.0, 61.0):
        world.now = START + moment
        world.lists()
    world.now = START + 3000.0
    world.lists(listed("i-c0"))
    assert world.machine("c0").work.unverified
    return world


def test_only_its_own_runner_or_agent_protects_a_machine_with_a_known_id() -> None:
    world = found_again()
    world.now += 1000.0
    assert life(world, "c0", "ci-0badcafe-m-1") is None
    assert life(world, "c0", "ci-0badcafe-c0-1") is not None
    assert life(world, "c0", f"ci-{OLD}-c0-1") is not None, "the store may be of before a take-over"
    world.do(e.MachineSeen, MachineId("c0"))
    world.now += 60.0
    assert life(world, "c0") == "its agent sent a request 60 s ago"
    world.now += 840.0
    assert life(world, "c0") is None


def test_a_runner_named_before_an_adoption_still_protects_its_machine() -> None:
    world = found_again()
    foreign = listed("i-1", call="lost", installation=OLD)
    world.lists(listed("i-c0"), foreign)
    world.do(e.InstallationAdopted, OLD, ALICE)
    world.now += 1000.0
    assert life(world, "c0") is None
    assert life(world, "c0", "ci-0badcafe-c0-1") is not None
    # The runner's machine is known, so it cannot be on x-i-1.
    assert life(world, "x-i-1", "ci-0badcafe-c0-1") is None


# --- an older installation ---------------------------------------------------------------------


def used(world: World) -> tuple[int, float, int, dict[SkuName, int]]:
    usage = world.fleet().usage
    by_sku = {sku: count for sku, count in usage.by_sku.items() if count}
    return usage.machines, usage.dollars_per_hour, usage.by_quota["east/G"], by_sku


def test_machines_of_an_adopted_installation_belong_to_the_fleet_and_are_unverified() -> None:
    world = lost_store()
    before = used(world)
    world.do(e.InstallationAdopted, OLD, ALICE)
    assert world.state.catalogue.installations.own == OLD
    assert world.states() == {"x-i-1": "assigned", "x-i-2": "assigned"}
    assert used(world) == before
    assert {machine.provider for machine in world.state.machines.values()} == {EAST}
    assert {one.machine for one in unverified(world.state)} == {"x-i-1", "x-i-2"}
    assert world.intents(Terminate) == []
    changes = world.ledger.take_changes()
    assert changes.installations == Installations(OLD, (INSTALLATION,))
    (row,) = (row for row in changes.history if row.kind == "installation")
    assert (row.record, row.event, row.detail) == (OLD, "adopted", "by alice; was 0badcafe")
    assert world.ledger.take_changes().installations is None


def test_a_machine_that_two_providers_list_is_adopted_once() -> None:
    world = World()
    shown = (listed("i-1", call="lost", installation=OLD, dollars=3.0),)
    for provider in ("east", "west"):
        world.do(e.MachinesListed, ProviderName(provider), world.now, True, shown)
    world.do(e.InstallationAdopted, OLD, ALICE)
    assert world.states() == {"x-i-1": "assigned"}
    assert world.fleet().usage.machines == 1


def test_machines_of_the_former_id_stay_in_the_fleet() -> None:
    world = lost_store()
    world.make_ready(1)
    world.do(e.InstallationAdopted, OLD, ALICE)
    olds = tuple(listed(one, call="lost", installation=OLD) for one in ("i-1", "i-2"))
    for _ in range(3):
        world.now += 61.0
        world.do(e.MachineSeen, MachineId("c0"), True)
        world.lists(*olds, listed("i-c0"))
    assert world.states() == {"c0": "ready", "x-i-1": "assigned", "x-i-2": "assigned"}
    assert world.state.foreign == {"east": {}}
    assert world.fleet().usage.machines == 3


def test_a_runner_named_before_an_adoption_leaves_memory_with_its_machine() -> None:
    world = lost_store()
    name = world.ready()
    world.do(e.InstallationAdopted, OLD, ALICE)
    world.do(e.MachineExited, MachineId("c0"), "bye")
    world.lists(listed("i-c0", terminated=True), complete=False)
    world.after(700.0)
    assert name not in world.state.runners


def refusal(world: World, installation: str, *, force: bool = False) -> str:
    return refusal_of_adoption(world.state, InstallationId(installation), force=force) or ""


def test_an_unlisted_or_own_installation_cannot_be_adopted() -> None:
    world = lost_store()
    assert refusal(world, OLD) == ""
    assert "is the ID of this installation already" in refusal(world, "0badcafe", force=True)
    assert f"shown are: {OLD}" in refusal(world, "1badcafe", force=True)
    assert "shown are: none" in refusal(World(), OLD)
    others = [f"0000000{one}" for one in "dcba"]
    world.lists(*(listed(f"i-{one}", installation=one) for one in others))
    shown = "0000000a, 0000000b, 0000000c"
    assert refusal(world, "1badcafe").endswith(f"; shown are: {shown}")


@pytest.mark.case(
    "the store is lost: an operator names the installation whose machines belong to the fleet",
    topic="EC2's machines",
    source="ARC#4397",
)
def test_a_store_with_machines_adopts_only_with_force() -> None:
    world = lost_store()
    world.make_ready(2)
    assert refusal(world, OLD) == (
        "this store is not empty: installation 0badcafe has 2 machines of its own. If another "
        f"controller uses {OLD}, give this fleet another name. If its store is lost and no controller "
        "uses it, repeat the command with --force: the machines of this store stay in this fleet"
    )
    assert refusal(world, OLD, force=True) == ""


def test_no_installation_is_adopted_while_a_launch_request_is_in_flight() -> None:
    world = lost_store()
    world.send(1)
    assert "1 launch request in flight" in refusal(world, OLD, force=True)


def test_an_unlisted_unverified_machine_and_a_job_without_a_runner_cause_no_error() -> None:
    world = orphaned()
    world.observe(1, JobState.IN_PROGRESS)
    assert world.state.jobs[JobId(1)].runner_name is None
    assert life(world, ORPHAN) is None
    assert world.machine(ORPHAN).state is MachineState.ASSIGNED
