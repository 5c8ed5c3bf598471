"""Interruption notices of providers, and the Rerun record: one job that died with its machine."""

from dataclasses import dataclass
from enum import StrEnum

from autoscaler.model.identifiers import Instant, JobId, MachineId, SkuName


class NoticeKind(StrEnum):
    """What a provider announces about a machine, the most severe last.

    rebalance_recommendation  a spot interruption is more likely than usual
    scheduled_change          the host will be serviced or retired at a given time
    state_change              the machine is shutting down or terminated, for any reason
    spot_interruption         the provider interrupts the machine now, or within minutes
    """

    REBALANCE_RECOMMENDATION = "rebalance_recommendation"
    SCHEDULED_CHANGE = "scheduled_change"
    STATE_CHANGE = "state_change"
    SPOT_INTERRUPTION = "spot_interruption"


TAKES = frozenset({NoticeKind.SPOT_INTERRUPTION, NoticeKind.SCHEDULED_CHANGE})
"""Only these notices explain why a machine disappeared under a job."""


class RerunState(StrEnum):
    """waiting (the job has not ended) -> due (ask GitHub to rerun it, repeatedly) -> ended."""

    WAITING = "waiting"
    DUE = "due"
    ENDED = "ended"


RERUN_TRANSITIONS: dict[RerunState, frozenset[RerunState]] = {
    RerunState.WAITING: frozenset({RerunState.DUE, RerunState.ENDED}),
    RerunState.DUE: frozenset({RerunState.ENDED}),
    RerunState.ENDED: frozenset(),
}


class RerunOutcome(StrEnum):
    """Whether an interrupted job was rerun, or why not.

    accepted     GitHub reruns the job
    not_killed   the job did not fail, or failed before its machine was interrupted
    off          the SKU does not rerun interrupted jobs
    opted_out    the job has the label `no-rerun`
    over_budget  the maximum number of the run's attempts already had reruns
    superseded   another attempt of the run was started at GitHub
    refused      GitHub refused, or the job does not exist any more
    expired      GitHub did not allow a rerun, or did not show the run, for a week
    """

    ACCEPTED = "accepted"
    NOT_KILLED = "not_killed"
    OFF = "off"
    OPTED_OUT = "opted_out"
    OVER_BUDGET = "over_budget"
    SUPERSEDED = "superseded"
    REFUSED = "refused"
    EXPIRED = "expired"


@dataclass(slots=True)
class Rerun:
    """One job whose machine was interrupted. Moments are Unix seconds."""

    job: JobId
    repository: str
    run_id: int
    run_attempt: int
    """The attempt of the run that a rerun follows. It grows when other jobs of the run are rerun."""
    died_in: int
    """The attempt of the run to which the job belonged."""
    sku: SkuName
    machine: MachineId
    state: RerunState
    taken_at: Instant
    """When the provider interrupts the machine, according to its notice."""
    created_at: Instant
    due: Instant | None = None
    """When to ask GitHub next, or when to give up."""
    ended_at: Instant | None = None
    asked: int = 0
    """Requests to GitHub so far."""
    unanswered: int = 0
    """Requests since GitHub's last answer."""
    outcome: RerunOutcome | None = None
    reason: str = ""
