"""A restored store: idle machines may be assigned, and queued jobs may have run."""

import dataclasses
from collections.abc import Iterator
from typing import NoReturn

import pytest

from autoscaler.ledger.machines.unverified import needs_runner_list
from autoscaler.model import events as e
from autoscaler.model.catalogue import Deadlines, Scope
from autoscaler.model.identifiers import JobId, MachineId, RunnerName
from autoscaler.model.jobs.job import JobState
from autoscaler.model.jobs.runners import RunnerState
from autoscaler.model.machines.machine import Machine, MachineState, TerminationReason
from autoscaler.model.machines.unverified import UnverifiedReason
from autoscaler.model.plan import (
    Assign,
    Intent,
    Launch,
    MarkUnverified,
    ReadJob,
    ReadRunner,
    Terminate,
)
from tests.ledger.builders import ALICE, START, World, listed
from tests.planner.fleets import catalogue, sku

C0 = MachineId("c0")
AWAY = 3600.0
UNKNOWN = listed("i-9", call="after the backup")
BEFORE_READY = {"launched": 0, "booted": 1, "ready": 2}


def at(stage: str) -> World:
    """A machine in a state, as in a backup."""
    world = World()
    if stage == "ready":
        world.make_ready(1)
    else:
        world.launch(1)
    if stage == "booted":
        world.boot("c0")
    return world


def restored(world: World, *shown: e.ListedMachine, later: float = 121.0) -> World:
    """Restore the backup an hour later, and list the machines twice."""
    world.restart(AWAY)
    world.lists(listed("i-c0"), *shown)
    world.now += later
    world.lists(listed("i-c0"), *shown)
    return world


@pytest.mark.case(
    "a restored store shows a machine as booting or ready, and it has got a registration since",
    topic="EC2's machines",
    source="SQLite: backup",
)
@pytest.mark.parametrize("stage", BEFORE_READY)
def test_no_machine_is_terminated_that_may_have_been_assigned_since_the_backup(stage: str) -> None:
    world = restored(at(stage), UNKNOWN)
    machine = world.machine("c0")
    assert (machine.state, bool(machine.work.unverified), machine.work.may_run_job) == (
        "assigned",
        True,
        True,
    )
    assert "the store is a restored backup" in machine.reason
    world.now += 4 * 3600.0
    assert world.intents(Terminate) == []
    assert ReadRunner(C0) in world.intents(ReadRunner)


@pytest.mark.case(
    "a restored store knows every pod, GitHub's lists lack the runners at work, and the agents are silent",
    topic="Kubernetes",
    source="SQLite: backup",
)
@pytest.mark.parametrize("stage", BEFORE_READY)
def test_a_machine_that_its_provider_shows_as_assigned_is_kept(stage: str) -> None:
    """Found by seed 820150 of the worlds with clusters: machines at work were terminated."""
    world = at(stage)
    world.restart(AWAY)
    shown = dataclasses.replace(world.listed("c0"), assigned=True)
    for _ in range(2):
        world.lists(shown)
        world.github_lists()
        world.after(61.0)
    world.after(4 * 3600.0)
    assert world.machine("c0").work.unverified is UnverifiedReason.STORE_IS_OLDER
    assert world.intents(Terminate) == []


def test_a_pod_without_an_answer_that_a_list_shows_as_assigned_is_kept() -> None:
    world = World()
    world.send(1)
    world.restart(AWAY)
    world.lists(dataclasses.replace(listed("i-c0"), assigned=True))
    assert world.machine("c0").work.unverified is UnverifiedReason.STORE_IS_OLDER


def test_an_assigned_machine_is_verified_if_the_store_had_its_registration_or_its_agent_polls() -> (
    None
):
    world = at("ready")
    world.do(e.MachineSeen, C0, True)
    world.lists(dataclasses.replace(world.listed("c0"), assigned=True))
    assert world.machine("c0").state is MachineState.READY
    name = world.register("c0")
    world.do(e.RunnerDeregistered, name, "no job needs it")
    world.restart(AWAY)
    world.lists(dataclasses.replace(world.listed("c0"), assigned=True))
    assert world.machine("c0").state is MachineState.READY


