"""Interrupted machines: which are marked and replaced, and which jobs are rerun."""

from dataclasses import replace
from typing import Any

import pytest

from autoscaler.ledger.ledger import KEPT_FOR
from autoscaler.ledger.machines.reruns import (
    ASK_AGAIN,
    GIVEN_UP_AFTER,
    SIBLINGS_AWAITED,
    due_reruns,
)
from autoscaler.model import events as e
from autoscaler.model.catalogue import NO_RERUN, Catalogue
from autoscaler.model.cooldowns import active_cooldown, offering_key
from autoscaler.model.identifiers import JobId, ProviderMachineId, RunnerName
from autoscaler.model.jobs.job import JobState
from autoscaler.model.machines.failures import FailureClass
from autoscaler.model.machines.interruptions import NoticeKind, RerunOutcome, RerunState
from autoscaler.model.machines.machine import DAY, ExitReason, MachineState, TerminationReason
from autoscaler.model.plan import Assign, Launch, Terminate
from tests.ledger.builders import GPU, GPU_CLASS, World, listed
from tests.planner.fleets import EAST, catalogue, sku

SPOT = NoticeKind.SPOT_INTERRUPTION
REBALANCE = NoticeKind.REBALANCE_RECOMMENDATION
CHANGE = NoticeKind.SCHEDULED_CHANGE
STATE = NoticeKind.STATE_CHANGE
SOLD = offering_key("east/g5.xlarge/a/on-demand")


def opted_in(times: int = 2) -> Catalogue:
    known = catalogue()
    skus = {name: replace(one, rerun_interrupted=times) for name, one in known.skus.items()}
    return replace(known, skus=skus)


def notice(world: World, machine: str, kind: NoticeKind = SPOT, means_at: Any = None) -> None:
    provider_id = world.machine(machine).placement.provider_id
    at = world.now if means_at is None else means_at
    world.do(e.MachineNoticed, EAST, provider_id, kind, at, "words")


def at_work(
    world: World,
    job: int = 1,
    name: str = "c",
    labels: tuple[str, ...] = ("gpu",),
    attempt: int = 1,
) -> str:
    """A machine whose runner has a job of run 7."""
    world.queue(job, labels=labels)
    runner = world.assignment(world.make_ready(1, name)[0], replace(GPU_CLASS, labels=labels))
    reported = {"runner_name": runner, "run_id": 7, "run_attempt": attempt}
    world.observe(job, JobState.IN_PROGRESS, labels, **reported)
    return f"{name}0"


def vanish(world: World, *machines: str) -> None:
    """The provider shows them terminated."""
    world.lists(*(world.listed(machine, terminated=True) for machine in machines), complete=False)


def fails(world: World, job: int = 1, **fields: Any) -> None:
    fields.setdefault("completed_at", world.now)
    world.completes(job, conclusion="failure", **fields)


def killed(times: int = 2, job: int = 1, labels: tuple[str, ...] = ("gpu",)) -> World:
    """Return a world with a job whose machine was interrupted; the job failed ten minutes later."""
    world = World(opted_in(times))
    machine = at_work(world, job, labels=labels)
    notice(world, machine)
    vanish(world.after(120.0), machine)
    fails(world.after(600.0), job, labels=labels)
    return world


def outcome(world: World, job: int = 1) -> RerunOutcome | None:
    return world.state.reruns[JobId(job)].outcome


def due(world: World) -> list[tuple[int, ...]]:
    return [tuple(one.job for one in group) for group in due_reruns(world.state, world.now)]


# --- machines --------------------------------------------------------------------------------------


@pytest.mark.case(
    "a spot interruption of a ready machine: it is replaced and gets no registration, and its "
    "offering is on hold",
    topic="EC2's machines",
    source="EC2: spot interruption notices",
)
@pytest.mark.parametrize("kind", [SPOT, REBALANCE, CHANGE])
def test_an_interrupted_ready_machine_is_replaced_and_never_assigned(kind: NoticeKind) -> None:
    world = World()
    world.make_ready(1)
    world.queue(1)
    assert len(world.intents(Assign)) == 1
    notice(world, "c0", kind)
    assert world.intents(Assign) == []
    (end,) = world.intents(Terminate)
    assert (end.machine, end.reason_code) == ("c0", TerminationReason.INTERRUPTED)
    made = world.carry_out()
    launches = [one for one in made.intents if isinstance(one, Launch)]
    cooled = active_cooldown(world.state.cooldowns, SOLD, world.now) is not None
    assert cooled is (kind in (SPOT, REBALANCE))
    assert [one.sku for one in launches] == [GPU]
    assert not any(SOLD.endswith(key) for one in launches for key in one.offerings if cooled)
    assert world.machine("c0").state is MachineState.TERMINATING


