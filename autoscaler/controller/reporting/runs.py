"""Reports how long workflow runs have open jobs, and how much of this time all of them wait.

It follows the rows of history: each row costs O(1). Only jobs that a SKU serves count.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from autoscaler.controller.journal import Journal
from autoscaler.controller.ports.telemetry import RunTelemetry
from autoscaler.model.accounting import RunState
from autoscaler.model.changes import HistoryRow
from autoscaler.model.identifiers import Instant, JobId
from autoscaler.model.jobs.job import Job, JobState


@dataclass(slots=True)
class _Run:
    """The open jobs of one run. `since` is when one of them changed last."""

    repository: str
    began: Instant
    since: Instant
    waiting: int = 0
    running: int = 0


class RunMeter:
    """Follows the runs with open jobs, in memory alone. A restart begins the times of open runs again."""

    def __init__(self, journal: Journal, telemetry: RunTelemetry) -> None:
        self._journal = journal
        self._telemetry = telemetry
        self._runs: dict[int, _Run] = {}
        self._open: dict[JobId, tuple[int, JobState]] = {}
        journal.on_history(self._on_history)

    def resume(self) -> None:
        """Follow the open jobs, after the records were restored. O(jobs)."""
        for job in self._journal.ledger.state.jobs.values():
            self._follow(job, self._journal.now)

    def _on_history(self, rows: Sequence[HistoryRow]) -> None:
        jobs = self._journal.ledger.state.jobs
        for row in rows:
            if row.kind == "job" and (job := jobs.get(JobId(int(row.record)))) is not None:
                self._follow(job, row.at)

    def _follow(self, job: Job, at: Instant) -> None:
        run_id, now = job.run_id, _counted_as(job)
        before = self._open.get(job.id)
        if run_id is None or now is (before[1] if before is not None else None):
            return
        run = self._runs.get(run_id)
        if run is None:
            if now is None:
                return
            run = self._runs[run_id] = _Run(job.repository, at, at)
        self._add_time(run, at)
        if before is not None:
            del self._open[job.id]
            _count(run, before[1], -1)
        if now is not None:
            self._open[job.id] = run_id, now
            _count(run, now, 1)
        if not run.waiting and not run.running:
            del self._runs[run_id]
            self._telemetry.run_ended(run.repository, max(0.0, at - run.began))

    def _add_time(self, run: _Run, at: Instant) -> None:
        if at > run.since:
            state = RunState.RUNNING if run.running else RunState.WAITING
            self._telemetry.run_time(run.repository, state, at - run.since)
        run.since = max(run.since, at)


def _counted_as(job: Job) -> JobState | None:
    """Return whether the job waits for a runner or runs; None if neither."""
    if job.demand is None or job.admission.is_refusal:
        return None
    return job.state if job.state in (JobState.QUEUED, JobState.IN_PROGRESS) else None


def _count(run: _Run, state: JobState, sign: int) -> None:
    if state is JobState.IN_PROGRESS:
        run.running += sign
    else:
        run.waiting += sign