@pytest.mark.parametrize("stage", BEFORE_READY)
def test_a_store_that_knows_every_listed_machine_is_trusted(stage: str) -> None:
    world = restored(at(stage))
    assert world.states() == {"c0": stage}
    world.github_lists()
    world.now += 4 * 3600.0
    assert [(end.machine, end.reason_code) for end in world.intents(Terminate)] == [
        (C0, TerminationReason.DEADLINE)
    ]


@pytest.mark.parametrize("stage", ["launched", "booted"])
def test_after_a_start_no_stage_deadline_ends_before_listings_could_show_a_job(
    stage: str,
) -> None:
    world = at(stage)
    world.restart(AWAY)
    world.lists(world.listed("c0"))
    world.now += 299.0
    world.github_lists()
    assert world.intents(Terminate) == []
    world.now += 1.0
    assert [end.reason_code for end in world.intents(Terminate)] == [TerminationReason.DEADLINE]


STAGES = ["launched", "booted", "ready", "registered"]


def late(stage: str, listed: bool = True) -> World:
    """Return a world with a machine in this state at its deadline, silent since the start.

    `listed`: whether its provider was listed since the start.
    """
    world = at("ready" if stage == "registered" else stage)
    if stage == "registered":
        world.register("c0")
    world.restart(AWAY)
    if listed:
        world.lists(world.listed("c0"))
    world.now += 60.0
    return world


@pytest.mark.case(
    "a restored store shows nothing that proves its age, and GitHub cannot be read after the "
    "start: silent machines are kept",
    topic="EC2's machines",
    source="GitHub status",
)
@pytest.mark.parametrize("stage", STAGES)
def test_no_silent_machine_is_terminated_before_github_lists_the_busy_runners(stage: str) -> None:
    world = late(stage)
    world.now -= 1.0
    world.github_lists()  # too soon: the newest runner may not be online yet
    world.now += 4 * 3600.0
    assert (world.intents(Terminate), world.intents(MarkUnverified)) == ([], [MarkUnverified(C0)])
    assert world.intents(ReadRunner) == []
    world.do(e.MachineMarkedUnverified, C0)
    machine = world.machine("c0")
    assert (machine.state, machine.work.may_run_job, machine.is_unverified) == (
        "assigned",
        True,
        True,
    )
    history = world.ledger.take_changes().history
    assert UnverifiedReason.NO_RUNNER_LIST_YET.explanation in {
        row.detail for row in history if row.record == "c0"
    }
    assert due(world) == []
    world.now += 900.0
    assert due(world) == [ReadRunner(C0)]


def due(world: World) -> list[Intent]:
    return [*world.intents(Terminate), *world.intents(MarkUnverified), *world.intents(ReadRunner)]


@pytest.mark.parametrize("stage", STAGES)
def test_idle_machines_are_terminated_once_github_has_listed_the_busy_runners(stage: str) -> None:
    world = late(stage)
    world.github_lists()
    world.now += 4 * 3600.0
    assert [end.reason_code for end in world.intents(Terminate)] == [TerminationReason.DEADLINE]


@pytest.mark.case(
    "a restored store, a provider that cannot be listed after the start, and a list of GitHub without a busy "
    "runner: silent machines are kept",
    topic="EC2's machines",
    source="GitHub status",
)
@pytest.mark.parametrize("stage", STAGES)
def test_no_silent_machine_is_terminated_before_its_provider_is_listed(stage: str) -> None:
    """Found by seed 2550 with clusters: a list of machines shows that the store is a backup."""
    world = late(stage, listed=False)
    world.github_lists()
    world.lists(listed("i-c0"), complete=False)
    world.now += 4 * 3600.0
    assert due(world) == [MarkUnverified(C0)]
    world.do(e.MachineMarkedUnverified, C0)
    machine = world.machine("c0")
    assert (machine.state, machine.work.may_run_job, machine.work.unverified) == (
        "assigned",
        True,
        "no_machine_list_yet",
    )
    assert due(world) == []


