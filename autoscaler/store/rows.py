"""Converts what the controller stores into rows, and history rows back.

Refuses values that no database can store before they are queued, since one such value would fail the
transaction that other callers share.
"""

import math
from typing import NamedTuple

from sqlalchemy import Table

from autoscaler.controller.ports.store import (
    Cooldown,
    Delivery,
    DeliveryKey,
    HistoryRow,
    Record,
    StoreError,
)
from autoscaler.model.identifiers import Instant
from autoscaler.model.jobs.job import Job, JobState
from autoscaler.model.jobs.runners import Runner, RunnerState
from autoscaler.model.machines.interruptions import Rerun
from autoscaler.model.machines.launch_requests import LaunchRequest, LaunchRequestState
from autoscaler.model.machines.machine import Machine
from autoscaler.store import tables
from autoscaler.store.codec import encode

Row = dict[str, object]


class InboxRow(NamedTuple):
    """One delivery to store. Its key is computed at first use."""

    id: str
    event: str
    received_at: Instant
    applied: bool
    delivery: Delivery

    @property
    def key(self) -> DeliveryKey:
        """The delivery's key."""
        return self.delivery.key


DETAIL_LIMIT = 8192
"""Maximum number of characters of a history row's free text. The rest is cut off."""

_LARGEST_INTEGER = 2**63 - 1


def record_row(record: Record) -> tuple[Table, Row]:
    """Return a record's table and row.

    Raises: StoreError if it cannot be stored.
    """
    try:
        match record:
            case Job():
                return tables.jobs, _job_row(record)
            case LaunchRequest():
                return tables.launch_requests, _launch_request_row(record)
            case Machine():
                return tables.machines, _machine_row(record)
            case Runner():
                return tables.runners, _runner_row(record)
            case Rerun():
                return tables.reruns, _rerun_row(record)
    except ValueError as error:
        raise StoreError(f"a {type(record).__name__} cannot be stored: {error}") from error


def history_row(row: HistoryRow) -> Row:
    """Return a history row. Escapes characters of the free text that cannot be stored."""
    return {
        "at": moment(row.at, "history"),
        "kind": name(row.kind, "history kind"),
        "record": name(row.record, "history record"),
        "event": _readable(row.event),
        "detail": _readable(row.detail)[:DETAIL_LIMIT],
        "code": row.code,
    }


def read_history(row: Row) -> HistoryRow:
    """Return the history row of a database row."""
    return HistoryRow(
        at=float(str(row["at"])),
        kind=str(row["kind"]),
        record=str(row["record"]),
        event=str(row["event"]),
        detail=str(row["detail"]),
        code=str(row["code"]),
    )


def cooldown_row(cooldown: Cooldown) -> Row:
    """Return the row of a cooldown."""
    return {
        "key": name(cooldown.key, "cooldown key"),
        "until": moment(cooldown.until, "cooldown"),
        "failures": cooldown.failures,
        "reason": _readable(cooldown.reason),
        "failure": cooldown.failure.value,
        "image": _readable(cooldown.image),
    }


def delivery_row(delivery: Delivery) -> InboxRow:
    """Return the row of a delivery that is not applied yet.

    Raises: StoreError.
    """
    return InboxRow(
        id=name(delivery.id, "delivery id"),
        event=name(delivery.event, "delivery event"),
        received_at=moment(delivery.received_at, "delivery"),
        applied=False,
        delivery=delivery,
    )


def name(value: str, what: str) -> str:
    """Return a key or another short word unchanged. `what` names it in the error.

    Raises: StoreError if it has characters that cannot be stored.
    """
    # SQLite refuses surrogates; PostgreSQL refuses surrogates and NUL.
    if "\0" in value or not _encodable(value):
        raise StoreError(f"{what} has characters that cannot be stored")
    return value


def job_key(value: int) -> int:
    """Return a job's ID.

    Raises: StoreError if it is not a 64-bit number.
    """
    if not 0 <= value <= _LARGEST_INTEGER:
        raise StoreError("job id is not a 64-bit number")
    return value


def moment(value: Instant, what: str) -> Instant:
    """Return a time (Unix seconds) unchanged. `what` names it in the error.

    Raises: StoreError if it is not finite.
    """
    if not math.isfinite(value):
        raise StoreError(f"the time of {what} is not finite: {value}")
    return value


def _job_row(job: Job) -> Row:
    ended = job.state is JobState.COMPLETED
    return {
        "id": job_key(job.id),
        "state": job.state.value,
        "ended_at": _first(job.completed_at, job.updated_at) if ended else None,
        "record": encode(job),
    }


def _launch_request_row(request: LaunchRequest) -> Row:
    ended = request.state is LaunchRequestState.SETTLED
    return {
        "id": name(request.id, "launch request id"),
        "state": request.state.value,
        "ended_at": _first(request.settled_at, request.created_at) if ended else None,
        "record": encode(request),
    }


def _machine_row(machine: Machine) -> Row:
    # A failed slot without a machine has ended, too: it counts in no limit.
    return {
        "id": name(machine.id, "machine id"),
        "launch_request": name(machine.launch_request, "machine's launch request"),
        "state": machine.state.value,
        "ended_at": None if machine.occupies else machine.prunable_from,
        "record": encode(machine),
    }


def _runner_row(runner: Runner) -> Row:
    return {
        "name": name(runner.name, "runner name"),
        "machine": name(runner.machine, "runner's machine"),
        "state": runner.state.value,
        "ended_at": runner.since if runner.state is RunnerState.DONE else None,
        "record": encode(runner),
    }


def _rerun_row(rerun: Rerun) -> Row:
    return {
        "job": job_key(rerun.job),
        "state": rerun.state.value,
        "ended_at": rerun.ended_at,
        "record": encode(rerun),
    }


def _first(moment: Instant | None, otherwise: Instant) -> Instant:
    return otherwise if moment is None else moment


def _readable(value: str) -> str:
    if not _encodable(value):
        value = value.encode("utf-8", "backslashreplace").decode("utf-8")
    return value.replace("\0", "\\x00")


def _encodable(value: str) -> bool:
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
