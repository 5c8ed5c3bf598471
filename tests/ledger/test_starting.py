"""A start with a store whose clock was ahead, or from a backup made during a launch request."""

from dataclasses import fields

import pytest

from autoscaler.ledger.machines.reruns import GIVEN_UP_AFTER
from autoscaler.ledger.starting import AWAITED, BEFORE_THE_START, HAPPENED, TO_COME
from autoscaler.model import events as e
from autoscaler.model.cooldowns import Cooldown, boots_key
from autoscaler.model.identifiers import JobId, LaunchRequestId, MachineId
from autoscaler.model.jobs.job import Job
from autoscaler.model.jobs.runners import Runner
from autoscaler.model.machines.failures import FailureClass
from autoscaler.model.machines.interruptions import NoticeKind, Rerun
from autoscaler.model.machines.launch_requests import REPEAT_WINDOW, LaunchRequest
from autoscaler.model.machines.machine import Machine, TerminationReason
from autoscaler.model.plan import DeregisterRunner, Launch, MarkUnverified, Terminate
from tests.ledger.builders import GPU, World, failure, idle, listed
from tests.ledger.test_interruptions import at_work, notice, opted_in, vanish
from tests.model.test_changes import PARTS
from tests.planner.fleets import EAST

DAY = 86_400.0
NO_TIMES_OF_OURS = {"queued_at", "started_at", "interruption.at", "work.agent_seen"}
"""Times that GitHub or a notice gives, not this controller."""
OF_THE_NOTICE: dict[type, set[str]] = {Rerun: {"taken_at"}}


@pytest.mark.parametrize("record", [LaunchRequest, Job, Machine, Rerun, Runner])
def test_every_time_field_of_a_record_is_in_the_past_or_the_future_list(record: type) -> None:
    names = {field.name for field in fields(record)}
    if record is Machine:
        names |= {f"{part}.{field.name}" for part in PARTS for field in fields(PARTS[part])}
    times = {name for name in names if name.endswith(("_at", ".at", "since", "_seen", "due"))}
    assert times - NO_TIMES_OF_OURS - OF_THE_NOTICE.get(record, set()) == {
        *HAPPENED[record],
        *TO_COME[record],
    }


@pytest.mark.case(
    "the host's clock was ahead, and is set back while the controller restarts",
    topic="EC2's machines",
    source="Python: time.time",
)
def test_a_registration_dated_in_the_future_is_deregistered_after_a_restart() -> None:
    world = World()
    world.queue(1)
    (machine,) = world.make_ready()
    name = world.name(machine)
    world.now -= DAY
    world.restart(0.0)
    assert [intent.runner for intent in world.intents(DeregisterRunner)] == [name]


def test_a_machine_dated_in_the_future_is_not_taken_for_one_launched_since_the_start() -> None:
    world = World()
    (machine,) = world.make_ready()
    world.now -= DAY
    world.restart(0.0)
    assert not world.state.evidence.proves_unused(world.machine(machine))


def test_a_job_read_in_the_future_does_not_count_as_read_since_the_start() -> None:
    world = World()
    world.queue(1)
    world.job(1).read_at = world.now
    world.now -= DAY
    world.restart(0.0)
    read_at = world.job(1).read_at
    assert read_at is not None
    assert read_at < world.state.started_at


@pytest.mark.case(
    "a backup was made between the record of a launch request and its sending",
    topic="EC2's machines",
    source="SQLite: backup",
)
def test_a_machine_of_a_launch_request_sent_after_the_backup_may_run_a_job() -> None:
    world = World()
    world.record(1)
    world.restart(3600.0)
    assert world.call().sent_at is None
    assert world.states() == {"c0": "failed"}
    world.lists(listed("i-c0"))
    found = world.machine("x-i-c0")
    assert (found.state, bool(found.work.unverified)) == ("assigned", True)
    world.now += 4 * 3600.0
    assert world.intents(Terminate) == []


def test_a_launch_request_that_was_never_sent_is_planned_again() -> None:
    world = World()
    world.queue(1)
    world.record(1)
    world.restart(60.0)
    world.lists()
    assert len(world.intents(Launch)) == 1


def set_back(world: World) -> World:
    """Set a clock that was a day ahead right, and restart the controller."""
    world.now -= DAY
    world.restart(0.0)
    return world


def test_a_terminating_machine_dated_in_the_future_is_terminated_soon() -> None:
    world = World()
    (machine,) = world.make_ready()
    world.do(e.TerminationRequested, machine, TerminationReason.IDLE, "idle")
    world = set_back(world)
    assert world.machine(machine).created_at == world.now - BEFORE_THE_START
    assert world.machine(machine).due == world.now + AWAITED
    world.now += AWAITED
    assert [intent.machine for intent in world.intents(Terminate)] == [machine]


def test_a_hold_dated_in_the_future_ends_soon_after_the_start() -> None:
    world = World()
    world.queue(1)
    world.send(1)
    world.answer("c", failures=[failure(FailureClass.QUOTA)])
    assert world.intents(Launch) == []
    world = set_back(world)
    world.now += AWAITED - 1.0
    world.lists()
    assert world.intents(Launch) == []
    world.now += 1.0
    assert len(world.intents(Launch)) == 1


def test_a_restart_does_not_change_a_short_hold() -> None:
    world = World()
    world.queue(1)
    world.send(1)
    world.answer("c", failures=[failure(FailureClass.CAPACITY)])
    before = dict(world.state.cooldowns)
    world.restart(1.0)
    assert world.state.cooldowns == before
    assert world.ledger.take_changes().cooldowns == (), "nothing is written again"