def test_an_interrupted_booting_machine_is_replaced() -> None:
    world = World()
    world.launch(1)
    notice(world, "c0")
    assert [end.reason_code for end in world.intents(Terminate)] == [TerminationReason.INTERRUPTED]


def test_an_interrupted_machine_takes_its_unfetched_registration_with_it() -> None:
    world = World()
    runner = world.register(world.make_ready(1)[0])
    notice(world, "c0")
    world.carry_out()
    assert world.machine("c0").state is MachineState.TERMINATING
    assert world.runner(runner).state == "done"


@pytest.mark.case(
    "a spot interruption of a machine at work: it is marked and not terminated",
    topic="EC2's machines",
    source="EC2: spot interruption notices",
)
@pytest.mark.parametrize("kind", NoticeKind)
def test_an_interrupted_machine_with_a_job_is_not_terminated(kind: NoticeKind) -> None:
    world = World()
    machine = at_work(world)
    notice(world, machine, kind)
    assert world.intents(Terminate) == []
    marked = world.machine(machine).interruption.kind
    assert marked is (None if kind is STATE else kind)
    cooled = active_cooldown(world.state.cooldowns, SOLD, world.now) is not None
    assert cooled is (kind in (SPOT, REBALANCE))


def test_after_a_restart_a_notice_terminates_only_machines_whose_agent_polled() -> None:
    """A restored store may be older than the machine's assignment."""
    world = World()
    world.make_ready(1)
    world.restart(60.0)
    notice(world, "c0")
    assert world.intents(Terminate) == []
    world.do(e.MachineSeen, world.machine("c0").id, True)
    assert [end.reason_code for end in world.intents(Terminate)] == [TerminationReason.INTERRUPTED]


@pytest.mark.case(
    "notices arrive late, twice, or for machines of others",
    topic="EC2's machines",
    source="SQS: at-least-once delivery",
)
def test_a_repeated_or_weaker_notice_changes_nothing() -> None:
    world = World()
    machine = at_work(world)
    notice(world, machine, REBALANCE)
    notice(world, machine, SPOT)
    world.ledger.take_changes()
    notice(world.after(5.0), machine, SPOT)
    notice(world, machine, CHANGE)
    assert not world.ledger.take_changes()
    assert world.machine(machine).interruption.at == world.now - 5.0


@pytest.mark.case(
    "notices arrive late, twice, or for machines of others",
    topic="EC2's machines",
    source="SQS: at-least-once delivery",
)
def test_notices_of_unknown_or_terminated_machines_change_nothing() -> None:
    world = World()
    machine = at_work(world)
    vanish(world, machine)
    world.ledger.take_changes()
    notice(world, machine)
    world.do(e.MachineNoticed, EAST, ProviderMachineId("i-other"), SPOT, world.now, "")
    assert not world.ledger.take_changes()


def test_many_notices_at_once_count_as_one_failure() -> None:
    world = World()
    for name in ("c", "d", "f"):
        world.make_ready(1, name)
    for machine in ("c0", "d0", "f0"):
        notice(world, machine)
    assert world.state.cooldowns[SOLD].failures == 1


# --- jobs ------------------------------------------------------------------------------------------


@pytest.mark.case(
    "a job that its machine's interruption killed is re-run, and no other",
    topic="EC2's machines",
    source="runs-on#259; runs-on#411",
)
def test_a_job_that_failed_with_its_interrupted_machine_is_due_for_a_rerun() -> None:
    world = killed()
    assert due(world) == []
    assert due(world.after(ASK_AGAIN.first)) == [(1,)]
    rerun = world.state.reruns[JobId(1)]
    assert (rerun.repository, rerun.run_id, rerun.run_attempt) == ("acme/widgets", 7, 1)
    events = [row.event for row in world.ledger.take_changes().history if row.record == "1"]
    assert events[-3:] == ["interrupted", "completed", "rerun_due"]


def test_a_rerun_is_due_if_the_job_fails_before_the_machine_is_seen_terminated() -> None:
    world = World(opted_in())
    machine = at_work(world)
    notice(world, machine)
    fails(world.after(125.0))
    assert world.state.reruns == {}
    vanish(world.after(20.0), machine)
    assert due(world.after(ASK_AGAIN.first)) == [(1,)]


def test_a_rerun_is_due_if_the_job_start_is_reported_after_the_termination() -> None:
    world = World(opted_in())
    world.queue(1)
    runner = world.assignment(world.make_ready(1)[0])
    notice(world, "c0")
    vanish(world.after(120.0), "c0")
    world.observe(1, JobState.IN_PROGRESS, runner_name=runner, run_id=7)
    fails(world.after(600.0))
    assert due(world.after(ASK_AGAIN.first)) == [(1,)]


