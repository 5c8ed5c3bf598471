"""Applies what GitHub shows of runner groups: which repositories' jobs it gives to no runner of the group."""

from autoscaler.ledger.job_holds import GROUP_VALID, hold_refused, is_refused, release
from autoscaler.ledger.records.indexes import is_on_hold, place_of
from autoscaler.ledger.records.state import LedgerState
from autoscaler.model.events import RunnerGroupRead
from autoscaler.model.identifiers import Instant
from autoscaler.model.jobs.demand import DemandClass
from autoscaler.model.jobs.job import Job


def on_runner_group_read(state: LedgerState, event: RunnerGroupRead) -> None:
    """Put jobs on hold that the group refuses, and end the other holds of a group that has changed."""
    key = (event.scope, event.runner_group)
    before = state.runner_groups.get(key)
    state.runner_groups[key] = (event.group, event.at)
    has_changed = before is not None and before[0] != event.group
    if has_changed:
        state.served_repositories = {one for one in state.served_repositories if one[:2] != key}
        state.passed_over = {at: one for at, one in state.passed_over.items() if at[:2] != key}
    for demand in {*state.queues, *state.on_hold}:
        if (demand.scope, demand.runner_group) == key:
            for job in _undecided(state, demand):
                _decide(state, job, demand, event.at, has_changed=has_changed)


def _undecided(state: LedgerState, demand: DemandClass) -> tuple[Job, ...]:
    queue = state.queues.get(demand)
    queued = queue.values() if queue is not None else ()
    return (*queued, *state.on_hold.get(demand, {}).values())


def _decide(
    state: LedgerState, job: Job, demand: DemandClass, at: Instant, *, has_changed: bool
) -> None:
    if is_refused(state, job, at):
        state.served_repositories.discard(place_of(job, demand))
        # Extend the hold only every hour: each extension is a write.
        if job.passed_over or job.probe_at is None or job.probe_at < at + GROUP_VALID / 2.0:
            hold_refused(state, job, at)
    elif is_on_hold(job) and (has_changed or not job.passed_over):
        release(state, job, at, "its runner group has changed")
