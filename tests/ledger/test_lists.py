"""A provider's listing: missing machines, terminated machines, other installations, a restored store."""

import pytest

from autoscaler.model import events as e
from autoscaler.model.identifiers import MachineId
from autoscaler.model.jobs.runners import RunnerState
from autoscaler.model.machines.failures import FailureClass
from autoscaler.model.machines.machine import MachineState, TerminationReason
from autoscaler.model.plan import ReadRunner, Terminate
from tests.ledger.builders import GPU, START, World, listed
from tests.planner.fleets import EAST


def misses(world: World, *moments: float, complete: bool = True) -> list[str]:
    """Apply empty listings that began at these seconds after START. Return the machine's state after each."""
    seen = []
    for moment in moments:
        world.now = START + moment
        world.lists(complete=complete)
        seen.append(world.machine("c0").state.value)
    return seen


@pytest.mark.case(
    "absence in one list does not prove that a machine is gone",
    topic="EC2's API",
    source="EC2: eventual consistency",
)
def test_a_machine_is_lost_after_two_complete_listings_a_minute_apart_without_it() -> None:
    world = World()
    world.make_ready()
    assert misses(world, 1, 30, 60.9, 61) == ["ready", "ready", "ready", "lost"]
    machine = world.machine("c0")
    assert (machine.progress.ended_at, machine.reason) == (START + 61, "not listed any more")
    assert machine.failure is None
    assert world.fleet().usage.machines == 0


def test_a_machine_missing_from_incomplete_listings_is_not_lost() -> None:
    world = World()
    world.make_ready()
    assert misses(world, 1, 100, 200, complete=False) == ["ready"] * 3
    assert world.machine("c0").absent_since is None


def test_a_listing_that_began_before_a_launch_does_not_count_against_it() -> None:
    world = World()
    world.make_ready()
    assert misses(world, 0, 60) == ["ready", "ready"]
    assert world.machine("c0").absent_since == START + 60


def test_a_listing_with_the_machine_resets_its_absence() -> None:
    world = World()
    world.make_ready()
    misses(world, 1)
    world.now = START + 30
    world.lists(world.listed("c0"), complete=False)
    assert world.machine("c0").absent_since is None
    assert misses(world, 62, 100) == ["ready", "ready"]


def test_listings_of_another_provider_lose_no_machine() -> None:
    world = World()
    world.make_ready()
    for moment in (10.0, 100.0):
        at = START + moment
        world.ledger.apply(e.MachinesListed(at, "west", at, True, ()))  # type: ignore[arg-type]
    assert world.states() == {"c0": "ready"}


def test_a_slot_without_a_machine_is_never_lost() -> None:
    world = World()
    world.send(1)
    assert misses(world, 10, 100, 1000) == ["requested"] * 3


@pytest.mark.parametrize("stage", ["launched", "booted"])
def test_a_machine_that_is_lost_before_ready_counts_against_its_launch_option(stage: str) -> None:
    world = World()
    world.launch(1)
    if stage == "booted":
        world.boot("c0")
    assert misses(world, 1, 61) == [stage, "lost"]
    assert world.machine("c0").failure is FailureClass.UNKNOWN
    struck = world.state.cooldowns["option:gpu/0"]
    assert (struck.failures, struck.until) == (1, START + 61)
    assert struck.reason == "not listed any more"


def test_a_lost_machine_of_a_pruned_launch_request_counts_against_nothing() -> None:
    world = World()
    world.launch(1)
    world.state.drop(world.call())
    assert misses(world, 1, 61) == ["launched", "lost"]
    assert world.state.cooldowns == {}


@pytest.mark.parametrize("given", ["", "Server.InsufficientInstanceCapacity"])
def test_one_listing_as_terminated_is_enough(given: str) -> None:
    world = World()
    world.launch(1)
    world.lists(listed("i-c0", terminated=True, reason=given), complete=False)
    machine = world.machine("c0")
    assert (machine.state, machine.reason) == (MachineState.TERMINATED, given or "ended")
    assert machine.failure is FailureClass.UNKNOWN
    assert world.state.cooldowns["option:gpu/0"].reason == (given or "ended")


def test_a_ready_machine_that_terminates_does_not_count_against_its_launch_option() -> None:
    world = World()
    world.make_ready()
    world.lists(world.listed("c0", terminated=True))
    assert (world.machine("c0").state, world.machine("c0").failure) == (
        MachineState.TERMINATED,
        None,
    )
    assert "option:gpu/0" not in {k for k, c in world.state.cooldowns.items() if c.failures}