@pytest.mark.case(
    "spot is interrupted without any notice",
    topic="EC2's machines",
    source="EC2: spot interruption notices",
)
def test_a_spot_termination_reason_counts_as_an_interruption_notice() -> None:
    world = World(opted_in())
    machine = at_work(world)
    shown = replace(
        world.listed(machine, terminated=True),
        reason="Server.SpotInstanceTermination: taken",
        failure=FailureClass.CAPACITY,
    )
    world.after(120.0).lists(shown, complete=False)
    assert world.machine(machine).interruption.kind is SPOT
    fails(world.after(30.0))
    assert due(world.after(ASK_AGAIN.first)) == [(1,)]


@pytest.mark.case(
    "the provider cannot be listed for long after a machine was taken from its job",
    topic="Kubernetes",
    source="Kubernetes: Pod Lifecycle",
)
def test_a_job_stays_in_memory_until_its_machine_is_known_to_be_terminated() -> None:
    world = World(opted_in())
    machine = at_work(world)
    fails(world.after(600.0))
    world.after(700.0)
    shown = replace(
        world.listed(machine, terminated=True),
        reason="Evicted: the node was low on resource",
        failure=FailureClass.CAPACITY,
    )
    world.lists(shown, complete=False)
    assert due(world.after(ASK_AGAIN.first)) == [(1,)]


@pytest.mark.case(
    "a job fails ten minutes after its runner, when its machine is no longer in memory",
    topic="EC2's machines",
    source="actions/runner#3539",
)
def test_a_rerun_is_due_if_machine_and_job_left_memory_before_the_failure() -> None:
    world = World(opted_in())
    machine = at_work(world)
    notice(world, machine)
    vanish(world.after(120.0), machine)
    world.after(DAY + 700.0)
    assert machine not in world.state.machines
    fails(world)
    assert due(world.after(ASK_AGAIN.first)) == [(1,)]


@pytest.mark.case(
    "a job that its machine's interruption killed is re-run, and no other",
    topic="EC2's machines",
    source="runs-on#259; runs-on#411",
)
def test_a_job_that_failed_before_the_notice_is_not_rerun() -> None:
    world = World(opted_in())
    machine = at_work(world)
    fails(world.after(60.0))
    notice(world.after(5.0), machine)
    vanish(world.after(120.0), machine)
    assert outcome(world) is RerunOutcome.NOT_KILLED


def test_a_job_that_failed_in_the_second_of_the_notice_is_due_for_a_rerun() -> None:
    """GitHub's times are whole seconds. An evicted pod gets its notice and SIGTERM at once."""
    world = World(opted_in())
    machine = at_work(world)
    notice(world.after(60.9), machine)
    stops(world.after(0.05), machine)
    fails(world, completed_at=float(int(world.now)))
    assert due(world.after(ASK_AGAIN.first)) == [(1,)]


@pytest.mark.case(
    "a job that its machine's interruption killed is re-run, and no other",
    topic="EC2's machines",
    source="runs-on#259; runs-on#411",
)
def test_a_job_whose_runner_exited_by_itself_is_not_rerun() -> None:
    world = World(opted_in())
    machine = at_work(world)
    notice(world, machine)
    fails(world.after(60.0))
    world.do(e.MachineExited, world.machine(machine).id, "exit 0")
    vanish(world.after(60.0), machine)
    assert world.state.reruns == {}


def stops(world: World, machine: str = "c0") -> None:
    """Its agent reports that the operating system stops it."""
    world.do(e.MachineExited, world.machine(machine).id, "is shut down", ExitReason.STOPPED)


def shown_taken(world: World, machine: str = "c0") -> None:
    """The provider shows it terminated, and that spot took it."""
    shown = replace(
        world.listed(machine, terminated=True),
        reason="Server.SpotInstanceTermination: taken",
        failure=FailureClass.CAPACITY,
    )
    world.lists(shown, complete=False)


@pytest.mark.case(
    "the operating system of an interrupted spot machine stops the agent: the runner reports a "
    "failure, the agent reports `stopped`, and the job is re-run",
    topic="EC2's machines",
    source="actions/runner#1792; EC2: how termination works",
)
@pytest.mark.parametrize("fails_first", [True, False])
def test_a_job_whose_agent_reported_a_stop_is_rerun(
    fails_first: bool,
) -> None:
    """At a shutdown the runner fails its job and the agent reports the exit; then the machine terminates."""
    world = World(opted_in())
    notice(world, at_work(world))
    world.after(120.0)
    if fails_first:
        fails(world.after(5.0))
    stops(world.after(5.0))
    if not fails_first:
        fails(world.after(5.0))
    assert due(world.after(ASK_AGAIN.first)) == [(1,)]
    vanish(world, "c0")
    assert due(world) == [(1,)]


