"""Converts what the controller stores into rows, and history rows back.

Refuses values that no database can store before they are queued, since one such value would fail the
transaction that other callers share.
"""

import math
from typing import NamedTuple

from autoscaler.controller.ports.store import (
    Cooldown,
    Delivery,
    DeliveryKey,
    HistoryRow,
    Record,
    StoreError,
)
from autoscaler.model.accounting import Usage
from autoscaler.model.identifiers import Instant
from autoscaler.model.jobs.job import Job, JobState
from autoscaler.model.jobs.runners import Runner, RunnerState
from autoscaler.model.machines.interruptions import Rerun
from autoscaler.model.machines.launch_requests import LaunchRequest, LaunchRequestState
from autoscaler.model.machines.machine import Machine
from autoscaler.store import tables
from autoscaler.store.codec import encode
from autoscaler.store.tables import Table

Row = dict[str, object]


class Arrival(NamedTuple):
    """A delivery to store, and whether it was applied in the meantime. Its key is computed at first use."""

    delivery: Delivery
    applied: bool = False

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
        table, columns, ended_at = _columns(record)
        row = {**columns, "state": record.state.value, "ended_at": ended_at}
        return table, {**row, "record": encode(record)}
    except ValueError as error:
        raise StoreError(f"a {type(record).__name__} cannot be stored: {error}") from error


def _columns(record: Record) -> tuple[Table, Row, Instant | None]:
    """Return a record's table, its columns before `state`, and when the record ended."""
    match record:
        case Job():
            ended_at = _first(record.completed_at, record.updated_at)
            over = record.state is JobState.COMPLETED
            return tables.JOBS, {"id": job_key(record.id)}, ended_at if over else None
        case LaunchRequest():
            ended_at = _first(record.settled_at, record.created_at)
            over = record.state is LaunchRequestState.SETTLED
            key = name(record.id, "launch request id")
            return tables.LAUNCH_REQUESTS, {"id": key}, ended_at if over else None
        case Machine():
            columns: Row = {
                "id": name(record.id, "machine id"),
                "launch_request": name(record.launch_request, "machine's launch request"),
            }
            # A failed slot without a machine has ended, too: it counts in no limit.
            return tables.MACHINES, columns, None if record.occupies else record.prunable_from
        case Runner():
            columns = {
                "name": name(record.name, "runner name"),
                "machine": name(record.machine, "runner's machine"),
            }
            over = record.state is RunnerState.DONE
            return tables.RUNNERS, columns, record.since if over else None
        case Rerun():
            return tables.RERUNS, {"job": job_key(record.job)}, record.ended_at


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
        "error": _readable(cooldown.error),
    }


def usage_row(usage: Usage) -> Row:
    """Return the row of what machines were used for."""
    return {
        "day": usage.day,
        "provider": name(usage.provider, "provider"),
        "sku": name(usage.sku, "SKU"),
        "repository": name(usage.repository, "repository"),
        "use": usage.use.value,
        "seconds": moment(usage.seconds, "usage"),
        "dollars": moment(usage.dollars, "usage"),
        "times": usage.times,
    }


def arrival(delivery: Delivery) -> Arrival:
    """Return a delivery to store. Raises: StoreError if a value of it cannot be stored."""
    name(delivery.id, "delivery id")
    name(delivery.event, "delivery event")
    moment(delivery.received_at, "delivery")
    return Arrival(delivery)


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
