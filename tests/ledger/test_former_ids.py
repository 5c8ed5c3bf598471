"""Machines and runners with a former installation ID belong to this fleet; which IDs cannot be adopted."""

import pytest

from autoscaler.ledger.operator_requests import life_of, refusal_of_adoption, unverified
from autoscaler.model import events as e
from autoscaler.model.identifiers import InstallationId, MachineId, RunnerName
from autoscaler.model.installations import MOST_FORMER, Installations
from autoscaler.model.plan import Terminate
from tests.ledger.builders import World, listed
from tests.planner.fleets import catalogue, sku

BEFORE = InstallationId("0badcafe")
OLD = InstallationId("01d01d01")
C0 = MachineId("c0")


def taken_over(world: World | None = None) -> World:
    """An installation that took another one over, and has no machine of that one any more."""
    world = world or World()
    world.do(e.InstallationAdopted, OLD)
    return world


def test_the_id_before_is_a_former_one_and_to_be_stored_with_the_new_one() -> None:
    world = taken_over()
    assert world.state.catalogue.installations == Installations(OLD, (BEFORE,))
    assert world.ledger.take_changes().installations == Installations(OLD, (BEFORE,))
    third = InstallationId("2bad2bad")
    world.do(e.InstallationAdopted, third)
    assert world.ledger.take_changes().installations == Installations(third, (OLD, BEFORE))


def test_only_the_newest_adopted_ids_are_kept() -> None:
    world = World()
    taken = [InstallationId(f"{number:08x}") for number in range(MOST_FORMER + 2)]
    for one in taken:
        world.do(e.InstallationAdopted, one)
    assert world.state.catalogue.installations.all == tuple(reversed(taken[1:]))


def test_another_catalogue_changes_no_id() -> None:
    world = taken_over()
    world.ledger.replace_catalogue(catalogue(sku("cpu")))
    assert list(world.state.catalogue.skus) == ["cpu"]
    assert world.state.catalogue.installations == Installations(OLD, (BEFORE,))


@pytest.mark.case(
    "a take-over gives up an installation's id: resources with that id are still found and deleted",
    topic="EC2's machines",
    source="ARC#4397",
)
def test_a_machine_that_is_in_no_record_is_ours_by_a_former_id_and_possibly_at_work() -> None:
    world = taken_over()
    world.lists(listed("i-9", call="lost", installation=BEFORE), listed("i-8", installation="a"))
    assert world.states() == {"x-i-9": "assigned"}
    assert world.machine("x-i-9").work.unverified
    assert [one.machine for one in unverified(world.state)] == ["x-i-9", None]
    assert world.fleet().usage.machines == 2
    assert world.intents(Terminate) == []
    world.do(e.MachineReleasedByOperator, MachineId("x-i-9"))
    assert [end.machine for end in world.intents(Terminate)] == ["x-i-9"]


def test_a_machine_of_a_launch_request_from_before_takes_its_slot() -> None:
    world = World()
    world.send(1)
    world.do(e.LaunchOutcomeUnknown, world.call().id, "no answer")
    taken_over(world)
    world.lists(listed("i-1", installation=BEFORE))
    assert (world.states(), world.machine("c0").placement.provider_id) == (
        {"c0": "launched"},
        "i-1",
    )


def test_a_machine_that_was_another_s_when_it_was_first_seen_is_counted_once() -> None:
    """A backup from before the take-over is put in place, and the id is taken over once more."""
    world = World()
    shown = listed("i-9", call="lost", installation=OLD)
    world.lists(shown)
    taken_over(world)
    world.do(e.InstallationAdopted, InstallationId("2bad2bad"))
    world.lists(shown)
    assert world.states() == {"x-i-9": "assigned"}
    assert world.state.foreign == {"east": {}}
    assert world.fleet().usage.machines == 1


def test_a_restored_store_leaves_unverified_what_it_shows_for_a_machine_with_a_former_id_too() -> (
    None
):
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


def test_a_job_on_a_runner_named_before_shows_that_its_machine_has_an_assignment() -> None:
    world = taken_over()
    world.launch(1)
    world.restart(3600.0)
    world.starts(1, f"ci-{BEFORE}-c0-1")
    assert (world.machine("c0").state, bool(world.machine("c0").work.unverified)) == (
        "assigned",
        True,
    )


def test_a_runner_named_before_whose_machine_is_not_known_may_be_on_any_that_is_unverified() -> (
    None
):
    world = taken_over()
    world.lists(listed("i-9", call="lost", installation=OLD))
    orphan = world.machine("x-i-9")
    for installation in (BEFORE, OLD):
        name = RunnerName(f"ci-{installation}-m-1")
        found = life_of(world.state, orphan, [name], world.now)
        assert found == f"1 runners at work may be on it, such as {name}"
    assert life_of(world.state, orphan, [RunnerName("ci-2bad2bad-m-1")], world.now) is None


def test_every_runner_named_before_leaves_memory_with_its_machine() -> None:
    world = World()
    world.make_ready(1)
    first = world.register("c0")
    world.do(e.RunnerClosed, first, "its hand-over did not arrive")
    second = world.assignment("c0")
    taken_over(world)
    assert {first, second} <= set(world.state.runners)
    world.do(e.MachineExited, C0, "bye")
    world.lists(listed("i-c0", terminated=True), complete=False)
    world.after(700.0)
    assert (world.states(), list(world.state.runners)) == ({}, [])


# --- ids that are not taken over ------------------------------------------------------------


def test_an_id_that_this_installation_gave_up_is_not_taken_over_again() -> None:
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
    """A longer one makes names that GitHub refuses, and EC2's filters take `*` for everything."""
    world = World()
    world.lists(listed("i-1", installation=strange))
    words = (
        "no controller creates such an ID, so it cannot be adopted: terminate its machines at their "
        "provider, or give this fleet another name"
    )
    assert refusal_of_adoption(world.state, InstallationId(strange), force=True) == (
        f"an installation's id is 8 of the characters 0 to 9 and a to f: {words}"
    )
    assert "shown are: none" in str(refusal_of_adoption(world.state, OLD, force=True))
    (shown,) = unverified(world.state)
    assert (shown.installation, shown.what_to_do) == (strange, words)
