"""Deletes old rows: records that ended, their history, applied deliveries, cooldowns, and usage.

`controller/retention.py` says how long rows stay. Deliveries wait while a transaction runs, so each transaction
reads and deletes only a few rows.
"""

from collections.abc import Collection

from autoscaler.model.identifiers import Instant
from autoscaler.model.reasons import spells
from autoscaler.store.database import Connection
from autoscaler.store.tables import (
    JOBS,
    LAUNCH_REQUESTS,
    MACHINES,
    RERUNS,
    RUNNERS,
)

PRUNE_AT_ONCE = 100
"""Maximum number of rows that one transaction deletes."""

LOOK_AT_ONCE = 500
"""Maximum number of history rows that one transaction reads."""

Cursor = tuple[Instant, int]
"""Time and sequence number of the history row that was read last."""

START: Cursor = (0.0, -1)

_KINDS = {
    "job": JOBS,
    "launch_request": LAUNCH_REQUESTS,
    "machine": MACHINES,
    "runner": RUNNERS,
    "rerun": RERUNS,
}
_NUMBERED = {JOBS, RERUNS}
"""Their keys are 64-bit numbers."""

# A machine's launch request and runners are kept as long as the machine.
_UNUSED = {
    "launch_request": "NOT EXISTS (SELECT 1 FROM machines WHERE launch_request = launch_requests.id)",
    "runner": "NOT EXISTS (SELECT 1 FROM machines WHERE id = runners.machine)",
}


def prune_records(connection: Connection, before: Instant) -> int:
    """Delete some records that ended before this moment. Return their number; 0 if none are left."""
    return (
        _prune_some(connection, "job", before)
        or _prune_some(connection, "machine", before)
        or _prune_some(connection, "launch_request", before)
        or _prune_some(connection, "runner", before)
        or _prune_some(connection, "rerun", before)
    )


def prune_deliveries(connection: Connection, before: Instant) -> int:
    """Delete some old applied deliveries. Return their number; 0 if none are left."""
    return connection.write(
        "DELETE FROM inbox WHERE seq IN (SELECT seq FROM inbox "
        "WHERE received_at < :before AND applied = 1 LIMIT :some)",
        before=before,
        some=PRUNE_AT_ONCE,
    )


def _prune_some(connection: Connection, kind: str, before: Instant) -> int:
    table, unused = _KINDS[kind], _UNUSED.get(kind, "true")
    found = connection.read(
        f"SELECT {table.key} FROM {table.name} "  # noqa: S608 - only constants
        f"WHERE ended_at < :before AND {unused} LIMIT :some",
        before=before,
        some=PRUNE_AT_ONCE,
    )
    keys = [key for (key,) in found]
    if keys:
        connection.write(
            "DELETE FROM history WHERE kind = :kind AND record = ANY (:names)",
            kind=kind,
            names=[str(key) for key in keys],
        )
        connection.write(
            f"DELETE FROM {table.name} WHERE {table.key} = ANY (:keys)",  # noqa: S608 - constants
            keys=keys,
        )
    return len(keys)


def prune_history(
    connection: Connection, before: Instant, after: Cursor, faults_before: Instant
) -> Cursor | None:
    """Delete those of the next old history rows whose record no longer exists.

    The history of faults stays until it is older than `faults_before`.

    Returns the cursor for the next call, or None at the end.
    """
    rows = connection.read(
        "SELECT seq, at, kind, record FROM history "
        "WHERE at < :before AND at >= :at AND (at, seq) > (:at, :seq) ORDER BY at, seq LIMIT :some",
        before=before,
        at=after[0],
        seq=after[1],
        some=LOOK_AT_ONCE,
    )
    named: dict[str, set[str]] = {}
    for _, _, kind, record in rows:
        named.setdefault(kind, set()).add(record)
    stays = {kind: _existing(connection, kind, names) for kind, names in named.items()}
    gone = [
        seq
        for seq, at, kind, record in rows
        if record not in stays[kind] and not (kind == spells.KIND and at >= faults_before)
    ]
    if gone:
        connection.write("DELETE FROM history WHERE seq = ANY (:gone)", gone=gone)
    return (rows[-1][1], rows[-1][0]) if len(rows) == LOOK_AT_ONCE else None


def prune_cooldowns(connection: Connection, before: Instant) -> None:
    """Delete cooldowns that ended before this moment."""
    connection.write("DELETE FROM cooldowns WHERE until < :before", before=before)


def prune_usage(connection: Connection, before: int) -> None:
    """Delete what machines were used for before this day. Pruned each hour, it is one day at most."""
    connection.write("DELETE FROM usage WHERE day < :before", before=before)


def _existing(connection: Connection, kind: str, names: Collection[str]) -> frozenset[str]:
    """Return those of these records of one kind that are in the store."""
    table = _KINDS.get(kind)
    if table is None:
        return frozenset()
    keys: list[int] | list[str] = list(names)
    if table in _NUMBERED:
        keys = [int(one) for one in names if one.isascii() and one.isdecimal() and len(one) < 19]
    found = connection.read(
        f"SELECT {table.key} FROM {table.name} WHERE {table.key} = ANY (:keys)",  # noqa: S608 - constants
        keys=keys,
    )
    return frozenset(str(key) for (key,) in found)