@pytest.mark.parametrize("stage", STAGES)
def test_a_machine_whose_listed_runner_has_another_number_is_kept(
    stage: str,
) -> None:
    world = late(stage)
    world.github_lists("ci-0badcafe-c0-7")
    for _ in range(4):
        world.now += 3600.0
        assert world.carry_out().intents == (ReadRunner(C0),)
        # GitHub's answers about the known registration prove nothing about an unknown one.
        assert world.machine("c0").work.runner is None
    machine = world.machine("c0")
    assert (machine.work.may_run_job, machine.is_unverified) == (True, True)
    # A job on a machine can poll like the agent. A machine without an attestation has no nonce to poll with.
    world.do(e.MachineSeen, C0, True)
    assert world.machine("c0").is_unverified == bool(machine.nonce_hash)


@pytest.mark.parametrize("proof", ["registered", "configuration sent", "found finished", "closed"])
def test_githubs_answers_about_an_old_registration_prove_nothing_about_a_newer_one(
    proof: str,
) -> None:
    world = World()
    world.make_ready(1)
    name = world.register("c0")
    if proof in ("configuration sent", "found finished"):
        world.do(e.ConfigurationSent, name)
    world.restart(AWAY)
    if proof == "closed":
        world.do(e.RunnerClosed, name, "busy, but its configuration was never sent")
    if proof == "found finished":
        world.do(e.RunnerRead, C0, True, "the runner is absent")
    world.github_lists("ci-0badcafe-c0-2")
    machine = world.machine("c0")
    listed_at_github = UnverifiedReason.LISTED_AT_GITHUB
    assert (machine.work.runner, machine.work.unverified) == (None, listed_at_github)
    assert machine.reason == listed_at_github.explanation
    assert (
        machine.work.finished_at,
        machine.work.finished_reads,
        machine.progress.assigned_at,
    ) == (
        None,
        0,
        world.now,
    )
    assert machine.due == world.now + 900.0
    assert (machine.work.may_run_job, bool(machine.work.unverified)) == (True, True)
    assert world.runner(name).state is RunnerState.DONE
    assert world.state.idle_runners == {}


@pytest.mark.parametrize("busy", [False, True])
def test_a_machine_that_fetched_its_registration_has_no_other(
    busy: bool,
) -> None:
    world = World()
    (machine,) = world.make_ready(1)
    name = world.register("c0")
    world.do(e.ConfigurationSent, name)
    if busy:
        world.starts(1, name)
    else:
        world.do(e.RunnerListening, name)
    world.restart(AWAY)
    world.github_lists("ci-0badcafe-c0-7")
    assert (world.machine(machine).work.runner, bool(world.machine(machine).work.unverified)) == (
        name,
        False,
    )


def test_a_machine_that_polled_although_it_has_a_job_can_become_unverified() -> None:
    world = World()
    world.make_ready(1)
    world.starts(1, world.register("c0"))
    world.do(e.MachineSeen, C0, True)
    assert not world.machine("c0").work.may_run_job
    world.restart(AWAY)
    world.now += 3600.0
    assert MarkUnverified(C0) in world.carry_out().intents
    assert world.plan().intents == ()


def test_no_machine_is_terminated_before_the_runners_of_every_scope_were_listed() -> None:
    two = (Scope("acme", None), Scope("globex", None))
    world = World(dataclasses.replace(catalogue(), scopes=two))
    world.launch(1)
    world.restart(AWAY)
    world.lists(world.listed("c0"))
    world.now += 60.0
    world.do(e.RunnersListed, two[0].key, world.now, ())
    world.now += 4 * 3600.0
    assert world.intents(Terminate) == []
    world.do(e.RunnersListed, two[1].key, world.now, ())
    assert [end.machine for end in world.intents(Terminate)] == [C0]


def test_an_unverified_machine_becomes_ready_when_its_agent_polls() -> None:
    world = late("ready")
    world.now += 4 * 3600.0
    world.do(e.MachineMarkedUnverified, C0)
    assert needs_runner_list(world.state) is False
    world.do(e.MachineSeen, C0, True)
    assert world.states()["c0"] == "ready"


