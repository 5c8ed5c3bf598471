"""Reports what the time of machines bought, why jobs failed, and how long workflow runs take and wait.

Both meters follow the rows of history, so that their cost follows what changed. Each row costs O(1).
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from autoscaler.controller.journal import Journal
from autoscaler.controller.ports.telemetry import Telemetry
from autoscaler.ledger.jobs.job_waits import launched_at, machine_of
from autoscaler.model.accounting import FailureCause, MachineUse, RunState, Usage, day_of
from autoscaler.model.changes import HistoryRow
from autoscaler.model.identifiers import Instant, JobId, MachineId
from autoscaler.model.jobs.job import Job, JobState
from autoscaler.model.machines.interruptions import TAKES
from autoscaler.model.machines.machine import ExitReason, Machine, MachineState, TerminationReason

_ENDS = frozenset({MachineState.TERMINATING, MachineState.TERMINATED, MachineState.LOST})
_OVER = frozenset({*_ENDS, MachineState.EXITED, MachineState.FAILED})

TAKEN_FROM_JOB = frozenset(
    {
        TerminationReason.INTERRUPTED,
        TerminationReason.LOST,
        TerminationReason.SHUT_DOWN,
        TerminationReason.SILENT_AND_FINISHED,
        TerminationReason.LIFETIME,
        TerminationReason.OPERATOR,
    }
)
"""Reasons of a machine's end that explain why its job failed."""

RUNNER_FAILED = frozenset(
    {
        ExitReason.HUNG,
        ExitReason.STOPPED,
        ExitReason.NOT_STARTED,
        ExitReason.NOT_CONNECTED,
        ExitReason.REGISTRATION_REFUSED,
    }
)
"""Exits of a runner that explain why its job failed."""

_NO_FAILURES = frozenset({"success", "skipped", "neutral", "action_required"})


class UsageMeter:
    """Follows the machines at work, and the failed jobs whose machine has not ended yet.

    Both are in memory alone. After a restart, failed jobs from before it are not counted.
    """

    def __init__(self, journal: Journal, telemetry: Telemetry) -> None:
        self._journal = journal
        self._state = journal.ledger.state
        self._telemetry = telemetry
        self._at_work: dict[MachineId, tuple[JobId, Instant]] = {}
        """The job of each machine at work, and its start."""
        self._failed: dict[JobId, Job] = {}
        journal.on_history(self._on_history)

    def resume(self) -> None:
        """Follow the machines whose jobs run, after the records were restored. O(jobs)."""
        for job in self._state.jobs.values():
            if job.state is JobState.IN_PROGRESS:
                self._starts(job, job.started_at or job.updated_at)

    def _on_history(self, rows: Sequence[HistoryRow]) -> None:
        for row in rows:
            match self._journal.record_of(row):
                case Job() as job if row.event == JobState.IN_PROGRESS:
                    self._starts(job, job.started_at or row.at)
                case Job() as job if row.event == JobState.COMPLETED:
                    self._completes(job, job.completed_at or row.at)
                case Machine() as machine:
                    self._on_machine(row, machine)

    def _starts(self, job: Job, at: Instant) -> None:
        found = machine_of(self._state, job)
        if found is None or found[1].id in self._at_work:
            return
        machine = found[1]
        self._at_work[machine.id] = job.id, at
        self._use(machine, MachineUse.READY, _ready_at(machine), at)

    def _completes(self, job: Job, at: Instant) -> None:
        found = machine_of(self._state, job)
        if found is None:
            return
        machine = found[1]
        at_work, since = self._at_work.get(machine.id, (None, at))
        if at_work == job.id:
            del self._at_work[machine.id]
            self._use(machine, MachineUse.JOB, since, at, job)
        if job.conclusion in _NO_FAILURES:
            return
        if machine.state in _OVER:
            self._count_failure(job, machine)
        else:
            self._failed[job.id] = job

    def _on_machine(self, row: HistoryRow, machine: Machine) -> None:
        if row.event == MachineState.READY and machine.progress.ready_at == row.at:
            self._use(machine, MachineUse.BOOT, launched_at(self._state, machine), row.at)
        elif row.event in _ENDS and row.code:
            self._ends(machine, row.at)
        if row.event == MachineState.EXITED or row.event in _ENDS:
            runner = self._state.runner_of(machine)
            job = self._failed.pop(runner.job, None) if runner and runner.job else None
            if job is not None:
                self._count_failure(job, machine)

    def _ends(self, machine: Machine, at: Instant) -> None:
        at_work = self._at_work.pop(machine.id, None)
        runner = self._state.runner_of(machine)
        job = self._state.jobs.get(runner.job) if runner and runner.job else None
        ready_at = _ready_at(machine)
        if at_work is not None:
            until = job.completed_at if job is not None and job.completed_at else at
            self._use(machine, MachineUse.JOB, at_work[1], min(until, at), job)
            self._use(machine, MachineUse.END, until, at)
        elif runner is not None and runner.job is not None:
            if job is not None and job.started_at is not None:
                self._use(machine, MachineUse.END, job.completed_at or at, at)
        elif ready_at is not None:
            self._use(machine, MachineUse.READY, ready_at, at)
        elif machine.placement.provider_id is not None:
            self._use(machine, MachineUse.FAILED_LAUNCH, launched_at(self._state, machine), at)

    def _use(
        self,
        machine: Machine,
        use: MachineUse,
        since: Instant | None,
        until: Instant,
        job: Job | None = None,
    ) -> None:
        if since is None or until <= since:
            return
        seconds = until - since
        price = self._state.spot_costs.price_of(machine, self._state.catalogue)
        dollars = seconds * price / 3600.0
        repository = job.repository if job is not None else ""
        self._telemetry.machine_used(machine.sku, use, seconds, dollars, repository)
        self._journal.add_usage(
            Usage(day_of(until), machine.provider, machine.sku, repository, use, seconds, dollars)
        )

    def _count_failure(self, job: Job, machine: Machine) -> None:
        if job.demand is None:
            return
        if (
            machine.interruption.kind in TAKES
            or machine.termination.reason in TAKEN_FROM_JOB
            or machine.work.exit_reason in RUNNER_FAILED
        ):
            self._telemetry.job_failed(job.demand.skus[0], FailureCause.INFRASTRUCTURE)
        elif job.conclusion == "failure":
            self._telemetry.job_failed(job.demand.skus[0], FailureCause.CODE)


