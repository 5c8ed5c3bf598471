"""What a start makes of a store whose clock was ahead, or whose backup was made in the middle of a call."""

from dataclasses import fields

import pytest

from autoscaler.ledger.starting import HAPPENED
from autoscaler.model.calls import Call
from autoscaler.model.jobs import Job
from autoscaler.model.machines import Machine
from autoscaler.model.plan import End, Launch, WithdrawRunner
from autoscaler.model.runners import Runner
from tests.ledger.builders import World, listed

SET_BACK = 900.0
OF_GITHUB = {"queued_at", "started_at", "completed_at"}
DUE = {"retry_at", "probe_at"}


@pytest.mark.parametrize("record", [Call, Job, Machine, Runner])
def test_every_time_is_one_of_our_clock_or_of_githubs_or_is_to_come(record: type) -> None:
    names = {field.name for field in fields(record)}
    times = {name for name in names if name.endswith(("_at", "since", "_seen"))}
    assert times - OF_GITHUB - DUE == set(HAPPENED[record])


def test_a_registration_whose_secret_is_lost_is_withdrawn_although_its_time_is_yet_to_come() -> (
    None
):
    world = World()
    world.queue(1)
    (machine,) = world.park()
    name = world.name(machine)
    world.now -= SET_BACK
    world.restart(0.0)
    assert [intent.runner for intent in world.intents(WithdrawRunner)] == [name]


def test_a_machine_from_before_is_not_taken_for_one_that_was_launched_since() -> None:
    world = World()
    (machine,) = world.park()
    world.now -= SET_BACK
    world.restart(0.0)
    assert not world.machine(machine).is_unused(world.state.started_at)


def test_a_job_that_was_read_before_was_not_read_since() -> None:
    world = World()
    world.queue(1)
    world.job(1).read_at = world.now
    world.now -= SET_BACK
    world.restart(0.0)
    read_at = world.job(1).read_at
    assert read_at is not None
    assert read_at < world.state.started_at


def test_a_call_of_the_backup_was_sent_after_it_and_its_machine_may_be_at_work() -> None:
    world = World()
    world.record(1)
    world.restart(3600.0)
    assert world.call().sent_at is None
    assert world.states() == {"c0": "failed"}
    world.lists(listed("i-c0"))
    found = world.machine("x-i-c0")
    assert (found.state, found.unproven) == ("granted", True)
    world.now += 4 * 3600.0
    assert world.intents(End) == []


def test_a_call_that_was_never_sent_is_made_anew() -> None:
    world = World()
    world.queue(1)
    world.record(1)
    world.restart(60.0)
    world.lists()
    assert len(world.intents(Launch)) == 1
