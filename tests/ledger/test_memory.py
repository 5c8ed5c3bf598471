"""What is stored, what is indexed, and when records are pruned from memory."""

import sys
from types import FrameType

import pytest

from autoscaler.ledger.ledger import KEPT_FOR, PRUNED_AT_ONCE
from autoscaler.ledger.records.class_cache import MOST_CLASSES
from autoscaler.ledger.records.state import kind_and_key
from autoscaler.model import events as e
from autoscaler.model.changes import HistoryRow
from autoscaler.model.identifiers import JobId, LaunchRequestId, MachineId, SkuName
from autoscaler.model.jobs.job import JobState
from autoscaler.model.machines.failures import FailureClass
from autoscaler.model.machines.machine import MachineState
from autoscaler.model.plan import Launch
from autoscaler.model.reasons.table import Unmatched
from tests.ledger.builders import GPU, GPU_CLASS, START, WHY, World, failure, listed
from tests.planner.fleets import EAST, catalogue, sku


def test_take_changes_returns_each_change_once() -> None:
    world = World()
    world.queue(1)
    changes = world.ledger.take_changes()
    assert changes.records == (world.job(1),)
    assert changes.history == (HistoryRow(START, "job", "1", "queued", "webhook"),)
    assert not world.ledger.take_changes()


def test_a_record_changed_twice_is_stored_once() -> None:
    world = World()
    world.queue(1)
    world.starts(1, "r")
    assert world.ledger.take_changes().records == (world.job(1),)


def test_every_kind_of_record_has_its_key() -> None:
    world = World()
    world.queue(1)
    name = world.ready()
    records = (world.job(1), world.machine("c0"), world.runner(name), world.call())
    assert [kind_and_key(record) for record in records] == [
        ("job", "1"),
        ("machine", "c0"),
        ("runner", name),
        ("launch_request", "c"),
    ]


def test_completed_jobs_leave_memory_after_ten_minutes() -> None:
    world = World()
    world.completes(1, completed_at=START + 50)
    world.completes(2, completed_at=START + 60)
    world.after(650)
    assert set(world.state.jobs) == {1, 2}
    world.after(0.5)
    assert set(world.state.jobs) == {2}
    assert world.ledger.take_changes().records != ()


def test_a_completed_job_leaves_memory_with_the_machine_of_its_runner() -> None:
    world = World()
    world.queue(1)
    runner = world.ready()
    world.starts(1, runner)
    world.completes(1, runner_name=runner)
    world.after(650)
    assert set(world.state.jobs) == {1}
    world.lists(listed("i-c0", terminated=True))
    world.after(601)
    assert (world.state.machines, world.state.jobs) == ({}, {})
    assert not world.state.prunable


def test_a_pruned_job_is_not_stored_again() -> None:
    world = World()
    world.completes(1)
    world.ledger.take_changes()
    world.after(601)
    assert world.state.jobs == {}
    assert not world.ledger.take_changes()


def test_a_pruned_job_can_be_recalled() -> None:
    world = World()
    world.completes(1)
    job = world.job(1)
    world.ledger.take_changes()
    world.after(601)
    world.ledger.add_pruned_job(job)
    assert not world.ledger.take_changes()
    world.queue(1)
    assert world.job(1).state is JobState.COMPLETED
    world.after(1)
    assert world.state.jobs == {}


def test_jobs_that_are_not_completed_are_never_pruned() -> None:
    world = World()
    world.queue(1)
    world.starts(2, "r")
    world.after(1_000_000)
    assert set(world.state.jobs) == {1, 2}


def test_a_machine_is_pruned_with_its_runners_and_its_launch_request() -> None:
    world = World()
    first, second = world.make_ready(2)
    world.do(e.RunnerClosed, world.register(first), "refused")
    world.assignment(first)
    world.lists(world.listed(first, terminated=True), world.listed(second))
    world.after(600.5)
    assert set(world.state.machines) == {second}
    assert world.state.runners == {}
    assert set(world.state.launch_requests) == {"c"}
    world.lists(listed("i-c1", terminated=True))
    world.after(600.5)
    assert (world.state.machines, world.state.launch_requests) == ({}, {})
    assert world.state.by_provider_id == {}


def test_failed_slots_are_pruned_but_machines_to_be_terminated_are_not() -> None:
    world = World()
    world.send(2)
    world.answer("c", "i-1", failures=[failure(FailureClass.CAPACITY)])
    world.boot("c0")
    world.do(e.HealthChecksReported, MachineId("c0"), False, "no GPU")
    world.after(700)
    assert world.states() == {"c0": "failed"}


def test_an_open_launch_request_stays_when_its_machines_are_pruned() -> None:
    world = World()
    world.send(1)
    world.do(e.LaunchOutcomeUnknown, LaunchRequestId("c"), "timed out")
    world.lists(listed("i-1"), complete=False)
    world.lists(listed("i-1", terminated=True), complete=False)
    world.after(100_000)
    assert set(world.state.launch_requests) == {"c"}


