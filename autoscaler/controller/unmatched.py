"""Counts and logs queued jobs of our scopes that no SKU serves: a typing error in `runs-on`, mostly.

Without a line, such a job waits at GitHub for a day and leaves no trace here.
"""

from collections.abc import Sequence

import structlog

from autoscaler.controller.journal import Journal
from autoscaler.controller.ports.telemetry import Telemetry
from autoscaler.model.changes import HistoryRow
from autoscaler.model.identifiers import Instant, JobId, Seconds
from autoscaler.model.jobs import JobState
from autoscaler.model.unmatched import Unmatched, nearest_sku, why_unmatched

LINES = 20
"""Lines in a window: labels are strangers' words, and must not fill the disk."""

WINDOW: Seconds = 3600.0
"""How long the same labels are logged once."""

_log = structlog.get_logger(__name__)


class UnmatchedJobs:
    """Listens to the history. Each set of labels is logged once in a window, each job is counted."""

    def __init__(self, journal: Journal, telemetry: Telemetry) -> None:
        self._journal = journal
        self._telemetry = telemetry
        self._began: Instant = 0.0
        self._logged: set[tuple[Unmatched, tuple[str, ...]]] = set()
        self._suppressed = 0
        journal.on_history(self.look_at)

    def look_at(self, rows: Sequence[HistoryRow]) -> None:
        """Count and log the jobs that were queued and that no SKU serves."""
        state = self._journal.ledger.state
        for row in rows:
            if row.kind != "job" or row.event != JobState.QUEUED:
                continue
            job = state.jobs.get(JobId(int(row.record)))
            if job is None or job.demand is not None:
                continue
            reason = why_unmatched(state.catalogue, job.repository, job.labels)
            if reason is not None:
                self._telemetry.job_unmatched(reason)
                self._log(reason, job.id, job.repository, job.labels)

    def _log(self, reason: Unmatched, job: JobId, repository: str, labels: tuple[str, ...]) -> None:
        now = self._journal.now
        if not self._began <= now < self._began + WINDOW:
            if self._suppressed:
                _log.warning("jobs_unmatched_not_logged", count=self._suppressed)
            self._began, self._logged, self._suppressed = now, set(), 0
        if (reason, labels) in self._logged:
            return
        if len(self._logged) >= LINES:
            self._suppressed += 1
            return
        self._logged.add((reason, labels))
        _log.warning(
            "job_unmatched",
            job=job,
            repository=repository,
            labels=labels,
            reason=reason,
            nearest_sku=nearest_sku(self._journal.ledger.state.catalogue, labels),
        )