def test_a_runner_list_is_needed_while_a_machine_from_before_the_start_is_silent() -> None:
    world = at("launched")
    assert needs_runner_list(world.state) is False
    world.restart(AWAY)
    assert needs_runner_list(world.state) is True
    world.boot("c0")
    assert needs_runner_list(world.state) is False


def test_a_runner_list_is_needed_while_a_machine_requested_before_the_start_may_attest() -> None:
    world = World()
    world.send(1)
    assert needs_runner_list(world.state) is False
    world.restart(AWAY)
    world.now += 61.0
    world.github_lists()
    assert needs_runner_list(world.state) is True
    world.lists(listed("i-c0", call="c"))
    assert world.states()["c0"] == "launched"
    world.now += 1.0
    world.github_lists()
    assert needs_runner_list(world.state) is False


@pytest.mark.parametrize("stage", STAGES)
def test_a_runner_list_is_needed_until_one_is_new_enough(stage: str) -> None:
    world = late(stage)
    world.now -= 1.0
    world.github_lists()
    assert needs_runner_list(world.state) is True
    world.now += 1.0
    world.github_lists()
    assert needs_runner_list(world.state) is False


def test_a_ready_machine_is_unverified_after_two_minutes_until_its_agent_polls() -> None:
    world = restored(at("ready"), UNKNOWN, later=60.0)
    assert world.states()["c0"] == "ready"
    world.now += 61.0
    world.lists(listed("i-c0"), UNKNOWN)
    assert world.states()["c0"] == "assigned"
    # A heartbeat does not prove that the machine is idle.
    world.do(e.MachineSeen, C0)
    assert world.states()["c0"] == "assigned"
    world.do(e.MachineSeen, C0, True)
    machine = world.machine("c0")
    assert (machine.state, bool(machine.work.unverified), machine.work.may_run_job) == (
        "ready",
        False,
        False,
    )
    world.lists(listed("i-c0"), UNKNOWN)
    world.queue(1)
    assert [assignment.machine for assignment in world.intents(Assign)] == [C0]


def test_a_machine_whose_agent_polled_since_the_start_is_never_unverified() -> None:
    world = at("ready")
    world.restart(AWAY)
    world.do(e.MachineSeen, C0, True)
    world.now += 200.0
    world.lists(listed("i-c0"), UNKNOWN)
    assert world.states()["c0"] == "ready"


def test_machines_launched_since_the_start_are_verified() -> None:
    world = World()
    world.restart(AWAY)
    world.launch(1)
    world.lists(listed("i-c0"), UNKNOWN)
    world.now += 200.0
    world.lists(listed("i-c0"), UNKNOWN)
    assert world.states()["c0"] == "launched"


def test_a_later_restart_marks_nothing_unverified_that_was_launched_in_between() -> None:
    world = World()
    world.restart(AWAY)
    world.lists(UNKNOWN)
    world.now += 1.0
    world.make_ready(1)
    world.restart(10.0)
    world.now += 200.0
    world.lists(listed("i-c0"), UNKNOWN)
    assert world.states()["c0"] == "ready"


@pytest.mark.case(
    "a job that a restored store shows as queued has run since",
    topic="EC2's machines",
    source="SQLite: backup",
)
def test_nothing_is_launched_for_a_queued_job_before_it_was_read() -> None:
    world = World()
    world.queue(1, 2)
    world.restart(AWAY)
    world.lists(UNKNOWN)
    assert world.intents(Launch) == []
    assert [read.job for read in world.intents(ReadJob)] == [1, 2]
    world.observe(1, JobState.IN_PROGRESS, read=True)
    world.observe(2, JobState.QUEUED, read=True)
    world.lists(UNKNOWN)
    assert [launch.count for launch in world.intents(Launch)] == [1]
    # A job that is new since the start need not be read.
    world.queue(3)
    assert [launch.count for launch in world.intents(Launch)] == [2]


