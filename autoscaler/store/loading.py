"""Loads what an earlier process left, for a controller that starts.

It reads the rows in one transaction, and decodes them after that. For 100,000 jobs decoding takes a second of
CPU time, which is many on a busy host. PostgreSQL ends a session that is idle within a transaction for so long,
and a leader could not renew its lease meanwhile.
"""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec

from autoscaler.controller.ports.store import Cooldown, SavedState, StoreError
from autoscaler.model.identifiers import InstallationId, Installations, Instant, JobId
from autoscaler.model.jobs.job import Job
from autoscaler.model.jobs.runners import Runner
from autoscaler.model.machines.failures import FailureClass
from autoscaler.model.machines.interruptions import Rerun
from autoscaler.model.machines.launch_requests import LaunchRequest
from autoscaler.model.machines.machine import Machine
from autoscaler.store.database import Connection, Value
from autoscaler.store.rows import Row
from autoscaler.store.statements import (
    decode_delivery,
    decode_rows,
    get_meta,
    set_meta,
    unapplied,
    whole_rows,
)
from autoscaler.store.tables import (
    COOLDOWNS,
    JOBS,
    LAUNCH_REQUESTS,
    MACHINES,
    RERUNS,
    RUNNERS,
    Table,
)

_KEPT = "(ended_at IS NULL OR ended_at > :horizon)"

_CONDITIONS: Final = {
    JOBS: _KEPT,
    LAUNCH_REQUESTS: f"{_KEPT} OR id IN (SELECT launch_request FROM machines WHERE {_KEPT})",  # noqa: S608 - constants
    MACHINES: _KEPT,
    RUNNERS: f"{_KEPT} OR machine IN (SELECT id FROM machines WHERE {_KEPT})",  # noqa: S608 - constants
}
"""Which rows are loaded: those of records that have not ended, or ended after `:horizon`. Launch requests and
runners of such machines are, too."""


@dataclass(frozen=True, slots=True)
class StoredState:
    """What `read` found: the state without records and deliveries, and their rows."""

    state: SavedState
    rows: Mapping[Table, list[tuple[Any, ...]]]
    unapplied: list[Row]


def read(connection: Connection, horizon: Instant) -> StoredState:
    """Read the records that have not ended, or ended after `horizon`, and what else a controller needs."""
    heartbeat = get_meta(connection, "heartbeat")
    arrived_until = get_meta(connection, "arrived_until")
    state = SavedState(
        installations=Installations(_installation(connection), _former_installations(connection)),
        heartbeat=None if heartbeat is None else float(heartbeat),
        jobs=(),
        launch_requests=(),
        machines=(),
        runners=(),
        cooldowns=tuple(map(_cooldown, whole_rows(connection, COOLDOWNS, "true ORDER BY key"))),
        unapplied=(),
        arrived_until=None if arrived_until is None else float(arrived_until),
    )
    rows = {
        table: _rows(connection, table, condition, horizon=horizon)
        for table, condition in _CONDITIONS.items()
    }
    rows[RERUNS] = _rows(connection, RERUNS, "true")
    return StoredState(state, rows, unapplied(connection))


def decoded(stored: StoredState) -> SavedState:
    """Return the state with its records and deliveries. Raises: StoreError if a row is damaged."""
    rows = stored.rows
    return replace(
        stored.state,
        jobs=decode_rows(rows[JOBS], JOBS, Job),
        launch_requests=decode_rows(rows[LAUNCH_REQUESTS], LAUNCH_REQUESTS, LaunchRequest),
        machines=decode_rows(rows[MACHINES], MACHINES, Machine),
        runners=decode_rows(rows[RUNNERS], RUNNERS, Runner),
        reruns=decode_rows(rows[RERUNS], RERUNS, Rerun),
        unapplied=tuple(map(decode_delivery, stored.unapplied)),
    )


def earlier_jobs(state: SavedState) -> list[JobId]:
    """Return the jobs of runners of `state` that ended earlier than its jobs.

    The provider may still report that a machine was taken from one of them.
    """
    known = {job.id for job in state.jobs}
    return sorted({one.job for one in state.runners if one.job is not None} - known)


def _rows(
    connection: Connection, table: Table, where: str, **values: Value
) -> list[tuple[Any, ...]]:
    """Return the keys and records for which the condition is true, by key."""
    sql = f"SELECT {table.key}, record FROM {table.name} WHERE {where} ORDER BY {table.key}"  # noqa: S608 - only constants
    return connection.read(sql, **values)


def _cooldown(row: dict[str, Any]) -> Cooldown:
    try:
        return Cooldown(**{**row, "failure": FailureClass(row["failure"])})
    except ValueError as error:
        raise StoreError(f"the row {row['key']} of cooldowns is damaged: {error}") from error


def _installation(connection: Connection) -> InstallationId:
    known = get_meta(connection, "installation")
    if known is not None:
        return InstallationId(known)
    made = InstallationId(secrets.token_hex(4))
    set_meta(connection, "installation", made)
    return made


def _former_installations(connection: Connection) -> tuple[InstallationId, ...]:
    text = get_meta(connection, "former_installations")
    try:
        return () if text is None else msgspec.json.decode(text, type=tuple[InstallationId, ...])
    except msgspec.DecodeError as error:
        raise StoreError(f"the row former_installations of meta is damaged: {error}") from error