def test_a_terminated_machine_stays_terminated_whatever_is_listed() -> None:
    world = World()
    world.make_ready()
    world.lists(world.listed("c0", terminated=True))
    world.now += 5
    world.lists(world.listed("c0", terminated=True))
    world.lists(world.listed("c0"))
    assert world.states() == {"c0": "terminated"}
    assert world.machine("c0").progress.ended_at == START


@pytest.mark.parametrize("way", ["terminating", "exited", "failed"])
def test_a_machine_that_was_to_terminate_and_is_not_listed_is_terminated(way: str) -> None:
    world = World()
    world.make_ready()
    if way == "terminating":
        world.do(e.TerminationRequested, MachineId("c0"), TerminationReason.IDLE, "idle")
    elif way == "exited":
        world.assignment("c0")
        world.do(e.MachineExited, MachineId("c0"), "bye")
    else:
        world.boot("c0")
        world.do(e.HealthChecksReported, MachineId("c0"), False, "no GPU")
    assert misses(world, 1, 61) == [way, "terminated"]


def test_the_registration_of_a_lost_machine_is_closed() -> None:
    world = World()
    runner = world.ready()
    assert misses(world, 1, 61) == ["assigned", "lost"]
    assert world.runner(runner).state is RunnerState.DONE
    assert world.runner(runner).reason == "its machine is terminated: not listed any more"


@pytest.mark.parametrize("may_run_job", [True, False])
def test_a_lost_machine_that_is_listed_again_is_kept_if_it_may_be_at_work(
    may_run_job: bool,
) -> None:
    world = World()
    world.make_ready()
    if may_run_job:
        world.assignment("c0")
    misses(world, 1, 61)
    world.now += 3000
    world.do(e.TimePassed)
    world.lists(listed("i-c0"))
    machine = world.machine("c0")
    assert world.fleet().usage.machines == 1
    if may_run_job:
        assert (machine.state, bool(machine.work.unverified)) == (MachineState.ASSIGNED, True)
        assert machine.due == world.now + 900.0
        assert world.intents(Terminate) == []
    else:
        assert machine.state is MachineState.FAILED
        assert world.intents(Terminate) == [
            Terminate(machine.id, TerminationReason.SURPLUS, machine.reason)
        ]


def test_a_lost_machine_can_become_terminated_but_not_lost_again() -> None:
    world = World()
    world.make_ready()
    misses(world, 1, 61, 200, 300)
    assert world.machine("c0").progress.ended_at == START + 61
    world.lists(listed("i-c0", terminated=True))
    assert world.states() == {"c0": "terminated"}


def test_a_listing_adds_image_and_launch_time_and_removes_neither() -> None:
    world = World()
    world.launch(1)
    world.lists(listed("i-c0", launch_time="t9"))
    assert (world.machine("c0").placement.image, world.machine("c0").placement.launch_time) == (
        "ami-1",
        "t9",
    )
    world.lists(listed("i-c0", launch_time=""))
    assert world.machine("c0").placement.launch_time == "t9"


def test_what_a_machine_waits_for_is_kept_until_its_agent_reports() -> None:
    world = World()
    world.launch(1)
    for reason in ("Unschedulable: 0/1 nodes are available", "x" * 501, "", "Unschedulable"):
        world.lists(listed("i-c0", reason=reason))
        assert world.machine("c0").progress.stage == reason[:500]
    world.boot("c0")
    assert world.machine("c0").progress.stage == ""
    world.do(e.MachineReportedStage, MachineId("c0"), "disk")
    world.lists(listed("i-c0", reason="Unschedulable"))
    world.boot("c0")
    assert world.machine("c0").progress.stage == "disk"


def test_a_listing_without_changes_stores_nothing() -> None:
    world = World()
    world.launch(1)
    world.ledger.take_changes()
    world.lists(listed("i-c0"))
    assert not world.ledger.take_changes()


def test_a_machine_of_this_fleet_without_a_known_launch_request_is_unverified() -> None:
    world = World()
    world.lists(listed("i-9", call="lost-with-the-store", dollars=2.5))
    machine = world.machine("x-i-9")
    assert (machine.state, bool(machine.work.unverified), machine.work.may_run_job) == (
        MachineState.ASSIGNED,
        True,
        True,
    )
    assert (machine.progress.assigned_at, machine.work.last_seen, machine.due) == (
        START,
        START,
        START + 60,
    )
    assert machine.reason == "its launch request is not in the store"
    assert (machine.sku, machine.slot, machine.placement.dollars_per_hour) == (GPU, -1, 2.5)
    usage = world.fleet().usage
    assert (usage.machines, usage.dollars_per_hour, usage.by_quota["east/G"]) == (1, 2.5, 4)
    world.now += 60
    assert world.plan().intents == (ReadRunner(machine.id),)
    world.now = START + 86_400
    assert [end.reason_code for end in world.intents(Terminate)] == [TerminationReason.LIFETIME]


