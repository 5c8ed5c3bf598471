"""History of interruption notices, reruns, unverified machines and operators' requests.

Each test applies one event a second and reads all rows: time, record, event and text.
"""

import dataclasses
from typing import Any

import pytest

from autoscaler.ledger.jobs.reports import ABANDONED
from autoscaler.ledger.machines.interruptions import note_interruption
from autoscaler.ledger.machines.reruns import ASK_AGAIN
from autoscaler.model import events as e
from autoscaler.model.identifiers import InstallationId, JobId, MachineId, RunnerName
from autoscaler.model.jobs.job import JobState
from autoscaler.model.machines.failures import FailureClass
from autoscaler.model.machines.interruptions import NoticeKind, RerunOutcome
from autoscaler.model.operators import OperatorName
from tests.ledger.builders import ALICE, START, World, listed
from tests.ledger.test_history import each, event, reported
from tests.ledger.test_interruptions import (
    SOLD,
    SPOT,
    answer,
    ask,
    at_work,
    fails,
    killed,
    notice,
    opted_in,
    vanish,
)
from tests.planner.fleets import EAST

COMPLETED = JobState.COMPLETED
C0 = MachineId("c0")
OLD = InstallationId("01d01d01")


def provider_id(world: World) -> Any:
    return world.machine("c0").placement.provider_id


def test_a_notice_enters_the_history_with_or_without_a_text() -> None:
    world = World()
    world.make_ready(1)
    reported(world)
    rows = each(
        world,
        event(world, e.MachineNoticed, EAST, provider_id(world), NoticeKind(SPOT), START, "words"),
    )
    assert rows == [(1.0, "machine", "c0", "interrupted", "spot_interruption: words")]
    assert world.state.cooldowns[SOLD].reason.endswith("spot_interruption of c0")

    world = World()
    world.make_ready(1)
    reported(world)
    rows = each(world, event(world, e.MachineNoticed, EAST, provider_id(world), SPOT, START, ""))
    assert rows == [(1.0, "machine", "c0", "interrupted", "spot_interruption")]


def test_the_history_of_a_job_shows_the_interruption_and_the_rerun() -> None:
    world = World(opted_in())
    machine = at_work(world)
    notice(world, machine)
    reported(world)
    rows = each(
        world,
        lambda: vanish(world, machine),
        lambda: fails(world),
        lambda: answer(world, RerunOutcome.ACCEPTED, 1),
    )
    assert [row for row in rows if row[1] == "job"] == [
        (1.0, "job", "1", "interrupted", "spot_interruption of c0"),
        (2.0, "job", "1", "completed", "webhook"),
        (2.0, "job", "1", "rerun_due", "its machine was interrupted"),
        (3.0, "job", "1", "rerun_accepted", "words"),
    ]
    rerun = world.state.reruns[JobId(1)]
    assert (rerun.machine, rerun.ended_at, rerun.reason) == ("c0", START + 3.0, "words")


def test_the_history_shows_why_a_job_is_not_rerun() -> None:
    world = killed(times=0)
    row = reported(world)[-1]
    assert row[1:] == ("job", "1", "rerun_off", "")
    rerun = world.state.reruns[JobId(1)]
    assert (rerun.reason, rerun.unanswered, rerun.ended_at) == ("", 0, world.now)


def test_githubs_error_message_is_cut_to_500_characters() -> None:
    world = killed().after(ASK_AGAIN.first)
    ask(world, 1)
    world.do(e.RerunAnswered, (JobId(1),), None, "x" * 600)
    assert world.state.reruns[JobId(1)].reason == "x" * 500
    world.do(e.RerunAnswered, (JobId(1),), RerunOutcome.REFUSED, "y" * 600)
    assert world.state.reruns[JobId(1)].reason == "y" * 500
    assert reported(world)[-1][3:] == ("rerun_refused", "y" * 500)


