"""Machines that their provider takes back: the kinds of its notices, and the jobs that died of it.

It decides nothing: which job was killed, and whether it is run again, is the ledger's.
"""

from dataclasses import dataclass
from enum import StrEnum

from autoscaler.model.identifiers import Instant, JobId, MachineId, SkuName


class NoticeKind(StrEnum):
    """What a provider says of a machine, the gravest last.

    rebalance_recommendation  it is likelier than usual to be taken back soon
    scheduled_change          its host is to be serviced or retired at a time that is given
    state_change              it is stopping or over, whoever wanted that
    spot_interruption         it is taken back now, or within minutes
    """

    REBALANCE_RECOMMENDATION = "rebalance_recommendation"
    SCHEDULED_CHANGE = "scheduled_change"
    STATE_CHANGE = "state_change"
    SPOT_INTERRUPTION = "spot_interruption"


NO_RERUN = "no-rerun"
"""The label of a job that is not to be run again; every SKU offers it."""


class RerunState(StrEnum):
    """waiting (its job has not ended) -> due (GitHub is to be asked, again and again) -> ended."""

    WAITING = "waiting"
    DUE = "due"
    ENDED = "ended"


class RerunOutcome(StrEnum):
    """What became of a job whose machine was taken from under it.

    accepted     GitHub runs it again
    not_killed   it did not fail, or had failed before its machine was taken
    off          its SKU does not run such jobs again
    opted_out    it carries the label that says so
    over_budget  as many of its run's attempts had jobs run again as its SKU allows
    superseded   somebody else had its run tried again
    refused      GitHub does not run it again, or the job is not there any more
    expired      GitHub did not allow it, or did not show the run, in all that time
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
    """One job whose machine was taken from under it. Times are Unix seconds.

    `died_in` is the attempt of its run that the job was of, `run_attempt` the one after which the
    run is tried again: one more for each time that this was done for other jobs. `due`: when GitHub
    is asked next, or it is given up. `asked` counts requests, `unanswered` those since GitHub's last
    answer. `taken_at` is when the provider says that it takes the machine.
    """

    job: JobId
    repository: str
    run_id: int
    run_attempt: int
    died_in: int
    sku: SkuName
    machine: MachineId
    state: RerunState
    taken_at: Instant
    created_at: Instant
    due: Instant | None = None
    ended_at: Instant | None = None
    asked: int = 0
    unanswered: int = 0
    outcome: RerunOutcome | None = None
    reason: str = ""