def test_unknown_terminated_machines_are_ignored() -> None:
    world = World()
    world.lists(listed("i-9", call="unknown", terminated=True))
    assert world.states() == {}


def foreign(provider_id: str, *, terminated: bool = False) -> e.ListedMachine:
    return listed(provider_id, installation="someone-else", terminated=terminated, dollars=3.0)


def used(world: World) -> tuple[int, float, int, int]:
    usage = world.fleet().usage
    return (
        usage.machines,
        usage.dollars_per_hour,
        usage.by_sku.get(GPU, 0),
        usage.by_quota.get("east/G", 0),
    )


def test_machines_of_another_installation_count_in_the_caps_and_are_not_terminated() -> None:
    world = World()
    world.lists(foreign("i-1"), foreign("i-2"), complete=False)
    world.lists(foreign("i-1"), foreign("i-2"))
    assert used(world) == (2, 6.0, 2, 8)
    assert world.states() == {}
    world.now += 1_000_000
    assert world.plan().intents == ()


def test_foreign_machines_are_dropped_when_they_terminate_or_are_not_listed() -> None:
    world = World()
    world.lists(foreign("i-1"), foreign("i-2"), foreign("i-3"))
    world.lists(foreign("i-1", terminated=True), complete=False)
    assert used(world) == (2, 6.0, 2, 8)
    world.lists(foreign("i-3"))
    assert used(world) == (1, 3.0, 1, 4)
    world.lists(foreign("i-9", terminated=True), complete=False)
    assert used(world) == (1, 3.0, 1, 4)
    world.lists()
    assert used(world) == (0, 0.0, 0, 0)


def test_a_machine_that_was_taken_for_terminated_and_is_listed_again_is_terminated() -> None:
    world = World()
    world.make_ready()
    world.do(e.TerminationRequested, MachineId("c0"), TerminationReason.IDLE, "idle")
    assert misses(world, 1, 61)[-1] == "terminated"
    world.lists(listed("i-c0"))
    assert world.states() == {"c0": "failed"}
    assert [end.machine for end in world.intents(Terminate)] == ["c0"]


def test_a_machine_whose_slot_left_memory_is_unverified_and_not_surplus() -> None:
    world = World()
    world.launch(2)
    world.state.drop(world.machine("c1"))
    world.lists(listed("i-c0"), listed("i-c1"))
    found = world.machine("x-i-c1")
    assert (found.state, bool(found.work.unverified)) == (MachineState.ASSIGNED, True)


@pytest.mark.parametrize("sent", [True, False])
def test_a_machine_listed_as_foreign_before_it_is_known_is_counted_once(
    sent: bool,
) -> None:
    world = World()
    if sent:
        world.send(1)
    world.lists(foreign("i-c0"), complete=False)
    if sent:
        world.answer("c", "i-c0")
    world.lists(listed("i-c0"), complete=False)
    assert world.fleet().usage.machines == 1
    assert world.state.foreign == {"east": {}}


@pytest.mark.parametrize("cut", [(), (1,), (3, 4), (1, 2, 5)])
def test_a_listing_in_pieces_has_the_same_effect_as_in_one_piece(cut: tuple[int, ...]) -> None:
    def after(cuts: tuple[int, ...]) -> tuple[object, ...]:
        world = World()
        world.make_ready(4)
        world.launch(2, "d")
        stranger, unknown = listed("i-x", installation="of others"), listed("i-9", call="unknown")
        shown = (listed("i-c0"), stranger, listed("i-c2"), unknown, listed("i-d1", call="d"))
        for _ in range(2):
            world.now += 100.0
            began, first = world.now, 0
            for end in cuts:
                piece = shown[first:end]
                world.do(e.MachinesListed, EAST, began, False, piece, True)
                first = end
            ids = frozenset(one.provider_id for one in shown)
            world.do(e.MachinesListed, EAST, began, True, shown[first:], False, ids)
        state = world.state
        return state.machines, state.foreign, state.machines_listed_at, state.machines_used

    assert after(cut) == after(())
