"""Deletes the history of records that the store no longer has, and old cooldowns.

Deliveries wait while a transaction runs, so each transaction reads only a few rows.
"""

from collections.abc import Collection

from sqlalchemy import Connection, Integer, delete, literal, select, tuple_

from autoscaler.model.identifiers import Instant
from autoscaler.store.tables import (
    cooldowns,
    history,
    jobs,
    launch_requests,
    machines,
    reruns,
    runners,
)

LOOK_AT_ONCE = 500
"""Maximum number of history rows that one transaction reads."""

Cursor = tuple[Instant, int]
"""Time and sequence number of the history row that was read last."""

START: Cursor = (0.0, -1)

_KINDS = {
    "job": jobs,
    "launch_request": launch_requests,
    "machine": machines,
    "runner": runners,
    "rerun": reruns,
}


def prune_history(connection: Connection, before: Instant, after: Cursor) -> Cursor | None:
    """Delete those of the next old history rows whose record no longer exists.

    Returns the cursor for the next call, or None at the end.
    """
    place = tuple_(history.c.at, history.c.seq)
    rows = connection.execute(
        select(history.c.seq, history.c.at, history.c.kind, history.c.record)
        .where(
            history.c.at < before, history.c.at >= after[0], place > tuple_(*map(literal, after))
        )
        .order_by(history.c.at, history.c.seq)
        .limit(LOOK_AT_ONCE)
    ).all()
    named: dict[str, set[str]] = {}
    for row in rows:
        named.setdefault(row.kind, set()).add(row.record)
    stays = {kind: _existing(connection, kind, names) for kind, names in named.items()}
    gone = [row.seq for row in rows if row.record not in stays[row.kind]]
    if gone:
        connection.execute(delete(history).where(history.c.seq.in_(gone)))
    return (rows[-1].at, rows[-1].seq) if len(rows) == LOOK_AT_ONCE else None


def prune_cooldowns(connection: Connection, before: Instant) -> None:
    """Delete cooldowns that ended before this moment."""
    connection.execute(delete(cooldowns).where(cooldowns.c.until < before))


def _existing(connection: Connection, kind: str, names: Collection[str]) -> frozenset[str]:
    """Return those of these records of one kind that are in the store."""
    table = _KINDS.get(kind)
    if table is None:
        return frozenset()
    key = next(iter(table.primary_key))
    keys: list[int] | list[str] = list(names)
    if isinstance(key.type, Integer):
        keys = [int(one) for one in names if one.isascii() and one.isdecimal() and len(one) < 19]
    return frozenset(
        str(one) for one in connection.execute(select(key).where(key.in_(keys))).scalars()
    )
