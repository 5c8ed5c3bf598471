"""Makes webhooks differ from a job's real changes: repeated, late, out of order, incomplete.

REST answers stay correct. Users reported each oddity; `Oddity` (settings.py) names the reports.
"""

from collections.abc import Mapping
from typing import Any

from lab.github.records import Job

Notice = tuple[str, Mapping[str, Any]]
"""The action of an event, and the job's JSON in it."""


class Oddities:
    """Holds back events of jobs with oddities. The events of other jobs pass at once."""

    def __init__(self) -> None:
        self._held: dict[int, list[Notice]] = {}
        self._queued: set[int] = set()

    def notices(self, job: Job, action: str, shape: Mapping[str, Any]) -> list[Notice]:
        """Return the events to send for this change; `shape` is the job's real JSON."""
        if not job.spec.oddities:
            return [(action, shape)]
        notice = (action, _bent(job, action, shape))
        if "completed_first" in job.spec.oddities:
            return self._backwards(job, notice)
        if action == "queued":
            return self._first_queued(job, notice)
        if action == "waiting":
            again = [notice] if "waiting_twice" in job.spec.oddities else []
            return [notice, *again, *self._held.pop(job.id, ())]
        return [notice]

    def _backwards(self, job: Job, notice: Notice) -> list[Notice]:
        if notice[0] == "completed":
            return [notice, *self._held.pop(job.id, ())]
        self._held.setdefault(job.id, []).append(notice)
        return []

    def _first_queued(self, job: Job, notice: Notice) -> list[Notice]:
        if "unannounced" in job.spec.oddities:
            return []
        if job.id in self._queued or job.spec.approval is None:
            return [notice]
        self._queued.add(job.id)
        if "queued_as_waiting" in job.spec.oddities:
            notice = (notice[0], {**notice[1], "status": "waiting"})
        if "waiting_first" in job.spec.oddities:
            self._held[job.id] = [notice]
            return []
        return [notice]


def _bent(job: Job, action: str, shape: Mapping[str, Any]) -> Mapping[str, Any]:
    if action == "in_progress" and "started_as_queued" in job.spec.oddities:
        return {**shape, "status": "queued"}
    if action == "completed" and "completed_without_labels" in job.spec.oddities:
        return {**shape, "labels": []}
    return shape