@pytest.mark.case(
    "a restored store shows a machine as booting or ready, and it has got a registration since",
    topic="EC2's machines",
    source="SQLite: backup",
)
def test_a_runner_that_github_names_shows_that_its_machine_has_an_assignment() -> None:
    world = at("launched")
    world.restart(AWAY)
    world.starts(1, "ci-0badcafe-c0-1")
    assert (world.machine("c0").state, bool(world.machine("c0").work.unverified)) == (
        "assigned",
        True,
    )
    world.now += 4 * 3600.0
    assert world.intents(Terminate) == []


@pytest.mark.case(
    "after a restore, a runner has the id of an installation that was adopted after the backup",
    topic="EC2's machines",
    source="SQLite: backup",
)
@pytest.mark.parametrize("stage", BEFORE_READY)
def test_a_runner_named_by_an_id_of_after_the_backup_shows_that_its_machine_has_an_assignment(
    stage: str,
) -> None:
    world = at(stage)
    world.restart(AWAY)
    world.now += 60.0
    # Another installation was adopted after the backup, so new runners have its ID.
    world.github_lists("ci-01d01d01-c0-1")
    assert (world.machine("c0").state, bool(world.machine("c0").work.unverified)) == (
        "assigned",
        True,
    )
    world.now += 4 * 3600.0
    assert world.intents(Terminate) == []


UNKNOWN_RUNNERS = [
    "ci-0badcafe-c1-1",
    "lab-0badcafe-c0-1",
    "ci-other-c0-1",
    "c0",
    "ci-0badcafe-c0-x",
]


@pytest.mark.parametrize("name", UNKNOWN_RUNNERS)
def test_an_unknown_runner_name_proves_nothing(name: str) -> None:
    world = at("launched")
    world.restart(AWAY)
    world.starts(1, name)
    assert world.states() == {"c0": "launched"}


def test_a_runner_name_that_anyone_can_choose_changes_no_machine() -> None:
    world = at("ready")
    world.starts(1, "ci-0badcafe-c0-9")
    assert world.states() == {"c0": "ready"}


def test_a_job_on_a_registration_proves_that_its_machine_fetched_it() -> None:
    world = World()
    world.make_ready(1)
    name = world.register("c0")
    world.restart(AWAY)
    world.starts(1, name)
    assert world.machine("c0").work.may_run_job
    world.now += 1000.0
    assert world.intents(Terminate) == []
    assert [one.machine for one in world.intents(ReadRunner)] == [C0]


def test_a_busy_registration_counts_as_fetched_until_its_agent_polls() -> None:
    world = World()
    world.make_ready(1)
    name = world.register("c0")
    world.restart(AWAY)
    world.do(e.RunnerClosed, name, "busy, but its configuration was never sent")
    assert world.runner(name).state is RunnerState.DONE
    assert world.machine("c0").work.may_run_job
    world.now += 1000.0
    assert world.intents(Terminate) == []
    # GitHub may be wrong: an agent that polls has no assignment.
    world.do(e.MachineSeen, C0, True)
    assert not world.machine("c0").work.may_run_job


def test_a_machine_whose_slot_left_memory_does_not_show_an_outdated_store() -> None:
    world = World()
    world.launch(2)
    world.state.drop(world.machine("c1"))
    world.make_ready(1, "d")
    world.restart(AWAY)
    shown = listed("i-c0"), listed("i-c1"), listed("i-d0", call="d")
    world.lists(*shown)
    assert world.machine("x-i-c1").work.unverified
    world.now += 121.0
    world.lists(*shown)
    assert world.states()["d0"] == "ready"


def test_a_job_that_was_read_since_the_start_is_not_read_again() -> None:
    world = World()
    world.queue(1)
    world.restart(AWAY)
    world.observe(1, JobState.QUEUED, read=True)
    world.lists(UNKNOWN)
    assert not world.state.jobs[JobId(1)].disputed
    assert world.now == START + AWAY
    assert world.machine("x-i-9").state is MachineState.ASSIGNED


