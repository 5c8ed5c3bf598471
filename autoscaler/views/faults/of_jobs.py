"""What is wrong with waiting jobs: those that are blocked, that no SKU serves, that wait long or start late."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from autoscaler.model.fleet import Fleet
from autoscaler.model.identifiers import Instant
from autoscaler.model.jobs.job import Job
from autoscaler.model.reasons.entry import Code
from autoscaler.model.reasons.faults import Fault
from autoscaler.model.reasons.table import DECIDED_BY_ACCESS, FaultCode, WaitCode
from autoscaler.model.reasons.waiting import in_short
from autoscaler.model.wait_objectives import objective_of
from autoscaler.model.wording import counted, duration, in_words
from autoscaler.views.faults.causes import cause_of_wait
from autoscaler.views.faults.counts import Counts
from autoscaler.views.jobs.waiting import Run, WaitingJobs


def blocked(fleet: Fleet, runs: Sequence[Run]) -> Iterator[Fault]:
    """Return a fault for each run of blocked jobs."""
    for run in runs:
        if run.blocked:
            code, about = cause_of_wait(fleet, run.demand, run.waiting.reasons[0])
            breaker = WaitCode.CIRCUIT_OPEN
            effects = (breaker,) if run.waiting.code is breaker and code is not breaker else ()
            message, error = in_short(run.waiting.reasons), run.waiting.reasons[0].error
            found = Fault(code.value, about, message, (run.sku,), run.blocked, effects=effects)
            yield replace(found, error=error)


def not_served(fleet: Fleet, undecided: Sequence[Job]) -> Iterator[Fault]:
    """Return a fault for several or old jobs that no SKU serves, or that `access` refuses."""
    groups: dict[Code, Sequence[Job]] = {
        code: jobs.values() for code, jobs in fleet.unmatched.items() if len(jobs)
    }
    refused = [job for job in undecided if job.admission.is_refusal]
    refused.sort(key=lambda one: one.queued_at)
    for refusal in DECIDED_BY_ACCESS:
        if of_code := [job for job in refused if job.admission.value == refusal]:
            groups[refusal] = of_code
    for code, jobs in groups.items():
        oldest = jobs[0]
        threshold, age = code.entry.threshold, fleet.now - oldest.queued_at
        if len(jobs) < threshold.above and age < threshold.within:
            continue
        labels = ", ".join(oldest.labels)
        which = (
            f"the oldest, of {oldest.repository} with runs-on [{labels}], waits for {duration(age)}"
        )
        yield Fault(code.value, "", f"{code.entry.sentence}; {which}", jobs=len(jobs))


def long_waits(fleet: Fleet, jobs: WaitingJobs) -> Iterator[Fault]:
    """Return a fault for each SKU whose oldest job has waited for hours, even with a machine on its way."""
    code = FaultCode.JOB_WAITS_FOR_HOURS
    for sku, oldest in jobs.oldest.items():
        age = fleet.now - oldest.job.queued_at
        if age > code.entry.threshold.above:
            reasons = in_short(oldest.wait.reasons)
            found = Fault.of(code, sku=sku, time=duration(age), reasons=reasons)
            yield replace(found, about="")


def late_starts(now: Instant, counts: Counts) -> Iterator[Fault]:
    """Return a fault for each SKU that missed its objective in the last hour."""
    for sku, starts in sorted(counts.last_hour.items()):
        objective = objective_of(counts.objectives, sku)
        if objective is not None and not starts.meets_target:
            found = Fault.of(
                FaultCode.JOBS_START_LATE,
                sku=sku,
                late=counted(starts.late + starts.overdue, "job"),
                started=starts.started + starts.overdue,
                limit=in_words(objective.seconds),
                waiting=f"; {starts.overdue} {'wait' if starts.overdue > 1 else 'waits'} still"
                if starts.overdue
                else "",
                recovered_at=starts.recovered_at(now),
            )
            yield replace(found, about="")