def test_drop_removes_a_record_from_every_index() -> None:
    world = World()
    world.queue(1)
    world.queue(2, labels=("gpuu",))
    name = world.ready()
    for record in (
        world.job(1),
        world.job(2),
        world.runner(name),
        world.machine("c0"),
        world.call(),
    ):
        world.state.drop(record)
    state = world.state
    assert (state.jobs, state.runners, state.machines, state.launch_requests) == ({}, {}, {}, {})
    assert [len(jobs) for jobs in state.unmatched.values()] == [0] * len(Unmatched)
    assert (state.queues, state.idle_runners, state.open_launch_requests, list(state.due)) == (
        {},
        {},
        {},
        [],
    )
    assert (state.machines_used, state.dollars_used, +state.used_by_sku) == (0, 0.0, {})
    assert list(state.idle_checks) == []


def test_machines_are_counted_by_state_and_ordered_by_when_they_entered_it() -> None:
    world = World()
    world.make_ready(1, "b")
    world.now += 1
    world.make_ready(1, "a")
    world.launch(1, "d")
    fleet = world.fleet()
    assert [m.id for m in fleet.machines_in(GPU, MachineState.READY)] == ["b0", "a0"]
    assert fleet.count(GPU, MachineState.READY) == 2
    assert fleet.count(GPU, MachineState.LAUNCHED) == 1
    assert fleet.count(SkuName("none"), MachineState.READY) == 0
    assert list(fleet.machines_in(SkuName("none"), MachineState.READY)) == []
    later = world.ledger.fleet(world.now + 10_000.0)
    assert [due.machine for due in later.due] == ["b0", "a0", "d0"]


def test_rounding_errors_do_not_add_up_to_dollars_in_an_empty_fleet() -> None:
    world = World()
    world.state.count_use(GPU, 0.1, (), 1)
    world.state.count_use(GPU, 0.2, (), 1)
    world.state.count_use(GPU, 0.1, (), -1)
    world.state.count_use(GPU, 0.2, (), -1)
    assert world.state.dollars_used == 0.0


def test_the_catalogue_can_be_replaced() -> None:
    world = World()
    world.queue(1)
    other = catalogue(sku("gpu"), sku("cpu"))
    world.ledger.replace_catalogue(other)
    world.queue(2, labels=("cpu",))
    assert world.fleet().catalogue == other
    assert world.job(1).demand == GPU_CLASS
    assert world.state.jobs[JobId(2)].demand is not None


def test_the_number_of_remembered_demand_classes_is_bounded() -> None:
    world = World()
    for number in range(MOST_CLASSES + 1):
        world.state.class_of(f"acme/{number}", ("gpu",))
    found = world.state.class_of("acme/0", ("gpu",))
    assert found == GPU_CLASS
    assert found is world.state.class_of("acme/0", ("gpu",))
    known = world.state._classes
    for cache in (known.class_of, known.why_unmatched, known._shared):
        assert cache.cache_info().currsize <= MOST_CLASSES
    assert world.state.class_of("acme/0", ("other",)) is None


def test_applying_an_unknown_kind_of_event_is_an_error() -> None:
    with pytest.raises(KeyError):
        World().ledger.apply(e.Event(START))


def test_a_recalled_job_gets_its_class_from_the_current_catalogue() -> None:
    world = World()
    world.queue(1)
    job = world.job(1)
    again = World(catalogue(sku("cpu", labels=("gpu",))))
    again.ledger.add_pruned_job(job)
    assert job.demand is not None
    assert job.demand.skus == ("cpu",)


def test_the_number_of_jobs_pruned_at_once_is_bounded() -> None:
    world = World()
    for job in range(1, PRUNED_AT_ONCE + 3):
        world.completes(job)
    world.after(KEPT_FOR + 1.0)
    assert len(world.state.jobs) == 2
    world.after(0.0)
    assert not world.state.jobs


def test_pruning_a_large_launch_request_costs_in_proportion_to_its_slots() -> None:
    """To prune a slot, the ledger does not search all slots that it pruned before."""

    def looked_at(slots: int) -> int:
        world = World()
        ids = tuple(MachineId(f"m{n:04}") for n in range(slots))
        kind = world.catalogue.skus[SkuName("gpu")].launch_options[0].capacity_types[0]
        name, keys = LaunchRequestId("c"), world.keys()
        launch = Launch(SkuName("gpu"), EAST, 0, kind, keys, slots, WHY)
        world.do(e.LaunchRequestRecorded, name, launch, ids, "token")
        world.do(e.LaunchRequestPrepared, name, "request")
        world.do(e.LaunchRequestSent, name)
        world.answer("c", failures=[failure(FailureClass.CAPACITY)])
        steps = 0

        def count(_frame: FrameType, event: str, _argument: object) -> None:
            nonlocal steps
            steps += event == "call"

        before = sys.getprofile()
        sys.setprofile(count)
        try:
            world.after(KEPT_FOR + 1.0)
        finally:
            sys.setprofile(before)
        assert not world.state.machines
        assert not world.state.launch_requests
        return steps

    assert looked_at(400) < 5 * looked_at(100)
