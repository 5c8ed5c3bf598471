"""How GitHub's webhooks depart from what happened to a job: twice, late, out of order, half said.

It decides which notices a change of a job becomes. What the job is, it never changes: REST goes on
to tell the truth.

Each oddity is one that users reported; `Oddity` (settings.py) names where.
"""

from collections.abc import Mapping
from typing import Any

from lab.github.records import Job

Notice = tuple[str, Mapping[str, Any]]
"""An event's action and the job as it shows it."""


class Oddities:
    """What was held back so far. Jobs without oddities leave nothing here."""

    def __init__(self) -> None:
        self._held: dict[int, list[Notice]] = {}
        self._queued: set[int] = set()

    def notices(self, job: Job, action: str, shape: Mapping[str, Any]) -> list[Notice]:
        """What is sent now that this happened; `shape` is the job as it is."""
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