def test_a_machine_whose_agent_polls_is_verified() -> None:
    world = restored(at("launched"), UNKNOWN)
    unverified_before = world.machine("c0")
    assert (unverified_before.progress.assigned_at, unverified_before.work.last_seen) == (
        START + AWAY,
        None,
    ), "it has not spoken"
    world.do(e.MachineSeen, C0, True)
    machine = world.machine("c0")
    assert (bool(machine.work.unverified), machine.work.may_run_job) == (False, False)
    assert (machine.work.runner, machine.progress.assigned_at, machine.termination.reason) == (
        None,
        None,
        None,
    )
    assert machine.progress.ready_at == world.now
    assert machine.due == world.now + 300.0


def test_a_machine_ready_before_the_restore_keeps_its_ready_time() -> None:
    world = restored(at("ready"), UNKNOWN)
    world.do(e.MachineSeen, C0, True)
    assert world.machine("c0").progress.ready_at == START


def test_a_machine_of_an_unknown_launch_request_stays_unverified_when_its_agent_polls() -> None:
    world = World()
    world.lists(UNKNOWN)
    world.do(e.MachineSeen, MachineId("x-i-9"), True)
    machine = world.machine("x-i-9")
    assert (machine.state, bool(machine.work.unverified), machine.work.may_run_job) == (
        "assigned",
        True,
        True,
    )


def test_a_machine_with_a_registration_keeps_it_when_its_agent_polls() -> None:
    world = World()
    world.ready()
    world.do(e.MachineSeen, C0, True)
    assert world.machine("c0").work.may_run_job


def test_a_machine_whose_assignment_is_taken_back_gets_the_deadline_of_a_ready_one() -> None:
    world = World()
    world.make_ready(1)
    world.restart(AWAY)
    world.do(e.RunnerClosed, world.register("c0"), "busy")
    assert world.machine("c0").work.may_run_job
    world.do(e.MachineSeen, C0, True)
    assert world.machine("c0").work.may_run_job is False
    assert world.machine("c0").due == world.now + 300.0


def test_unknown_machines_and_registrations_change_nothing() -> None:
    world = World()
    world.ledger.take_changes()
    world.do(e.MachineSeen, MachineId("unknown"), True)
    world.do(e.RunnerClosed, RunnerName("unknown"), "busy")
    assert not world.ledger.take_changes()


def test_only_queued_jobs_of_this_fleet_are_read_and_once() -> None:
    world = World()
    world.queue(1)
    world.observe(2, JobState.IN_PROGRESS)
    world.queue(3, labels=("unserved",))
    world.restart(AWAY)
    world.ledger.take_changes()
    world.lists(UNKNOWN)
    world.lists(UNKNOWN)
    assert [job.id for job in world.state.jobs.values() if job.disputed] == [1]
    rows = [row for row in world.ledger.take_changes().history if row.kind == "job"]
    assert [row.record for row in rows] == ["1"]


def test_a_job_on_an_older_registration_proves_nothing_about_the_newer_one() -> None:
    world = World()
    world.make_ready(1)
    first = world.register("c0")
    world.do(e.RunnerDeregistered, first, "its job is gone")
    world.register("c0")
    world.starts(1, first)
    assert not world.machine("c0").work.may_run_job


def test_a_job_on_a_registration_whose_machine_left_memory_proves_nothing() -> None:
    world = World()
    world.make_ready(1)
    name = world.register("c0")
    world.state.drop(world.machine("c0"))
    world.starts(1, name)
    assert world.states() == {}


def test_a_runner_name_that_anyone_can_choose_changes_no_machine_of_a_restart() -> None:
    world = at("launched")
    world.restart(0.0)
    world.starts(1, "ci-0badcafe-c0-9")
    assert world.states() == {"c0": "launched"}


def test_machines_launched_since_the_start_have_their_usual_deadline() -> None:
    quick = dataclasses.replace(sku(), deadlines=Deadlines(boot=60.0, health_checks=60.0))
    world = World(catalogue(quick))
    world.launch(1)
    assert world.machine("c0").due == START + 60.0
    world.restart(0.0)
    assert world.machine("c0").due == START + 60.0
    world.restart(10.0)
    assert world.machine("c0").due == world.now + 300.0
    world.boot("c0")
    assert world.machine("c0").due == world.now + 60.0