@pytest.mark.case(
    "the operating system of an interrupted spot machine stops the agent: the runner reports a "
    "failure, the agent reports `stopped`, and the job is re-run",
    topic="EC2's machines",
    source="actions/runner#1792; EC2: how termination works",
)
@pytest.mark.parametrize("asked_to_terminate", [True, False])
def test_a_rerun_is_due_if_the_notice_comes_after_the_stop_report(asked_to_terminate: bool) -> None:
    world = World(opted_in())
    at_work(world)
    stops(world.after(60.0))
    reported = world.now - 30.0
    fails(world.after(5.0))
    if asked_to_terminate:
        world.after(130.0).carry_out()
        assert world.machine("c0").state is MachineState.TERMINATING
    notice(world, "c0", means_at=reported)
    assert due(world.after(ASK_AGAIN.first)) == [(1,)]
    assert active_cooldown(world.state.cooldowns, SOLD, world.now) is not None


@pytest.mark.case(
    "a watch is silent while a pod is evicted, and shows the eviction after two lists without the pod",
    topic="Kubernetes",
    source="Kubernetes: API Concepts",
)
@pytest.mark.parametrize("stopped", [True, False])
def test_a_rerun_is_due_if_the_notice_comes_after_two_lists_without_the_machine(
    stopped: bool,
) -> None:
    """Found by seed 172 of the worlds with clusters."""
    world = World(opted_in())
    at_work(world)
    if stopped:
        stops(world.after(60.0))
    world.after(10.0).lists()
    world.after(60.0).lists()
    expected = MachineState.TERMINATED if stopped else MachineState.LOST
    assert world.machine("c0").state is expected
    notice(world.after(1.0), "c0", CHANGE)
    fails(world.after(500.0))
    assert due(world.after(ASK_AGAIN.first)) == [(1,)]
    assert world.machine("c0").state is expected


@pytest.mark.case(
    "a watch is silent while a node is lost, and then first shows that the pod failed, or that it is removed",
    topic="Kubernetes",
    source="Kubernetes: Nodes, and Pod garbage collection",
)
@pytest.mark.parametrize("stopped", [True, False])
def test_a_rerun_is_due_if_the_reason_comes_after_two_lists_without_the_machine(
    stopped: bool,
) -> None:
    world = World(opted_in())
    at_work(world)
    world.do(e.MachineSeen, world.machine("c0").id)
    if stopped:
        stops(world.after(60.0))
    world.after(10.0).lists()
    world.after(60.0).lists()
    shown_taken(world.after(1.0))
    fails(world.after(500.0))
    assert due(world.after(ASK_AGAIN.first)) == [(1,)]
    assert world.machine("c0").state is MachineState.TERMINATED


@pytest.mark.parametrize("asked_to_terminate", [True, False])
def test_a_rerun_is_due_if_the_termination_reason_comes_after_the_stop_report(
    asked_to_terminate: bool,
) -> None:
    world = World(opted_in())
    at_work(world)
    world.do(e.MachineSeen, world.machine("c0").id)
    stops(world.after(30.0))
    fails(world.after(5.0))
    if asked_to_terminate:
        world.after(130.0).carry_out()
        assert world.machine("c0").state is MachineState.TERMINATING
    shown_taken(world.after(60.0))
    assert due(world.after(ASK_AGAIN.first)) == [(1,)]


def test_a_job_on_a_machine_that_a_person_stopped_is_not_rerun() -> None:
    world = World(opted_in())
    at_work(world)
    stops(world.after(60.0))
    fails(world.after(5.0))
    vanish(world.after(60.0), "c0")
    assert world.state.reruns == {}


def test_a_notice_after_the_exit_of_a_runner_that_was_not_stopped_changes_nothing() -> None:
    world = World(opted_in())
    machine = at_work(world)
    fails(world.after(60.0))
    world.do(e.MachineExited, world.machine(machine).id, "exit 0", ExitReason.EXITED)
    world.ledger.take_changes()
    notice(world, machine)
    assert not world.ledger.take_changes()


@pytest.mark.case(
    "a job that its machine's interruption killed is re-run, and no other",
    topic="EC2's machines",
    source="runs-on#259; runs-on#411",
)
def test_a_job_whose_machine_was_lost_without_any_notice_is_not_rerun() -> None:
    world = World(opted_in())
    machine = at_work(world)
    vanish(world.after(60.0), machine)
    fails(world.after(600.0))
    assert world.state.reruns == {}


@pytest.mark.case(
    "a rebalance recommendation",
    topic="EC2's machines",
    source="EC2: rebalance recommendations",
)
def test_a_rebalance_recommendation_alone_causes_no_rerun() -> None:
    world = World(opted_in())
    machine = at_work(world)
    notice(world, machine, REBALANCE)
    vanish(world.after(60.0), machine)
    fails(world.after(600.0))
    assert world.state.reruns == {}


