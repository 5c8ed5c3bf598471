"""Queued jobs of configured scopes that no SKU serves. They get no machine, and stand in no line."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice

from autoscaler.model.fleet import Fleet
from autoscaler.model.jobs import Job
from autoscaler.model.unmatched import Unmatched
from autoscaler.views.jobs import JobView, view_of
from autoscaler.views.waits import UnmatchedReason, Wait

Why = Callable[[str, tuple[str, ...]], Unmatched | None]
"""`model.unmatched.why_unmatched` for one catalogue: of a repository and labels."""


def unmatched_jobs(fleet: Fleet, why: Why, limit: int) -> list[JobView]:
    """Return the oldest jobs that no SKU serves, at most `limit`. O(queued jobs that no SKU serves)."""
    found = islice(_unmatched(fleet, why), limit)
    return [with_reason(view_of(fleet, {}, job), code, code.message) for job, code in found]


def unmatched_counts(fleet: Fleet, why: Why) -> dict[str, int]:
    """Return the number of jobs that no SKU serves, by reason. O(queued jobs that no SKU serves)."""
    return dict(Counter(code.value for _, code in _unmatched(fleet, why)))


def with_reason(view: JobView, code: Unmatched, message: str) -> JobView:
    """Return the view of a queued job that no SKU serves, with the reason."""
    return replace(view, wait=Wait(0, 0, 0, (UnmatchedReason(code, message),), blocked=True))


def _unmatched(fleet: Fleet, why: Why) -> Iterator[tuple[Job, Unmatched]]:
    for job in fleet.unserved.values():
        code = why(job.repository, job.labels)
        if code is not None:
            yield job, code
