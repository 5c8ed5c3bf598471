"""Machines and runners with a former installation ID belong to this fleet; which IDs cannot be adopted."""

import pytest

from autoscaler.ledger.machines.operator_requests import (
    evidence_of_life,
    refusal_of_adoption,
    unverified,
)
from autoscaler.model import events as e
from autoscaler.model.identifiers import (
    MOST_FORMER,
    InstallationId,
    Installations,
    MachineId,
    RunnerName,
)
from autoscaler.model.plan import Terminate
from tests.ledger.builders import ALICE, World, listed
from tests.planner.fleets import catalogue, sku

BEFORE = InstallationId("0badcafe")
OLD = InstallationId("01d01d01")
C0 = MachineId("c0")


def taken_over(world: World | None = None) -> World:
    """Return the world after an adoption, with no machine of the former ID."""
    world = world or World()
    world.do(e.InstallationAdopted, OLD, ALICE)
    return world


def test_an_adoption_stores_the_new_id_with_all_former_ids() -> None:
    world = taken_over()
    assert world.state.catalogue.installations == Installations(OLD, (BEFORE,))
    assert world.ledger.take_changes().installations == Installations(OLD, (BEFORE,))
    third = InstallationId("2bad2bad")
    world.do(e.InstallationAdopted, third, ALICE)
    assert world.ledger.take_changes().installations == Installations(third, (OLD, BEFORE))


def test_the_number_of_former_ids_is_bounded() -> None:
    world = World()
    taken = [InstallationId(f"{number:08x}") for number in range(MOST_FORMER + 2)]
    for one in taken:
        world.do(e.InstallationAdopted, one, ALICE)
    assert world.state.catalogue.installations.all == tuple(reversed(taken[1:]))


def test_replacing_the_catalogue_keeps_the_installation_ids() -> None:
    world = taken_over()
    world.ledger.replace_catalogue(catalogue(sku("cpu")))
    assert list(world.state.catalogue.skus) == ["cpu"]
    assert world.state.catalogue.installations == Installations(OLD, (BEFORE,))


@pytest.mark.case(
    "an adoption gives up an installation's id: resources with that id are still found and deleted",
    topic="EC2's machines",
    source="ARC#4397",
)
def test_an_unknown_machine_with_a_former_id_belongs_to_the_fleet_and_is_unverified() -> None:
    world = taken_over()
    world.lists(listed("i-9", call="lost", installation=BEFORE), listed("i-8", installation="a"))
    assert world.states() == {"x-i-9": "assigned"}
    assert world.machine("x-i-9").work.unverified
    assert [one.machine for one in unverified(world.state)] == ["x-i-9", None]
    assert world.fleet().usage.machines == 2
    assert world.intents(Terminate) == []
    world.do(e.MachineReleasedByOperator, MachineId("x-i-9"), ALICE)
    assert [end.machine for end in world.intents(Terminate)] == ["x-i-9"]


def test_a_machine_with_a_former_id_fills_the_slot_of_its_launch_request() -> None:
    world = World()
    world.send(1)
    world.do(e.LaunchOutcomeUnknown, world.call().id, "no answer")
    taken_over(world)
    world.lists(listed("i-1", installation=BEFORE))
    assert (world.states(), world.machine("c0").placement.provider_id) == (
        {"c0": "launched"},
        "i-1",
    )


def test_a_foreign_machine_that_is_adopted_is_counted_once() -> None:
    """An operator restores a backup from before the adoption, and adopts the ID again."""
    world = World()
    shown = listed("i-9", call="lost", installation=OLD)
    world.lists(shown)
    taken_over(world)
    world.do(e.InstallationAdopted, InstallationId("2bad2bad"), ALICE)
    world.lists(shown)
    assert world.states() == {"x-i-9": "assigned"}
    assert world.state.foreign == {"east": {}}
    assert world.fleet().usage.machines == 1


def test_after_a_restore_a_machine_with_a_former_id_is_unverified_too() -> None:
    world = taken_over()
    world.make_ready(1)
    world.restart(3600.0)
    assert world.state.catalogue.installations == Installations(OLD, (BEFORE,))
    shown = listed("i-c0", installation=OLD), listed("i-9", call="lost", installation=BEFORE)
    for _ in range(2):
        world.lists(*shown)
        world.now += 121.0
    assert world.states() == {"c0": "assigned", "x-i-9": "assigned"}
    assert world.machine("c0").work.unverified


def test_a_job_on_a_runner_with_a_former_id_proves_that_its_machine_has_an_assignment() -> None:
    world = taken_over()
    world.launch(1)
    world.restart(3600.0)
    world.starts(1, f"ci-{BEFORE}-c0-1")
    assert (world.machine("c0").state, bool(world.machine("c0").work.unverified)) == (
        "assigned",
        True,
    )


def test_a_runner_with_a_former_id_and_no_known_machine_may_be_on_any_unverified_machine() -> None:
    world = taken_over()
    world.lists(listed("i-9", call="lost", installation=OLD))
    orphan = world.machine("x-i-9")
    for installation in (BEFORE, OLD):
        name = RunnerName(f"ci-{installation}-m-1")
        found = evidence_of_life(world.state, orphan, [name], world.now)
        assert found == f"GitHub shows 1 busy or online runner that may be on it, such as {name}"
    assert evidence_of_life(world.state, orphan, [RunnerName("ci-2bad2bad-m-1")], world.now) is None


def test_all_runners_of_a_machine_leave_memory_with_it_after_an_adoption() -> None:
    world = World()
    world.make_ready(1)
    first = world.register("c0")
    world.do(e.RunnerClosed, first, "its configuration did not arrive")
    second = world.assignment("c0")
    taken_over(world)
    assert {first, second} <= set(world.state.runners)
    world.do(e.MachineExited, C0, "bye")
    world.lists(listed("i-c0", terminated=True), complete=False)
    world.after(700.0)
    assert (world.states(), list(world.state.runners)) == ({}, [])


# --- ids that cannot be adopted ------------------------------------------------------------


def test_a_former_id_of_this_installation_cannot_be_adopted() -> None:
    assert refusal_of_adoption(taken_over().state, BEFORE, force=True) == (
        "0badcafe is a former ID of this installation: its machines already belong to this fleet"
    )


@pytest.mark.case(
    "an installation's tag may contain any text",
    topic="EC2's machines",
    source="EC2: tags",
)
@pytest.mark.parametrize(
    "strange", ["", "1badcaf", "1badcafe0", "1BADCAFE", "1badcafe\n", "*", "1badcaf?", "x" * 256]
)
def test_a_malformed_installation_id_cannot_be_adopted(strange: str) -> None:
    """GitHub refuses the names that a longer ID makes, and `*` in EC2's filters matches everything."""
    world = World()
    world.lists(listed("i-1", installation=strange))
    assert refusal_of_adoption(world.state, InstallationId(strange), force=True) == (
        "an installation's ID has 8 of the characters 0 to 9 and a to f, so this one cannot be adopted. "
        "`autoscaler unverified` lists the machines of other installations with their IDs"
    )
    assert "shown are: none" in str(refusal_of_adoption(world.state, OLD, force=True))
    (shown,) = unverified(world.state)
    words = (
        "its ID does not have the form of an installation's ID, so it cannot be adopted; terminate the "
        "machine at its provider, or give this fleet another name"
    )
    assert (shown.installation, shown.what_to_do) == (strange, words)