@pytest.mark.case(
    "a scheduled change by AWS Health, by id or ARN, of several machines at once",
    topic="EC2's machines",
    source="AWS Health: EventBridge schema",
)
def test_a_scheduled_change_causes_a_rerun_only_of_jobs_that_fail_after_its_time() -> None:
    world = World(opted_in())
    for job, name in ((1, "c"), (2, "d")):
        notice(world, at_work(world, job, name), CHANGE, means_at=world.now + 1000.0)
    vanish(world.after(100.0), "c0")
    fails(world.after(600.0), 1)
    vanish(world.after(400.0), "d0")
    fails(world, 2)
    assert outcome(world, 1) is RerunOutcome.NOT_KILLED
    assert due(world.after(ASK_AGAIN.first)) == [(2,)]


@pytest.mark.case(
    "GitHub shows a job of an interrupted spot machine as cancelled: this looks like a person's "
    "wish, and the job is not re-run",
    topic="EC2's machines",
    source="runs-on#249",
)
@pytest.mark.parametrize("conclusion", ["success", "cancelled", "timed_out"])
def test_a_job_with_a_conclusion_other_than_failure_is_not_rerun(conclusion: str) -> None:
    world = World(opted_in())
    machine = at_work(world)
    notice(world, machine)
    vanish(world.after(120.0), machine)
    world.completes(1, conclusion=conclusion, completed_at=world.now + 30.0)
    assert outcome(world) is RerunOutcome.NOT_KILLED


def test_a_job_on_a_foreign_runner_with_the_same_name_is_not_rerun() -> None:
    world = World(opted_in())
    world.queue(1)
    runner = world.assignment(world.make_ready(1)[0])
    world.observe(1, JobState.IN_PROGRESS, runner_name=runner, run_id=7, runner_id=8)
    notice(world, "c0")
    vanish(world.after(120.0), "c0")
    fails(world.after(60.0), runner_name=runner, runner_id=8)
    assert world.state.reruns == {}


def test_a_sku_that_did_not_opt_in_is_reported_in_the_job_s_history_and_nothing_else() -> None:
    world = killed(times=0)
    assert outcome(world) is RerunOutcome.OFF
    assert due(world.after(GIVEN_UP_AFTER)) == []


@pytest.mark.case(
    "re-runs of interrupted jobs without end",
    topic="EC2's machines",
    source="runs-on#259; runs-on#411",
)
def test_a_label_excludes_a_job_from_reruns() -> None:
    world = killed(labels=("gpu", NO_RERUN))
    assert outcome(world) is RerunOutcome.OPTED_OUT


def test_every_sku_serves_jobs_with_the_label_against_reruns() -> None:
    world = World()
    world.queue(1, labels=("gpu", NO_RERUN))
    demand = world.job(1).demand
    assert demand is not None
    assert NO_RERUN in demand.runner_labels


# --- asking ----------------------------------------------------------------------------------------


def ask(world: World, *jobs: int) -> None:
    world.do(e.RerunRequested, tuple(map(JobId, jobs)))


def answer(world: World, given: RerunOutcome | None, *jobs: int) -> None:
    world.do(e.RerunAnswered, tuple(map(JobId, jobs)), given, "words")


def test_rerun_requests_are_repeated_with_backoff_until_github_accepts() -> None:
    world = killed()
    waits = []
    world.after(ASK_AGAIN.first)
    for _ in range(9):
        assert due(world) == [(1,)]
        ask(world, 1)
        answer(world, None, 1)
        moment = world.state.reruns[JobId(1)].due
        assert moment is not None
        waits.append(moment - world.now)
        world.after(moment - world.now)
    assert waits[:3] == [ASK_AGAIN.first * 2**n for n in range(3)]
    assert waits[-1] == ASK_AGAIN.longest
    ask(world, 1)
    answer(world, RerunOutcome.ACCEPTED, 1)
    assert outcome(world) is RerunOutcome.ACCEPTED
    assert due(world.after(ASK_AGAIN.longest)) == []


def test_an_unanswered_rerun_request_that_github_carried_out_counts_as_accepted() -> None:
    world = killed().after(ASK_AGAIN.first)
    ask(world, 1)
    world.restart(60.0)
    ask(world.after(60.0), 1)
    answer(world, RerunOutcome.SUPERSEDED, 1)
    assert outcome(world) is RerunOutcome.ACCEPTED


@pytest.mark.case(
    "a person has re-run the job already",
    topic="EC2's machines",
    source="GitHub: re-run a job",
)
def test_an_attempt_that_a_person_started_ends_the_rerun() -> None:
    world = killed().after(ASK_AGAIN.first)
    for given in (None, RerunOutcome.SUPERSEDED):
        ask(world, 1)
        answer(world, given, 1)
    assert outcome(world) is RerunOutcome.SUPERSEDED


