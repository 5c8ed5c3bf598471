"""Counts and logs queued jobs of configured scopes that no SKU serves, often for a typo in `runs-on`.

Such a job waits at GitHub for a day.
"""

from collections.abc import Sequence

import structlog

from autoscaler.controller.journal import Journal
from autoscaler.controller.ports.telemetry import Telemetry
from autoscaler.model.changes import HistoryRow
from autoscaler.model.identifiers import Instant, JobId, Seconds
from autoscaler.model.jobs.job import JobState
from autoscaler.model.reasons.table import Unmatched
from autoscaler.model.reasons.unmatched import close_label, nearest_sku, why_unmatched

LINES = 20
"""Maximum number of log lines in a window, because every author of a workflow can choose its labels."""

WINDOW: Seconds = 3600.0
"""How long the same labels are logged once."""

_log = structlog.get_logger(__name__)


class UnmatchedJobReporter:
    """Counts each unmatched job, and logs each set of labels once in a window."""

    def __init__(self, journal: Journal, telemetry: Telemetry) -> None:
        self._journal = journal
        self._telemetry = telemetry
        self._began: Instant = 0.0
        self._logged: set[tuple[Unmatched, tuple[str, ...]]] = set()
        self._suppressed = 0
        journal.on_history(self.report)

    def report(self, rows: Sequence[HistoryRow]) -> None:
        """Count and log the queued jobs that no SKU serves."""
        catalogue = self._journal.ledger.state.catalogue
        for row, job in self._journal.jobs_in(rows):
            if row.event != JobState.QUEUED or job.demand is not None:
                continue
            reason = why_unmatched(catalogue, job.repository, job.labels)
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
        catalogue = self._journal.ledger.state.catalogue
        unknown, close = close_label(catalogue, labels) or (None, None)
        _log.warning(
            "job_unmatched",
            job=job,
            repository=repository,
            labels=labels,
            code=reason,
            reason=reason.entry.sentence,
            nearest_sku=nearest_sku(catalogue, labels),
            unknown_label=unknown,
            close_label=close,
        )