def test_the_history_shows_an_unverified_machine_that_polls_for_an_assignment() -> None:
    world = World()
    world.launch(1)
    world.observe(1, JobState.QUEUED)
    world.restart(3600.0)
    reported(world)
    unknown = listed("i-9", call="after the backup")
    rows = each(
        world,
        lambda: world.lists(listed("i-c0"), unknown),
        lambda: world.lists(listed("i-c0"), unknown),
        event(world, e.MachineSeen, C0, True),
    )
    older = "the store is a restored backup: the machine may have been assigned after the backup"
    assert rows == [
        (3601.0, "machine", "x-i-9", "adopted", "its launch request is not in the store"),
        (3601.0, "machine", "c0", "assigned", older),
        (
            3601.0,
            "job",
            "1",
            "disputed",
            "the store is a restored backup: the job may have run since",
        ),
        (3603.0, "machine", "c0", "ready", "its agent asks for an assignment"),
    ]


@pytest.mark.parametrize("proof", ["a job", "refused"])
def test_the_history_shows_that_github_proves_an_assignment(proof: str) -> None:
    world = World()
    world.make_ready(1)
    name = world.register("c0")
    world.restart(60.0)
    reported(world)
    if proof == "a job":
        rows = each(world, lambda: world.starts(1, name))
    else:
        rows = each(world, event(world, e.RunnerClosed, name, "busy"))
    row = (61.0, "machine", "c0", "may_run_job", "GitHub shows its runner online or at work")
    assert [one for one in rows if one[1] == "machine"] == [row]


def test_the_history_shows_a_machine_whose_unknown_runner_github_names() -> None:
    world = World()
    world.launch(1)
    world.restart(60.0)
    reported(world)
    rows = each(world, lambda: world.starts(1, "ci-0badcafe-c0-1"))
    older = "the store is a restored backup: the machine may have been assigned after the backup"
    assert (61.0, "machine", "c0", "assigned", older) in rows
    assert world.machine("c0").progress.assigned_at == world.now


def test_the_history_shows_an_unverified_machine_that_an_operator_releases() -> None:
    world = World()
    world.lists(listed("i-9", call="lost"))
    reported(world)
    rows = each(world, event(world, e.MachineReleasedByOperator, MachineId("x-i-9"), ALICE))
    words = "alice ran autoscaler terminate"
    assert rows == [(1.0, "machine", "x-i-9", "operator_terminated", words)]


def test_the_history_says_that_an_operator_forced_a_termination() -> None:
    world = World()
    world.ready()
    reported(world)
    rows = each(world, event(world, e.MachineReleasedByOperator, C0, ALICE, True))
    words = "alice ran autoscaler terminate --force: a job may have been running"
    assert rows == [(1.0, "machine", "c0", "operator_terminated", words)]


def test_the_history_shows_an_adopted_installation() -> None:
    world = World()
    world.lists(listed("i-1", call="lost", installation=OLD))
    reported(world)
    rows = each(world, event(world, e.InstallationAdopted, OLD, ALICE))
    assert rows == [
        (1.0, "installation", OLD, "adopted", "by alice; was 0badcafe"),
        (1.0, "machine", "x-i-1", "adopted", "it belongs to an adopted installation"),
    ]


def test_the_history_of_the_fleet_says_who_reloaded_the_configuration() -> None:
    world = World()
    rows = each(
        world,
        event(world, e.ConfigurationReloaded, ALICE, ("limits.machines", "skus.gpu.on")),
        event(world, e.ConfigurationReloaded, OperatorName("SIGHUP"), ()),
    )
    assert rows == [
        (1.0, "fleet", "all", "reloaded", "by alice; 2 changes: limits.machines, skus.gpu.on"),
        (2.0, "fleet", "all", "reloaded", "by SIGHUP; no key changed"),
    ]


def test_the_history_names_the_first_of_many_changed_keys() -> None:
    world = World()
    keys = tuple(f"skus.s{number:03}.idle.timeout" for number in range(200))
    ((*_, detail),) = each(world, event(world, e.ConfigurationReloaded, ALICE, keys))
    assert detail.startswith(f"by alice; 200 changes: {keys[0]}, {keys[1]},")
    assert detail.endswith("timeout, ...")
    assert 450 < len(detail) <= 500