def two_of_a_run(times: int) -> World:
    """Return a world with two failed jobs of run 7, whose machines were interrupted."""
    world = World(opted_in(times))
    for job, name in ((1, "c"), (2, "d")):
        notice(world, at_work(world, job, name))
    vanish(world.after(120.0), "c0", "d0")
    fails(world.after(600.0), 1)
    fails(world, 2)
    return world.after(ASK_AGAIN.first)


def test_jobs_of_one_run_share_a_rerun_request_and_use_the_budget_once() -> None:
    world = two_of_a_run(times=1)
    assert due(world) == [(1, 2)]
    ask(world, 1, 2)
    answer(world, RerunOutcome.ACCEPTED, 1, 2)
    assert outcome(world, 1) is outcome(world, 2) is RerunOutcome.ACCEPTED


@pytest.mark.case(
    "many jobs of a run die at once, beside some that failed by themselves",
    topic="EC2's machines",
    source="GitHub: re-run failed jobs",
)
def test_the_other_job_of_a_rerun_run_waits_for_the_new_attempt() -> None:
    world = two_of_a_run(times=2)
    ask(world, 1, 2)
    answer(world, RerunOutcome.ACCEPTED, 1)
    assert world.state.reruns[JobId(2)].run_attempt == 2
    assert due(world.after(ASK_AGAIN.longest)) == [(2,)]


@pytest.mark.case(
    "one killed job becomes known after the run was re-run for another",
    topic="EC2's machines",
    source="GitHub: re-run failed jobs",
)
def test_a_job_that_is_found_killed_after_a_rerun_belongs_to_the_new_attempt() -> None:
    """The controller learns of its interruption later than of the other job's."""
    world = World(opted_in())
    for job, name in ((1, "c"), (2, "d")):
        notice(world, at_work(world, job, name))
    vanish(world.after(120.0), "c0")
    fails(world.after(600.0), 1)
    fails(world, 2)
    ask(world.after(ASK_AGAIN.first), 1)
    answer(world, RerunOutcome.ACCEPTED, 1)
    vanish(world, "d0")
    assert world.state.reruns[JobId(2)].run_attempt == 2
    assert due(world.after(ASK_AGAIN.first)) == [(2,)]


@pytest.mark.case(
    "the lost answer was for one of several jobs: the others are still re-run",
    topic="EC2's machines",
    source="GitHub: re-run a job",
)
def test_a_lost_answer_counts_only_for_the_job_that_was_requested() -> None:
    """GitHub reran one of two jobs, and the answer was lost: the other job still needs its rerun."""
    world = two_of_a_run(times=2)
    ask(world, 1, 2)
    answer(world, None, 2)
    ask(world.after(ASK_AGAIN.longest), 1, 2)
    answer(world, RerunOutcome.SUPERSEDED, 1, 2)
    assert outcome(world, 1) is RerunOutcome.ACCEPTED
    other = world.state.reruns[JobId(2)]
    assert (other.state, other.run_attempt, other.unanswered) == (RerunState.DUE, 2, 0)


def test_a_refused_rerun_does_not_settle_an_earlier_unanswered_request() -> None:
    world = killed().after(ASK_AGAIN.first)
    ask(world, 1)
    ask(world.after(ASK_AGAIN.longest), 1)
    answer(world, None, 1)
    ask(world.after(ASK_AGAIN.longest), 1)
    answer(world, RerunOutcome.SUPERSEDED, 1)
    assert outcome(world) is RerunOutcome.ACCEPTED


def test_an_accepted_rerun_of_another_job_is_not_taken_for_a_lost_answer() -> None:
    world = two_of_a_run(times=2)
    ask(world, 1, 2)
    answer(world, RerunOutcome.ACCEPTED, 1)
    ask(world.after(ASK_AGAIN.longest), 2)
    answer(world, RerunOutcome.SUPERSEDED, 2)
    assert outcome(world, 2) is RerunOutcome.SUPERSEDED, "another person's"


@pytest.mark.case(
    "one spot interruption kills several jobs of a run, which fail seconds apart: one request and"
    " one attempt for all",
    topic="EC2's machines",
    source="GitHub: re-run failed jobs",
)
@pytest.mark.parametrize("gap", [0.0, 4.0, 12.0, 20.0, 40.0])
def test_jobs_killed_together_share_a_rerun_request_although_they_fail_one_by_one(
    gap: float,
) -> None:
    world = World(opted_in(1))
    for job, name in ((1, "c"), (2, "d")):
        notice(world, at_work(world, job, name))
    vanish(world.after(120.0), "c0", "d0")
    fails(world.after(600.0), 1)
    assert due(world.after(gap)) == []
    fails(world, 2)
    asked = [groups for _ in range(30) if (groups := due(world.after(1.0)))]
    assert asked[0] == asked[-1] == [(1, 2)]