def test_an_assignment_that_the_backup_shows_as_not_fetched_may_have_been_fetched_since() -> None:
    world = World()
    world.make_ready(1)
    world.register("c0")
    restored(world, UNKNOWN, later=119.0)
    assert not world.machine("c0").work.may_run_job  # its agent has a moment to poll
    world.now += 2.0
    world.lists(listed("i-c0"), UNKNOWN)
    assert world.machine("c0").work.may_run_job
    world.now += 1000.0
    assert world.intents(Terminate) == []
    assert ReadRunner(C0) in world.intents(ReadRunner)
    # The agent polls for the assignment, so it did not fetch it before.
    world.do(e.MachineSeen, C0, True)
    assert not world.machine("c0").work.may_run_job


def test_an_assigned_machine_whose_agent_polled_since_the_start_is_never_unverified() -> None:
    world = World()
    world.make_ready(1)
    world.register("c0")
    world.restart(AWAY)
    world.do(e.MachineSeen, C0, True)
    world.now += 121.0
    world.lists(listed("i-c0"), UNKNOWN)
    assert not world.machine("c0").work.may_run_job


def test_a_machine_launched_at_the_moment_of_the_start_is_verified() -> None:
    world = at("launched")
    world.restart(0.0)
    world.queue(1)
    world.now += 1.0
    world.lists(listed("i-c0"), UNKNOWN)
    assert world.states()["c0"] == "launched"
    assert not world.job(1).disputed


def test_a_ready_machine_is_unverified_two_minutes_after_the_start() -> None:
    assert restored(at("ready"), UNKNOWN, later=120.0).states()["c0"] == "assigned"


class _NotWalked(dict[MachineId, Machine]):
    def values(self) -> NoReturn:
        raise AssertionError("every machine is looked at")


def test_an_incomplete_listing_does_not_walk_all_machines_while_all_are_verified() -> None:
    world = at("ready")
    world.state.machines = _NotWalked(world.state.machines)
    world.lists(listed("i-c0", terminated=True), complete=False)
    assert world.machine("c0").state is MachineState.TERMINATED


def test_an_unknown_machine_shows_an_outdated_store_although_an_operator_released_it() -> None:
    world = at("ready")
    world.restart(AWAY)
    world.lists(listed("i-c0"), UNKNOWN)
    world.do(e.MachineReleasedByOperator, MachineId("x-i-9"), ALICE)
    world.now += 121.0
    world.lists(listed("i-c0"), UNKNOWN)
    machine = world.machine("c0")
    assert (machine.state, bool(machine.work.unverified)) == ("assigned", True)


def test_a_runner_list_in_pieces_counts_from_its_last_piece() -> None:
    world = World()
    (scope,) = world.catalogue.scopes
    world.do(e.RunnersListed, scope.key, world.now, (), True)
    assert world.state.runners_listed_at == {}
    world.do(e.RunnersListed, scope.key, world.now, ())
    assert world.state.runners_listed_at == {scope.key: world.now}


class CountedScopes(tuple[Scope, ...]):
    """Scopes that count how often they are read."""

    reads = 0

    def __iter__(self) -> Iterator[Scope]:
        CountedScopes.reads += 1
        return super().__iter__()


def test_the_evidence_is_computed_only_when_listings_or_scopes_change() -> None:
    """Each request of a machine asks for the evidence, and a fleet may have hundreds of scopes."""
    first, second = Scope("acme", None), Scope("zeta", None)
    world = World(dataclasses.replace(catalogue(), scopes=CountedScopes((first,))))
    world.make_ready()
    world.do(e.RunnersListed, first.key, world.now, ())
    assert world.state.evidence.runners_listed_at == world.now
    CountedScopes.reads = 0
    for _ in range(10):
        world.do(e.MachineSeen, MachineId("c0"), True)
    assert CountedScopes.reads == 0
    world.ledger.replace_catalogue(
        dataclasses.replace(catalogue(), scopes=CountedScopes((first, second)))
    )
    assert world.state.evidence.runners_listed_at == 0.0
    world.do(e.RunnersListed, second.key, world.now + 1.0, ())
    assert world.state.evidence.runners_listed_at == world.now
