"""Makes a trace of each job's wait when the job starts, from the moments that the records have."""

from collections.abc import Iterator, Sequence

from autoscaler.controller.journal import Journal
from autoscaler.controller.ports.telemetry import Stage, TraceTelemetry, WaitTrace
from autoscaler.ledger.jobs.job_waits import machine_of, wait_stages
from autoscaler.ledger.records.state import LedgerState
from autoscaler.model.changes import HistoryRow
from autoscaler.model.identifiers import Instant, JobId
from autoscaler.model.jobs.job import Job

DELIVER = "deliver"
"""The stage until the controller learned of the job. The metrics count it as `decide`."""

MOST_SEEN = 100_000
"""Maximum number of waiting jobs whose delivery is remembered. The trace of another job begins at `decide`."""


class WaitTracer:
    """Listens to the history. Its cost is that of one job's records, once for each job that starts."""

    def __init__(self, journal: Journal, traces: TraceTelemetry) -> None:
        self._journal = journal
        self._traces = traces
        self._seen: dict[JobId, Instant] = {}
        """When the first news of a waiting job came."""
        journal.on_history(self._on_history)

    def _on_history(self, rows: Sequence[HistoryRow]) -> None:
        state = self._journal.ledger.state
        for row, job in self._journal.jobs_in(rows):
            if row.event == "queued" and len(self._seen) < MOST_SEEN:
                self._seen.setdefault(job.id, row.at)
            elif row.event in ("in_progress", "completed"):
                seen_at = self._seen.pop(job.id, None)
                if row.event == "in_progress" and job.demand is not None:
                    self._traces.trace_job(_trace(state, job, job.started_at or row.at, seen_at))


def _trace(state: LedgerState, job: Job, started_at: Instant, seen_at: Instant | None) -> WaitTrace:
    found = machine_of(state, job)
    machine = found[1] if found is not None else None
    assert job.demand is not None
    return WaitTrace(
        job=job.id,
        run=job.run_id,
        repository=job.repository,
        sku=job.demand.skus[0],
        queued_at=min(job.queued_at, started_at),
        started_at=started_at,
        stages=tuple(_stages(state, job, started_at, seen_at)),
        runner=job.runner_name,
        machine=machine.id if machine is not None else None,
        launch_request=machine.launch_request if machine is not None else None,
        provider=machine.provider if machine is not None else None,
    )


def _stages(
    state: LedgerState, job: Job, started_at: Instant, seen_at: Instant | None
) -> Iterator[Stage]:
    """Yield the stages that took time: the delivery, and then those of the metrics."""
    at = end = min(job.queued_at, started_at)
    known_from = at if seen_at is None else min(max(at, seen_at), started_at)
    if known_from > at:
        yield Stage(DELIVER, at, known_from)
    for stage, seconds in wait_stages(state, job, started_at):
        at, end = end, min(end + seconds, started_at)
        if end > (began := max(at, known_from)):
            yield Stage(stage.value, began, end)
