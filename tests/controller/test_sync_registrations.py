"""Registrations whose machine does not exist: which are removed, and which are kept."""

from typing import Any

import pytest

from autoscaler.controller.github.orphans import (
    CONFIRMED_AFTER,
    LOST_FOR,
    Registrations,
    has_lost_its_machine,
)
from autoscaler.controller.ports.github import RegisteredRunner
from autoscaler.model import events as e
from autoscaler.model.identifiers import InstallationId, MachineId, RunnerName
from autoscaler.model.machines.machine import Machine, MachineState
from tests.ledger.builders import ALICE, START, World, listed

OURS = "ci-0badcafe-"
UNKNOWN = f"{OURS}00000000000000aa-1"


def registered(name: str, *, online: bool = False, busy: bool = False) -> RegisteredRunner:
    return RegisteredRunner(1, RunnerName(name), online, busy)


def removed(world: World, first: RegisteredRunner, second: RegisteredRunner | None = None) -> bool:
    """Return True if two lists a minute apart, with a complete listing in between, remove it."""
    registrations = Registrations()
    assert registrations.listed([first], world.state, world.now) == []
    world.after(CONFIRMED_AFTER)
    world.lists(*(world.listed(m.id) for m in world.state.machines.values() if m.occupies))
    world.after(1.0)
    found = registrations.listed([second or first], world.state, world.now)
    return found == [second or first]


@pytest.mark.case(
    "registrations that are in no record, and whose machine is gone",
    topic="GitHub's REST API",
    source="actions/runner#3669",
)
def test_a_registration_of_this_fleet_without_a_machine_is_removed() -> None:
    assert removed(World(), registered(UNKNOWN))


def test_the_registration_of_a_terminated_machine_is_removed() -> None:
    world = World()
    world.make_ready()
    world.lists(world.listed("c0", terminated=True))
    assert world.machine("c0").state is MachineState.TERMINATED
    assert removed(world, registered(f"{OURS}c0-1"))


@pytest.mark.parametrize(
    "name",
    [
        "of-another-fleet",
        "ci-0badcafe",
        "ci-0badcafe-1",
        "ci-0badcafe-00000000000000aa-x",
        "ci-deadbeef-00000000000000aa-1",
        "other-0badcafe-00000000000000aa-1",
        "x-ci-0badcafe-00000000000000aa-1",
    ],
)
def test_only_names_of_this_installation_are_removed(name: str) -> None:
    assert not removed(World(), registered(name))


@pytest.mark.case(
    "an adoption gives up an installation's id: resources with that id are still found and deleted",
    topic="EC2's machines",
    source="ARC#4397",
)
@pytest.mark.parametrize("installation", ["0badcafe", "01d01d01", "2bad2bad"])
def test_registrations_with_former_ids_are_removed_after_their_machine_is_gone(
    installation: str,
) -> None:
    world = World()
    world.make_ready()
    for taken in ("01d01d01", "2bad2bad"):
        world.do(e.InstallationAdopted, InstallationId(taken), ALICE)
    name = f"ci-{installation}-c0-1"
    assert removed(world, registered(f"ci-{installation}-00000000000000aa-1"))
    assert not removed(world, registered(name)), "its machine is there"
    world.lists(world.listed("c0", terminated=True))
    assert not removed(world, registered(name, online=True))
    assert removed(world, registered(name))
    assert not removed(world, registered("ci-3bad3bad-c0-1"))


@pytest.mark.parametrize(("online", "busy"), [(True, False), (False, True), (True, True)])
def test_a_runner_that_was_listed_as_busy_or_online_is_kept(online: bool, busy: bool) -> None:
    idle, at_work = registered(UNKNOWN), registered(UNKNOWN, online=online, busy=busy)
    assert not removed(World(), at_work)
    assert not removed(World(), at_work, idle)
    assert not removed(World(), idle, at_work)


def test_the_registration_of_a_lost_machine_is_removed_after_five_minutes() -> None:
    world = World()
    world.make_ready()
    assert not removed(world, registered(f"{OURS}c0-1"))
    for moment in (1.0, 62.0):
        world.after(moment)
        world.lists()
    assert world.machine("c0").state is MachineState.LOST
    ours = registered(f"{OURS}c0-1")
    world.after(LOST_FOR - CONFIRMED_AFTER - 2.0)
    assert not removed(world, ours), "it may be missing in the lists only"
    world.after(1.0)
    assert not removed(world, registered(ours.name, busy=True)), "GitHub waits for its job"
    assert removed(world, ours)


def test_a_registration_of_a_written_off_slot_is_removed_like_an_unknown_one() -> None:
    """A backup was made during a launch request; since then its machine registered and ended."""
    world = World()
    world.send(1)
    world.restart(3600.0)
    ours = registered(f"{OURS}c0-1")
    assert not has_lost_its_machine(ours, world.state, False, world.now), "it may turn up"
    for _ in range(2):
        world.after(61.0).lists()
    assert world.machine("c0").state is MachineState.FAILED
    assert not has_lost_its_machine(ours, world.state, True, world.now), "it may be another one's"
    assert not removed(world, registered(ours.name, online=True))
    assert removed(world, ours)


def test_after_a_restore_no_unknown_registration_is_removed_while_a_machine_is_unverified() -> None:
    world = World()
    world.lists(listed("newer than the backup", call="unknown"))
    assert any(machine.work.unverified for machine in world.state.machines.values())
    registrations = Registrations()
    for _ in range(3):
        assert registrations.listed([registered(UNKNOWN)], world.state, world.now) == []
        assert not registrations.suspects
        world.after(CONFIRMED_AFTER)


def test_no_registration_is_removed_before_every_provider_was_listed() -> None:
    world, registrations = World(now=START), Registrations()
    for _ in range(5):
        assert registrations.listed([registered(UNKNOWN)], world.state, world.now) == []
        assert registrations.suspects
        world.after(CONFIRMED_AFTER)
    world.lists(complete=False)
    assert registrations.listed([registered(UNKNOWN)], world.state, world.now) == []
    world.lists()
    assert registrations.listed([registered(UNKNOWN)], world.state, world.now) != []


def test_a_registration_must_be_in_lists_a_minute_apart_without_a_gap() -> None:
    world, registrations = World(), Registrations()
    one = registered(UNKNOWN)
    assert registrations.listed([one], world.state, world.now) == []
    world.after(CONFIRMED_AFTER - 1.0)
    world.lists()
    assert registrations.listed([one], world.state, world.now) == []
    assert registrations.listed([], world.state, world.now) == []
    assert not registrations.suspects
    world.after(1.0)
    assert registrations.listed([one], world.state, world.now) == []


def test_a_long_list_of_registrations_scans_the_machines_once() -> None:
    world = World()
    for _ in range(3):
        world.make_ready()
    machines = _Counted(world.state.machines)
    world.state.machines = machines
    many = [
        RegisteredRunner(n, RunnerName(f"{OURS}{n:016x}-1"), online=False, busy=False)
        for n in range(1, 50)
    ]
    Registrations().listed(many, world.state, world.now)
    assert machines.walked == 0


class _Counted(dict[MachineId, Machine]):
    """A dictionary of machines that counts how often it is scanned."""

    walked = 0

    def values(self) -> Any:
        self.walked += 1
        return super().values()
