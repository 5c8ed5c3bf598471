"""Why one job waits, what happens next and when, as far as the controller can know it."""

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import nsmallest

from autoscaler.model.fleet import Fleet
from autoscaler.model.identifiers import Instant
from autoscaler.model.jobs.demand import DemandClass
from autoscaler.model.jobs.job import Admission, Job, JobState
from autoscaler.model.jobs.runners import (
    CHECKED_EVERY,
    IDLE_STATES,
    PASSED_OVER_AFTER,
    RELEASED_AFTER,
    Runner,
    RunnerState,
)
from autoscaler.model.machines.machine import BOOTING_STATES, Machine, MachineState
from autoscaler.model.reasons.entry import Code
from autoscaler.model.reasons.table import GITHUB_DECIDES, WaitCode
from autoscaler.model.reasons.waiting import Reason, Waiting, WaitReason
from autoscaler.planner.registration import boot_seconds
from autoscaler.planner.waiting import not_assigned

Reasons = Mapping[DemandClass, Sequence[Waiting]]
"""`Plan.waiting`."""

_NOT_PLANNED = (WaitReason(WaitCode.NOT_PLANNED),)


@dataclass(frozen=True, slots=True)
class Wait:
    """Why a job waits.

    The job is number `place` of the `line` jobs with its labels that want a runner, oldest first. Both are 0
    for a job that wants none: GitHub or `access` decides first, or no SKU serves it. `turn` is its place among
    the jobs that wait for the same reason.
    """

    place: int
    line: int
    turn: int
    reasons: tuple[Reason, ...]
    blocked: bool

    @property
    def code(self) -> Code:
        """Return the code of the first reason."""
        return self.reasons[0].code


def wait_of(fleet: Fleet, reasons: Reasons, job: Job) -> Wait | None:
    """Return why a job waits, or None if it does not wait for a machine of this fleet. O(log jobs + classes).

    `reasons` may be those of an earlier plan: a job that it did not know has the code `not_planned`.
    """
    demand = job.demand
    if demand is None or job.state is not JobState.QUEUED:
        return None
    undecided = undecided_by(fleet, job)
    if undecided is None:
        return _in_line(fleet, reasons.get(demand, ()), job, demand)
    reason = WaitReason(undecided)
    if undecided is WaitCode.NOT_ASSIGNED:
        # The class may have several repositories.
        reason = not_assigned(demand, (job.repository,), refused=not job.passed_over)
    return Wait(0, 0, 0, (reason,), blocked=True)


def undecided_by(fleet: Fleet, job: Job) -> WaitCode | None:
    """Return what GitHub or `access` has to decide before a queued job wants a machine, or None."""
    if job.disputed and not job.admission.is_refusal:
        return WaitCode.JOB_UNCONFIRMED
    if job.admission is not Admission.ADMITTED:
        return WaitCode(job.admission.value)
    if job.demand is not None and job.id in fleet.on_hold.get(job.demand, {}):
        return WaitCode.NOT_ASSIGNED
    return None


def reasons_in_line(runs: Sequence[Waiting], length: int) -> Iterator[tuple[range, Waiting]]:
    """Yield the places of a line, from 0, with why the jobs there wait.

    `runs` are the reasons of its class, and `length` is the number of its jobs. The jobs that the plan did not
    know come last.
    """
    begin = 0
    for run in runs:
        if run.code not in GITHUB_DECIDES and begin < length:
            places = range(begin, min(begin + run.count, length))
            yield places, run
            begin = places.stop
    if begin < length:
        yield range(begin, length), Waiting(length - begin, _NOT_PLANNED)


def _in_line(fleet: Fleet, runs: Sequence[Waiting], job: Job, demand: DemandClass) -> Wait | None:
    queue = fleet.queues.get(demand)
    if queue is None:
        return None
    jobs = queue.values()
    index = bisect_left(jobs, (job.queued_at, job.id), key=lambda one: (one.queued_at, one.id))
    if index == len(jobs) or jobs[index].id != job.id:
        return None
    for places, run in reasons_in_line(runs, len(jobs)):
        if index in places:
            turn = index - places.start + 1
            return Wait(index + 1, len(jobs), turn, run.reasons, run.blocked)
    return None


_LOOKED_AT = 1_000
"""Maximum number of machines of each SKU among which an idle runner is looked for: it takes 2 ms."""