def _ready_at(machine: Machine) -> Instant | None:
    """Return since when a machine could run a job. A machine without a launch request is found assigned."""
    return machine.progress.ready_at or machine.progress.assigned_at


@dataclass(slots=True)
class _Run:
    """The number of open jobs of one run, by state. `since` is when one of them changed last."""

    repository: str
    began: Instant
    since: Instant
    open: Counter[JobState] = field(default_factory=Counter)


class RunMeter:
    """Reports how long workflow runs have open jobs, and how much of this time all of them wait.

    Only jobs that a SKU serves count. In memory alone: a restart begins the times of open runs again.
    """

    def __init__(self, journal: Journal, telemetry: Telemetry) -> None:
        self._journal = journal
        self._telemetry = telemetry
        self._runs: dict[int, _Run] = {}
        self._open: dict[JobId, JobState] = {}
        journal.on_history(self._on_history)

    def resume(self) -> None:
        """Follow the open jobs, after the records were restored. O(jobs)."""
        for job in self._journal.ledger.state.jobs.values():
            self._follow(job, self._journal.now)

    def _on_history(self, rows: Sequence[HistoryRow]) -> None:
        for row, job in self._journal.jobs_in(rows):
            self._follow(job, row.at)

    def _follow(self, job: Job, at: Instant) -> None:
        run_id, now = job.run_id, _counted_as(job)
        before = self._open.get(job.id)
        if run_id is None or now is before:
            return
        run = self._runs.get(run_id)
        if run is None:
            if now is None:
                return
            run = self._runs[run_id] = _Run(job.repository, at, at)
        if at > run.since:
            state = RunState.RUNNING if run.open[JobState.IN_PROGRESS] else RunState.WAITING
            self._telemetry.run_time(run.repository, state, at - run.since)
            run.since = at
        if before is not None:
            del self._open[job.id]
            run.open[before] -= 1
        if now is not None:
            self._open[job.id] = now
            run.open[now] += 1
        if not run.open.total():
            del self._runs[run_id]
            self._telemetry.run_ended(run.repository, max(0.0, at - run.began))


def _counted_as(job: Job) -> JobState | None:
    """Return whether the job waits for a runner or runs; None if neither."""
    if job.demand is None or job.admission.is_refusal:
        return None
    return job.state if job.state in (JobState.QUEUED, JobState.IN_PROGRESS) else None