def test_after_a_clock_that_was_ahead_a_rerun_waits_at_most_a_week_for_its_job() -> None:
    world = World(opted_in())
    notice(world, at_work(world))
    vanish(world, "c0")
    world = set_back(world)
    rerun = world.state.reruns[JobId(1)]
    assert rerun.due == rerun.created_at + GIVEN_UP_AFTER == world.now - BEFORE_THE_START + 7 * DAY


def test_after_a_clock_that_was_ahead_an_idle_runner_is_soon_passed_over() -> None:
    world = World()
    name = world.ready()
    world = set_back(world)
    world.queue(1)
    world.after(AWAITED).after(AWAITED)
    assert not idle(world, name)


def test_a_sent_launch_request_is_not_repeated_after_its_retry_window() -> None:
    world = World()
    world.send(1)
    world = set_back(world)
    sent_at = world.call().sent_at
    assert sent_at is not None
    assert sent_at + REPEAT_WINDOW <= world.now


def test_a_restart_does_not_change_the_time_of_a_scheduled_change() -> None:
    world = World()
    (machine,) = world.make_ready()
    in_ten_days = world.now + 10 * DAY
    noticed = (EAST, world.machine(machine).placement.provider_id, NoticeKind.SCHEDULED_CHANGE)
    world.do(e.MachineNoticed, *noticed, in_ten_days, "retire")
    world.restart(60.0)
    assert world.machine(machine).interruption.at == in_ten_days


def sent_before_the_backup(slots: int = 1, *found: str) -> World:
    """A call had been sent when the backup was made, and its machines are found an hour later."""
    world = World()
    world.send(slots)
    world.restart(3600.0)
    world.now += 61.0
    world.lists(*(listed(one) for one in found or ["i-c0"]))
    assert set(world.states().values()) == {"launched"}
    return world


@pytest.mark.case(
    "a backup was made while a launch request was in flight",
    topic="EC2's machines",
    source="SQLite: backup",
)
def test_a_machine_found_for_a_launch_request_in_flight_at_the_restart_may_run_a_job() -> None:
    world = sent_before_the_backup()
    world.now += 24 * 3600.0
    assert world.intents(Terminate) == []
    assert [intent.machine for intent in world.intents(MarkUnverified)] == ["c0"]


def test_a_machine_found_for_a_written_off_slot_may_run_a_job() -> None:
    world = World()
    world.send(1)
    world.do(e.LaunchOutcomeUnknown, LaunchRequestId("c"), "timed out")
    for _ in range(2):
        world.after(REPEAT_WINDOW + 60.0).lists()
    assert world.states() == {"c0": "failed"}
    world.restart(3600.0)
    world.lists(listed("i-c0"))
    world.now += 24 * 3600.0
    assert world.intents(Terminate) == []


def test_runner_lists_from_before_a_machine_was_found_prove_nothing_about_it() -> None:
    world = World()
    world.send(1)
    world.restart(3600.0)
    world.now += 61.0
    world.github_lists("ci-0badcafe-c0-1")
    world.now += 1.0
    world.lists(listed("i-c0"))
    world.now += 3600.0
    assert world.intents(Terminate) == []
    world.github_lists()
    assert [intent.reason_code for intent in world.intents(Terminate)] == [
        TerminationReason.DEADLINE
    ]


@pytest.mark.case(
    "after a restore of a backup that was made during a launch request, "
    "the controller cannot know which of its machines has which slot",
    topic="EC2's machines",
    source="EC2: DescribeInstances",
)
def test_any_machine_of_the_launch_request_may_have_the_runner_that_github_lists() -> None:
    world = sent_before_the_backup(3, "i-b", "i-a", "i-c")
    world.boot("c2")
    world.github_lists("ci-0badcafe-c0-1")
    assert world.states() == {"c0": "assigned", "c1": "assigned", "c2": "booted"}
    world.now += 12 * 3600.0
    assert [intent.machine for intent in world.intents(Terminate)] == ["c2"]


@pytest.mark.case(
    "after a restore of a backup that was made during a launch request, "
    "the controller cannot know which of its machines has which slot",
    topic="EC2's machines",
    source="EC2: DescribeInstances",
)
def test_the_machine_of_a_listed_runner_stays_unknown_after_another_restart() -> None:
    world = World()
    world.send(2)
    world.restart(3600.0)
    world.now += 3.0
    world.lists(listed("i-b"))
    world.now += 37.0
    world.restart(3.0)
    world.now += 61.0
    world.lists(listed("i-b"))
    world.github_lists("ci-0badcafe-c1-1")
    assert world.states()["c0"] == "assigned"
    world.now += 12 * 3600.0
    assert world.intents(Terminate) == []


def test_a_machine_found_for_a_launch_request_in_flight_boots_normally() -> None:
    world = sent_before_the_backup()
    world.boot("c0")
    world.do(e.HealthChecksReported, MachineId("c0"), True, "ok")
    assert world.state.evidence.proves_unused(world.machine("c0"))
    assert world.states() == {"c0": "ready"}


def test_an_unverified_machine_is_replaced_at_once() -> None:
    world = sent_before_the_backup()
    world.queue(1)
    assert world.intents(Launch) == []
    world.now += 3600.0
    made = world.carry_out()
    assert {type(intent) for intent in made.intents} == {MarkUnverified, Launch}
    assert world.plan().intents == ()


def test_an_unverified_machine_does_not_count_as_a_probe() -> None:
    world = sent_before_the_backup()
    world.queue(1)
    world.state.set_cooldown(Cooldown(boots_key(GPU), world.now, 3, "no gpu"))
    world.now += 3600.0
    assert [intent.count for intent in world.intents(Launch)] == [1]