@dataclass(frozen=True, slots=True)
class NextEvent:
    """What happens next. `at` is when (Unix seconds), or None if that depends on others.

    `is_estimate`: `at` is an average of earlier boots or a rate, not a moment that the controller has set.
    `machine` is the machine that is expected to run the job, if one is on its way.
    """

    what: str
    at: Instant | None = None
    is_estimate: bool = False
    machine: str | None = None


def next_event(fleet: Fleet, job: Job, wait: Wait) -> NextEvent:
    """Return what ends the wait of a job, or changes its reason."""
    if (time := _TIMES.get(wait.code)) is not None:
        return NextEvent(wait.code.entry.next_event, time(fleet, job, wait))
    return _BY_CODE.get(wait.code, _when_the_reason_ends)(fleet, job, wait)


def _when_the_reason_ends(_fleet: Fleet, _job: Job, wait: Wait) -> NextEvent:
    """For holds: the controller launches again when the first of them ends."""
    ends = [reason.until for reason in wait.reasons if reason.until is not None]
    if not ends:
        codes = {reason.code for reason in wait.reasons}
        # Other repositories get the next machine, even if a limit is the first reason.
        code = WaitCode.FAIR_SHARE if WaitCode.FAIR_SHARE in codes else wait.code
        if code is WaitCode.QUOTA and wait.reasons[0].variant in _NO_MACHINE_HELPS:
            return NextEvent("the provider raises the quota, after you ask for it")
        return NextEvent(code.entry.next_event or "an operator has to act on the reason")
    return NextEvent("the controller tries to launch a machine again", min(ends))


def _runner_takes_it(fleet: Fleet, job: Job, _wait: Wait) -> NextEvent:
    oldest = min(
        _idle_runners(fleet, job.demand),
        key=lambda runner: runner.listening_at or runner.named_at,
        default=None,
    )
    if oldest is None:
        return NextEvent(WaitCode.RUNNER_IDLE.entry.next_event)
    if oldest.state is RunnerState.NAMED:
        what = "GitHub answers the controller's request to register a runner"
        return NextEvent(what, machine=oldest.machine)
    if oldest.retry_at is None:
        what = "the machine fetches the registration of its runner"
        return NextEvent(what, machine=oldest.machine)
    if oldest.listening_at is None:
        what = "the machine starts its runner; if not by then, the controller launches another"
        return NextEvent(what, oldest.retry_at, machine=oldest.machine)
    released_at = oldest.listening_at + RELEASED_AFTER
    if released_at > fleet.now:
        return NextEvent(
            "GitHub assigns the job to an idle runner; if not by then, the machine has its registration "
            "deleted, and the controller asks GitHub about the job",
            released_at,
            is_estimate=True,
            machine=oldest.machine,
        )
    # The agent begins to count some seconds later, or cannot have its registration deleted now.
    return NextEvent(
        "GitHub assigns the job to an idle runner; if not by then, the controller asks GitHub about the job",
        _first_check(oldest.retry_at, job.queued_at + PASSED_OVER_AFTER),
        machine=oldest.machine,
    )


def _first_check(next_check: Instant, since: Instant) -> Instant:
    """Return when the controller first checks an idle runner at this moment or later."""
    late = max(0.0, since - next_check)
    return next_check + math.ceil(late / CHECKED_EVERY) * CHECKED_EVERY


def _machine_registers(fleet: Fleet, job: Job, wait: Wait) -> NextEvent:
    assert job.demand is not None
    level = fleet.registrations.get(job.demand.account, 0.0)
    # Since the plan gave its reason, runners may have been named for jobs before this one, or for this one.
    named = max(0, fleet.idle_runners.get(job.demand, 0) - (wait.place - wait.turn))
    missing = max(0.0, wait.turn - named - level)
    at = fleet.now + missing / fleet.catalogue.registration.per_second
    return NextEvent(wait.code.entry.next_event, at, is_estimate=True)


def _machine_becomes_ready(fleet: Fleet, job: Job, wait: Wait) -> NextEvent:
    expected = nsmallest(
        wait.turn,
        (
            (machine.created_at + boot_seconds(fleet, machine.sku), machine.id)
            for machine in _of_class(fleet, job, BOOTING_STATES)
        ),
    )
    if not expected:
        return NextEvent("a machine becomes ready")
    at, name = expected[-1]
    machine = fleet.machines[name]
    if at < fleet.now:
        return _late_machine_becomes_ready(machine)
    return NextEvent(f"a machine becomes ready{_waits_for(machine)}", at, True, name)


