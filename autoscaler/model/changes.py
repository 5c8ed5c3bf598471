"""The kinds of records, the transitions of their states, and what the store has to write after events.

The tables of transitions stand beside the records. `LedgerState.enter` is the only code that changes a state.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from operator import attrgetter
from typing import Any, TypeVar

from autoscaler.model.accounting import Usage
from autoscaler.model.cooldowns import Cooldown
from autoscaler.model.identifiers import Installations, Instant, LaunchRequestId, SkuName
from autoscaler.model.jobs.job import JOB_TRANSITIONS, Job, JobState
from autoscaler.model.jobs.runners import RUNNER_TRANSITIONS, Runner, RunnerState
from autoscaler.model.machines.interruptions import RERUN_TRANSITIONS, Rerun, RerunState
from autoscaler.model.machines.launch_requests import (
    LAUNCH_REQUEST_TRANSITIONS,
    LaunchRequest,
    LaunchRequestState,
)
from autoscaler.model.machines.machine import (
    MACHINE_TRANSITIONS,
    Interruption,
    Machine,
    MachineState,
    Placement,
    Progress,
    Termination,
    WorkEvidence,
)

Record = Job | LaunchRequest | Machine | Runner | Rerun

R = TypeVar("R", bound=Record)
P = TypeVar("P", Placement, Progress, WorkEvidence, Termination, Interruption)

_RECORDS = (Job, LaunchRequest, Machine, Runner, Rerun)
_PARTS = (Placement, Progress, WorkEvidence, Termination, Interruption)

_values_of: dict[type, Callable[[Any], Any]] = {
    kind: attrgetter(*(field.name for field in fields(kind))) for kind in (*_RECORDS, *_PARTS)
}


def copied(record: R) -> R:
    """Return a copy of a record. Takes an eighth of the time of `copy.copy`."""
    kind = type(record)
    copy = kind(*_values_of[kind](record))
    if isinstance(copy, Machine):
        copy.placement = _copied_part(copy.placement)
        copy.progress = _copied_part(copy.progress)
        copy.work = _copied_part(copy.work)
        copy.termination = _copied_part(copy.termination)
        copy.interruption = _copied_part(copy.interruption)
    return copy


def _copied_part(part: P) -> P:
    kind = type(part)
    return kind(*_values_of[kind](part))


@dataclass(frozen=True, slots=True)
class HistoryRow:
    """What happened to one record, and why.

    `code` is the reason code of a failed launch (`FailureClass`) or of the end of a machine
    (`TerminationReason`), and empty otherwise. `detail` says the reason in words.

    `kind` is job, launch_request, machine or runner. A rerun is in the history of its job. The
    kinds `installation` (record: its ID), `sku` and `provider` (record: its name) and `fleet` (record: `all`)
    have no record of their own, nor have `demand` (record: `DemandClass.text`), which has why jobs of the class
    waited, `failed_launch` (record: the SKU), and `fault` (record: `all`), whose detail is a `FaultSpell`.
    """

    at: Instant
    kind: str
    record: str
    event: str
    detail: str = ""
    code: str = ""


FAILED_LAUNCH = "failed_launch"
"""The kind of a row about a failed launch. Its record is the SKU: no job has a machine of its own."""

_DETAIL = re.compile(r"(\S+) (.*?): (.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class FailedLaunch:
    """One launch that failed. `where` is the key of an offering, or `machine` with its ID.

    `code` is a `FailureClass`. `message` has the words of the provider or of the health checks.
    """

    at: Instant
    sku: SkuName
    launch_request: LaunchRequestId
    where: str
    code: str
    message: str


def row_of(failed: FailedLaunch) -> HistoryRow:
    """Return a failed launch as a row of history."""
    detail = f"{failed.launch_request} {failed.where}: {failed.message}"
    return HistoryRow(failed.at, FAILED_LAUNCH, failed.sku, "failed", detail[:500], failed.code)


def failed_launch_of(row: HistoryRow) -> FailedLaunch:
    """Return the failed launch of a row that `row_of` made."""
    found = _DETAIL.fullmatch(row.detail)
    request, where, message = found.groups() if found is not None else ("", "", row.detail)
    return FailedLaunch(
        row.at, SkuName(row.record), LaunchRequestId(request), where, row.code, message
    )


@dataclass(frozen=True, slots=True)
class Changes:
    """Everything that changed since `take_changes` was last called. `records` are not copies."""

    records: tuple[Record, ...] = ()
    history: tuple[HistoryRow, ...] = ()
    cooldowns: tuple[Cooldown, ...] = ()
    installations: Installations | None = None
    """The installation IDs after an adoption; None if none was adopted."""
    usage: tuple[Usage, ...] = ()
    """What the time of machines bought, as these changes show. The ledger leaves it empty."""

    def __bool__(self) -> bool:
        """Return True if there is anything to store."""
        return bool(self.records or self.history or self.cooldowns or self.installations)


INITIAL_STATES: Mapping[type[Record], frozenset[StrEnum]] = {
    Job: frozenset(JobState),
    LaunchRequest: frozenset({LaunchRequestState.RECORDED}),
    # A listing may show a machine without a record: it may run a job, or is one too many.
    Machine: frozenset({MachineState.REQUESTED, MachineState.ASSIGNED, MachineState.FAILED}),
    Runner: frozenset({RunnerState.NAMED}),
    Rerun: frozenset({RerunState.WAITING}),
}
"""The states in which a new record of each kind may begin."""

TRANSITIONS: Mapping[type[Record], Mapping[Any, frozenset[StrEnum]]] = {
    Job: JOB_TRANSITIONS,
    LaunchRequest: LAUNCH_REQUEST_TRANSITIONS,
    Machine: MACHINE_TRANSITIONS,
    Runner: RUNNER_TRANSITIONS,
    Rerun: RERUN_TRANSITIONS,
}
"""The states that may follow each state, for each kind of record."""


class UnlistedTransitionError(ValueError):
    """A record would have entered a state in a way that its table does not have.

    `kind` and `key` name the record, as in the history. `before` is None for a new record.
    """

    def __init__(self, kind: str, key: str, before: StrEnum | None, to: StrEnum) -> None:
        self.kind, self.key, self.before, self.to = kind, key, before, to
        super().__init__(f"{kind} {key}: no transition from {before or 'no state'} to {to}")


def may_become(record: Record, to: StrEnum) -> bool:
    """Return True if the record's table has a transition from its state to `to`.

    Check this before `LedgerState.enter` for a fact that may come late or twice, and so must change nothing.
    """
    return to in TRANSITIONS[type(record)][record.state]