@pytest.mark.case(
    "one spot interruption kills several jobs of a run, which fail seconds apart: one request and"
    " one attempt for all",
    topic="EC2's machines",
    source="GitHub: re-run failed jobs",
)
def test_a_rerun_waits_at_most_a_quarter_of_an_hour_for_sibling_jobs() -> None:
    world = World(opted_in(1))
    for job, name in ((1, "c"), (2, "d")):
        notice(world, at_work(world, job, name))
    vanish(world.after(120.0), "c0", "d0")
    fails(world, 1)
    assert due(world.after(SIBLINGS_AWAITED - 1.0)) == []
    assert due(world.after(1.0)) == [(1,)]


@pytest.mark.parametrize("restarts", [0, 1, 2])
def test_restarts_do_not_raise_the_number_of_rerun_requests(
    restarts: int,
) -> None:
    world = World(opted_in())
    for job, name in ((1, "c"), (2, "d")):
        notice(world, at_work(world, job, name))
    vanish(world.after(120.0), "c0", "d0")
    fails(world, 1)
    given_up = world.state.reruns[JobId(2)].due
    for _ in range(restarts):
        world.restart(1.0)
    assert world.state.reruns[JobId(2)].due == given_up
    world.after(SIBLINGS_AWAITED)
    asked = 0
    for _ in range(60):
        for group in due(world.after(5.0)):
            ask(world, *group)
            answer(world, None, *group)
            asked += 1
    assert asked == 5, "after 5, 20, 50, 110 and 230 s"


def test_a_due_date_of_a_waiting_rerun_causes_no_request() -> None:
    """A store that an earlier version repaired can have such a record."""
    world = two_of_a_run(times=1)
    ask(world, 1, 2)
    answer(world, None, 1, 2)
    waiting = replace(world.state.reruns[JobId(2)], state=RerunState.WAITING)
    waiting.due, waiting.created_at = world.now, waiting.created_at - SIBLINGS_AWAITED
    world.state.drop(world.state.reruns[JobId(2)])
    world.state.add(waiting, stored=True)
    assert due(world) == []
    assert due(world.after(ASK_AGAIN.first)) == [(1,)]


@pytest.mark.case(
    "one spot interruption kills several jobs of a run, which fail seconds apart: one request and"
    " one attempt for all",
    topic="EC2's machines",
    source="GitHub: re-run failed jobs",
)
def test_jobs_killed_in_one_attempt_use_the_rerun_budget_once() -> None:
    """If another job of the run failed by itself, the controller requests a rerun of each killed job alone."""
    world = two_of_a_run(times=1)
    ask(world, 1, 2)
    answer(world, RerunOutcome.ACCEPTED, 1)
    assert due(world.after(ASK_AGAIN.longest)) == [(2,)]
    ask(world, 2)
    answer(world, RerunOutcome.ACCEPTED, 2)
    assert outcome(world, 2) is RerunOutcome.ACCEPTED


def once_again(times: int) -> World:
    """A job of run 7 was rerun and is killed again: it is job 2, of attempt 2."""
    world = killed(times).after(ASK_AGAIN.first)
    ask(world, 1)
    notice(world, at_work(world, 2, "d", attempt=2))
    vanish(world.after(120.0), "d0")
    return world


@pytest.mark.case(
    "re-runs of interrupted jobs without end",
    topic="EC2's machines",
    source="runs-on#259; runs-on#411",
)
def test_a_run_is_rerun_no_more_often_than_its_budget() -> None:
    world = once_again(times=1)
    fails(world, 2)
    answer(world, RerunOutcome.ACCEPTED, 1)
    world.now += ASK_AGAIN.longest
    assert due(world) == [], "nor before the controller has noticed that it is used up"
    world.after(0.0)
    assert outcome(world, 2) is RerunOutcome.OVER_BUDGET
    assert world.state.reruns[JobId(2)].ended_at == world.now


def test_a_used_up_rerun_budget_is_reported_when_the_job_fails() -> None:
    world = once_again(times=1)
    answer(world, RerunOutcome.ACCEPTED, 1)
    fails(world, 2)
    assert outcome(world, 2) is RerunOutcome.OVER_BUDGET


def test_with_a_budget_of_two_a_job_that_is_killed_twice_is_rerun_twice() -> None:
    world = once_again(times=2)
    answer(world, RerunOutcome.ACCEPTED, 1)
    fails(world, 2)
    assert due(world.after(ASK_AGAIN.first)) == [(2,)]


def test_jobs_of_two_runs_need_two_rerun_requests() -> None:
    world = World(opted_in())
    for job, name in ((1, "c"), (2, "d")):
        world.queue(job)
        runner = world.assignment(world.make_ready(1, name)[0])
        world.observe(job, JobState.IN_PROGRESS, runner_name=runner, run_id=job)
        notice(world, f"{name}0")
    vanish(world.after(120.0), "c0", "d0")
    fails(world, 1)
    fails(world, 2)
    assert due(world.after(ASK_AGAIN.first)) == [(1,), (2,)]


