"""A job as operators see it. `lists` has lists of them."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from autoscaler.model.fleet import Fleet
from autoscaler.model.identifiers import Instant, SkuName
from autoscaler.model.jobs.job import Job, JobState
from autoscaler.model.reasons.waiting import Reason
from autoscaler.views.jobs.waits import Reasons, Wait, undecided_by, wait_of


@dataclass(frozen=True, slots=True)
class JobView:
    """One job. Moments are Unix seconds. `sku` is None if no SKU serves it."""

    id: int
    repository: str
    workflow: str
    name: str
    run_id: int | None
    run_attempt: int
    labels: tuple[str, ...]
    state: str
    sku: str | None
    queued_at: Instant
    started_at: Instant | None
    completed_at: Instant | None
    conclusion: str | None
    runner: str | None
    machine: str | None
    wait: Wait | None


def view_of(fleet: Fleet, reasons: Reasons, job: Job) -> JobView:
    """Return one job with the reason for its wait."""
    runner = fleet.runners.get(job.runner_name) if job.runner_name is not None else None
    return JobView(
        id=job.id,
        repository=job.repository,
        workflow=job.workflow,
        name=job.name,
        run_id=job.run_id,
        run_attempt=job.run_attempt,
        labels=job.labels,
        state=job.state.value,
        sku=job.demand.skus[0] if job.demand is not None else None,
        queued_at=job.queued_at,
        started_at=job.started_at,
        completed_at=job.completed_at,
        conclusion=job.conclusion,
        runner=job.runner_name,
        machine=runner.machine if runner is not None else None,
        wait=wait_of(fleet, reasons, job),
    )


def undecided_jobs(fleet: Fleet, sku: SkuName | None) -> Iterator[Job]:
    """Yield the queued jobs that stand in no line, because GitHub or `access` has to decide about them.

    O(1) if there are none, else O(jobs).
    """
    if (
        not fleet.unadmitted
        and not any(fleet.on_hold.values())
        and not any(fleet.disputed.values())
    ):
        return
    for job in fleet.jobs.values():
        if job.state is not JobState.QUEUED or job.demand is None:
            continue
        if (sku is None or job.demand.skus[0] == sku) and undecided_by(fleet, job) is not None:
            yield job


def with_reason(view: JobView, reason: Reason) -> JobView:
    """Return the view of a queued job that no SKU serves, with the reason."""
    return replace(view, wait=Wait(0, 0, 0, (reason,), blocked=True))
