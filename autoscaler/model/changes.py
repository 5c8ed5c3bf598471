"""What the store has to write after events were applied: records, history rows, cooldowns."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any, TypeVar

from autoscaler.model.cooldowns import Cooldown
from autoscaler.model.identifiers import Instant
from autoscaler.model.installations import Installations
from autoscaler.model.jobs.job import Job
from autoscaler.model.jobs.runners import Runner
from autoscaler.model.machines.interruptions import Rerun
from autoscaler.model.machines.launch_requests import LaunchRequest
from autoscaler.model.machines.machine import (
    Interruption,
    Machine,
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
    waited, and `failed_launch` (record: the SKU).
    """

    at: Instant
    kind: str
    record: str
    event: str
    detail: str = ""
    code: str = ""


@dataclass(frozen=True, slots=True)
class Changes:
    """Everything that changed since `take_changes` was last called. `records` are not copies."""

    records: tuple[Record, ...] = ()
    history: tuple[HistoryRow, ...] = ()
    cooldowns: tuple[Cooldown, ...] = ()
    installations: Installations | None = None
    """The installation IDs after an adoption; None if none was adopted."""

    def __bool__(self) -> bool:
        """Return True if there is anything to store."""
        return bool(self.records or self.history or self.cooldowns or self.installations)