def test_a_refused_rerun_request_ends_the_reruns_of_all_its_jobs() -> None:
    world = two_of_a_run(times=2)
    ask(world, 1, 2)
    answer(world, RerunOutcome.REFUSED, 1, 2)
    assert outcome(world, 1) is outcome(world, 2) is RerunOutcome.REFUSED
    assert world.state.reruns[JobId(2)].ended_at == world.now


def test_events_about_reruns_that_are_not_due_change_nothing() -> None:
    world = killed().after(ASK_AGAIN.first)
    ask(world, 1)
    answer(world, RerunOutcome.ACCEPTED, 1)
    world.ledger.take_changes()
    ask(world, 1, 99)
    answer(world, RerunOutcome.REFUSED, 1, 99)
    assert not world.ledger.take_changes()


def test_jobs_of_a_sku_that_left_the_configuration_are_not_rerun() -> None:
    world = killed()
    world.ledger.replace_catalogue(catalogue(sku("cpu")))
    assert due(world.after(ASK_AGAIN.first)) == []
    assert outcome(world) is RerunOutcome.OVER_BUDGET


def test_an_interrupted_machine_without_a_known_runner_causes_no_rerun() -> None:
    world = World(opted_in())
    world.lists(listed("i-9", call="lost"))
    notice(world, "x-i-9")
    vanish(world.after(120.0), "x-i-9")
    assert (world.machine("x-i-9").interruption.taken_at, world.state.reruns) == (world.now, {})


def test_a_rerun_waits_a_week_for_its_job_to_end() -> None:
    world = World(opted_in())
    notice(world, at_work(world))
    vanish(world.after(120.0), "c0")
    assert world.state.reruns[JobId(1)].due == world.now + GIVEN_UP_AFTER
    world.after(GIVEN_UP_AFTER - 1.0)
    assert outcome(world) is None
    world.after(1.0)
    rerun = world.state.reruns[JobId(1)]
    assert (rerun.outcome, rerun.ended_at) == (RerunOutcome.EXPIRED, world.now)


def test_the_week_for_a_rerun_counts_from_the_termination_of_its_machine() -> None:
    world = World(opted_in(), now=1e9)
    notice(world, at_work(world))
    vanish(world.after(120.0), "c0")
    fails(world)
    world.after(ASK_AGAIN.first)
    assert (outcome(world), due(world)) == (None, [(1,)])


def test_reruns_that_github_never_allows_are_given_up() -> None:
    world = killed()
    notice(world, at_work(world, 2, "d"))
    vanish(world.after(120.0), "d0")
    assert world.state.reruns[JobId(2)].state is RerunState.WAITING
    ask(world.after(ASK_AGAIN.first), 1)
    answer(world, None, 1)
    world.after(GIVEN_UP_AFTER)
    assert outcome(world, 1) is outcome(world, 2) is RerunOutcome.EXPIRED
    assert world.state.reruns[JobId(1)].reason == "words"


def test_reruns_survive_a_restart_and_are_pruned_after_days() -> None:
    world = killed()
    world.restart(30.0)
    assert due(world.after(ASK_AGAIN.first)) == [(1,)]
    ask(world, 1)
    answer(world, RerunOutcome.ACCEPTED, 1)
    world.after(2 * 86_400.0)
    assert JobId(1) in world.state.reruns
    world.after(2 * 86_400.0)
    assert world.state.reruns == {}


def taken_unnamed() -> tuple[World, RunnerName]:
    """A machine was interrupted before GitHub named its runner: no webhook came, and reads were wrong."""
    world = World(opted_in())
    world.queue(1)
    runner = world.assignment(world.make_ready(1)[0])
    notice(world, "c0")
    vanish(world.after(120.0), "c0")
    return world, runner


@pytest.mark.case(
    "a machine is taken while its job's webhooks are lost and GitHub's answers are wrong: GitHub "
    "names the job hours later, and it is re-run",
    topic="EC2's machines",
    source="actions/runner#3539",
)
def test_a_job_that_github_reports_hours_after_the_interruption_is_rerun() -> None:
    world, runner = taken_unnamed()
    ended = world.now + 600.0
    world.after(23 * 3600.0)
    fails(world, 1, read=True, runner_name=runner, run_id=7, completed_at=ended)
    assert due(world.after(ASK_AGAIN.first)) == [(1,)]
    assert world.state.reruns[JobId(1)].machine == "c0"


def test_an_interrupted_machine_stays_in_memory_for_a_day() -> None:
    world, _ = taken_unnamed()
    world.after(DAY + KEPT_FOR)
    assert set(world.state.machines) == {"c0"}
    world.after(1.0)
    assert (world.state.machines, world.state.runners) == ({}, {})
