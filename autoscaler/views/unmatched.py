"""Queued jobs of configured scopes that no SKU serves. They get no machine, and stand in no line."""

from dataclasses import replace
from heapq import merge
from itertools import islice

from autoscaler.model.fleet import Fleet
from autoscaler.model.reasons.unmatched import Unmatched
from autoscaler.views.jobs import JobView, view_of
from autoscaler.views.waits import UnmatchedReason, Wait


def unmatched_jobs(fleet: Fleet, limit: int) -> list[JobView]:
    """Return the oldest jobs that no SKU serves, at most `limit`. O(limit)."""
    found = (
        [(job.queued_at, job.id, reason) for job in islice(jobs.values(), limit)]
        for reason, jobs in fleet.unmatched.items()
    )
    return [
        with_reason(view_of(fleet, {}, fleet.jobs[job]), reason, reason.message)
        for _, job, reason in islice(merge(*found), limit)
    ]


def unmatched_counts(fleet: Fleet) -> dict[str, int]:
    """Return the number of jobs that no SKU serves, by reason. O(1)."""
    return {reason.value: len(jobs) for reason, jobs in fleet.unmatched.items() if len(jobs)}


def with_reason(view: JobView, reason: Unmatched, message: str) -> JobView:
    """Return the view of a queued job that no SKU serves, with the reason."""
    return replace(view, wait=Wait(0, 0, 0, (UnmatchedReason(reason, message),), blocked=True))