def test_the_history_shows_when_a_runner_got_its_job() -> None:
    world = World()
    started, ended = world.ready("c"), world.ready("d")
    world.queue(1, 2)
    reported(world)
    rows = each(
        world,
        lambda: world.starts(1, started),
        lambda: world.completes(2, runner_name=RunnerName(ended)),
    )
    busy = [row for row in rows if row[3] == "busy"]
    assert busy == [
        (1.0, "runner", started, "busy", "job 1"),
        (2.0, "runner", ended, "busy", "job 2"),
    ]
    assert world.runner(started).since == START + 1.0


def test_the_history_shows_an_abandoned_job() -> None:
    world = World()
    world.queue(1)
    world.observe(2, JobState.WAITING)
    world.observe(2, JobState.QUEUED)
    world.observe(2, JobState.WAITING)
    assert (world.job(2).disputed, list(world.fleet().reads)) == (True, [2])
    world.starts(3, "another-fleets")
    reported(world)
    rows = each(
        world,
        event(world, e.JobAbandoned, JobId(1), "gone for a day"),
        event(world, e.JobAbandoned, JobId(2), "gone for a day"),
        event(world, e.JobAbandoned, JobId(3), "gone for a day"),
        event(world, e.JobAbandoned, JobId(4), "gone for a day"),
    )
    assert rows == [
        (1.0, "job", "1", "completed", "gone for a day"),
        (2.0, "job", "2", "completed", "gone for a day"),
    ]
    for number in (1, 2):
        job = world.job(number)
        assert (job.state, job.disputed, job.conclusion) == (COMPLETED, False, ABANDONED)
        assert job.completed_at == job.updated_at == START + number
    assert world.job(3).state is JobState.IN_PROGRESS
    assert (world.fleet().queues, world.fleet().reads) == ({}, {})


def test_a_machines_console_text_enters_the_history() -> None:
    world = World()
    rows = each(world, event(world, e.ConsoleRead, C0, "kernel panic"))
    assert rows == [(1.0, "machine", "c0", "console", "kernel panic")]


def test_an_interruption_without_a_notice_is_dated_at_the_last_agent_request() -> None:
    world = World(opted_in())
    world.assignment(world.make_ready(1)[0])
    world.after(20.0)
    world.do(e.MachineSeen, C0)
    world.after(80.0)
    reported(world)
    reason = "Server.SpotInstanceTermination: taken"
    shown = dataclasses.replace(
        world.listed("c0", terminated=True), reason=reason, failure=FailureClass.CAPACITY
    )
    rows = each(world, lambda: world.lists(shown, complete=False))
    assert rows[0] == (101.0, "machine", "c0", "interrupted", f"spot_interruption: {reason}")
    assert world.machine("c0").interruption.at == START + 20.0


def test_a_notice_without_a_text_enters_the_history() -> None:
    world = World()
    world.make_ready(1)
    reported(world)
    note_interruption(world.state, world.machine("c0"), SPOT, START, START)
    assert reported(world) == [(0.0, "machine", "c0", "interrupted", "spot_interruption")]


def test_the_history_shows_a_machine_that_its_provider_shuts_down() -> None:
    world = World()
    name = world.register(world.make_ready(1)[0])
    reported(world)
    shown = dataclasses.replace(world.listed("c0"), leaving=True, reason="words")
    rows = each(world, lambda: world.lists(shown, complete=False))
    assert rows == [
        (1.0, "runner", name, "done", "words"),
        (1.0, "machine", "c0", "terminating", "words"),
    ]
    assert world.machine("c0").reason == "words"


def test_the_history_shows_the_circuit_opened_by_the_third_early_exit() -> None:
    world = World()
    for machine in ("a0", "b0", "c0"):
        world.assignment(world.make_ready(1, machine[0])[0])
    reported(world)
    rows = each(
        world,
        *(event(world, e.MachineExited, MachineId(one), "bye") for one in ("a0", "b0", "c0")),
    )
    words = "the runner of machine c0 exited without a job: bye"
    assert [row for row in rows if row[3] == "circuit_opened"] == [
        (3.0, "machine", "c0", "circuit_opened", words)
    ]


def test_the_history_of_an_unverified_machine_that_exits_names_no_runner() -> None:
    world = World()
    world.lists(listed("i-9", call="lost"))
    reported(world)
    rows = each(world, event(world, e.MachineExited, MachineId("x-i-9"), "bye"))
    assert rows == [(1.0, "machine", "x-i-9", "exited", "bye")]