def _late_machine_becomes_ready(machine: Machine) -> NextEvent:
    """For a machine that boots for longer than the average: what its deadline brings."""
    what = f"a machine becomes ready later than the average{_waits_for(machine)}"
    if machine.due is None:  # the provider has not answered yet
        return NextEvent(what, machine=machine.id)
    what += "; if not by then, the controller terminates it and tries another"
    return NextEvent(what, machine.due, machine=machine.id)


def _waits_for(machine: Machine) -> str:
    """Return what the provider says of a machine that has not reported yet, such as a pod without a node."""
    stage = machine.progress.stage
    return f" (it waits: {stage})" if stage and machine.work.last_seen is None else ""


def _another_machine_is_tried(_fleet: Fleet, job: Job, wait: Wait) -> NextEvent:
    if not job.passed_over:
        return NextEvent(
            "the runner group admits the repository; the controller reads it every minute"
        )
    return NextEvent(wait.code.entry.next_event, job.probe_at)


def _read_at(fleet: Fleet, job: Job) -> Instant:
    question = fleet.reads.get(job.id)
    return question.due if question is not None else fleet.now


def _run_read_at(fleet: Fleet, job: Job, _wait: Wait) -> Instant:
    question = fleet.run_questions.get(job.run_id) if job.run_id is not None else None
    return question.due if question is not None else fleet.now


def _expires_at(_fleet: Fleet, job: Job, _wait: Wait) -> Instant | None:
    return job.expires_at


def _registration_is_allowed(fleet: Fleet, job: Job, wait: Wait) -> NextEvent:
    assert job.demand is not None
    level = fleet.registrations.get(job.demand.account, 0.0)
    at = fleet.now + max(0.0, wait.place - level) / fleet.catalogue.registration.per_second
    return NextEvent(wait.code.entry.next_event, at, is_estimate=True)


def _of_class(fleet: Fleet, job: Job, states: Sequence[MachineState]) -> Iterator[Machine]:
    for sku in job.demand.skus if job.demand is not None else ():
        for state in states:
            yield from fleet.machines_in(sku, state)


def _idle_runners(fleet: Fleet, demand: DemandClass | None) -> Iterator[Runner]:
    """Yield the idle runners of a class, the newest machines first: those assigned long ago are at work."""
    left = fleet.idle_runners.get(demand, 0) if demand is not None else 0
    for sku in demand.skus if demand is not None else ():
        machines = fleet.machines_in(sku, MachineState.ASSIGNED)
        for index in range(len(machines) - 1, max(-1, len(machines) - 1 - _LOOKED_AT), -1):
            if left <= 0:
                return
            name = machines[index].work.runner
            runner = fleet.runners.get(name) if name is not None else None
            if runner is not None and runner.demand == demand and _is_idle(runner):
                left -= 1
                yield runner


def _is_idle(runner: Runner) -> bool:
    return runner.state in IDLE_STATES and not runner.passed_over


_NO_MACHINE_HELPS = frozenset({"none", "too_small"})
"""Variants of a quota that allows no machine, even if all others end."""

_BY_CODE: dict[Code, Callable[[Fleet, Job, Wait], NextEvent]] = {
    WaitCode.RUNNER_IDLE: _runner_takes_it,
    WaitCode.MACHINE_READY: _machine_registers,
    WaitCode.MACHINE_BOOTING: _machine_becomes_ready,
    WaitCode.REGISTRATION_RATE: _registration_is_allowed,
    WaitCode.NOT_ASSIGNED: _another_machine_is_tried,
}

_TIMES: dict[Code, Callable[[Fleet, Job, Wait], Instant | None]] = {
    WaitCode.LAUNCH_PLANNED: lambda fleet, _job, _wait: fleet.now,
    WaitCode.REGISTRATION_ON_HOLD: lambda _fleet, _job, wait: wait.reasons[0].until,
    WaitCode.GITHUB_PRIMARY_LIMIT: lambda _fleet, _job, wait: wait.reasons[0].until,
    WaitCode.GITHUB_SECONDARY_LIMIT: lambda _fleet, _job, wait: wait.reasons[0].until,
    WaitCode.JOB_UNCONFIRMED: lambda fleet, job, _wait: _read_at(fleet, job),
    WaitCode.RUN_UNKNOWN: _run_read_at,
    WaitCode.FORK_NOT_ALLOWED: _expires_at,
    WaitCode.PUBLIC_REPOSITORY_NOT_ALLOWED: _expires_at,
    WaitCode.BRANCH_NOT_ALLOWED: _expires_at,
}
"""When the next event of the table comes."""
