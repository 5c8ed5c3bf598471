"""Deletes old rows: records that ended, their history, applied deliveries, cooldowns, and usage.

`controller/retention.py` says how long rows stay. Deliveries wait while a transaction runs, so each transaction
reads and deletes only a few rows.
"""

from collections.abc import Collection

from sqlalchemy import (
    ColumnElement,
    Connection,
    Integer,
    Table,
    delete,
    literal,
    not_,
    select,
    tuple_,
)

from autoscaler.model.identifiers import Instant
from autoscaler.model.reasons import spells
from autoscaler.store.tables import (
    cooldowns,
    history,
    inbox,
    jobs,
    launch_requests,
    machines,
    reruns,
    runners,
    usage,
)

PRUNE_AT_ONCE = 100
"""Maximum number of rows that one transaction deletes."""

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


def prune_records(connection: Connection, before: Instant) -> int:
    """Delete some records that ended before this moment. Return their number; 0 if none are left."""
    # A machine's launch request and runners are kept as long as the machine.
    used = select(machines.c.id).where(machines.c.launch_request == launch_requests.c.id).exists()
    carried = select(machines.c.id).where(machines.c.id == runners.c.machine).exists()
    return (
        _prune_some(connection, "job", jobs, jobs.c.ended_at < before)
        or _prune_some(connection, "machine", machines, machines.c.ended_at < before)
        or _prune_some(
            connection,
            "launch_request",
            launch_requests,
            launch_requests.c.ended_at < before,
            not_(used),
        )
        or _prune_some(connection, "runner", runners, runners.c.ended_at < before, not_(carried))
        or _prune_some(connection, "rerun", reruns, reruns.c.ended_at < before)
    )


def prune_deliveries(connection: Connection, before: Instant) -> int:
    """Delete some old applied deliveries. Return their number; 0 if none are left."""
    some = select(inbox.c.seq).where(inbox.c.received_at < before, inbox.c.applied)
    gone = connection.execute(delete(inbox).where(inbox.c.seq.in_(some.limit(PRUNE_AT_ONCE))))
    return gone.rowcount


def _prune_some(
    connection: Connection, kind: str, table: Table, *where: ColumnElement[bool]
) -> int:
    key = next(iter(table.primary_key))
    keys = list(connection.execute(select(key).where(*where).limit(PRUNE_AT_ONCE)).scalars())
    if keys:
        names = [str(value) for value in keys]
        connection.execute(
            delete(history).where(history.c.kind == kind, history.c.record.in_(names))
        )
        connection.execute(delete(table).where(key.in_(keys)))
    return len(keys)


def prune_history(
    connection: Connection, before: Instant, after: Cursor, faults_before: Instant
) -> Cursor | None:
    """Delete those of the next old history rows whose record no longer exists.

    The history of faults stays until it is older than `faults_before`.

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
    gone = [
        row.seq
        for row in rows
        if row.record not in stays[row.kind]
        and not (row.kind == spells.KIND and row.at >= faults_before)
    ]
    if gone:
        connection.execute(delete(history).where(history.c.seq.in_(gone)))
    return (rows[-1].at, rows[-1].seq) if len(rows) == LOOK_AT_ONCE else None


def prune_cooldowns(connection: Connection, before: Instant) -> None:
    """Delete cooldowns that ended before this moment."""
    connection.execute(delete(cooldowns).where(cooldowns.c.until < before))


def prune_usage(connection: Connection, before: int) -> None:
    """Delete what machines were used for before this day. Pruned each hour, it is one day at most."""
    connection.execute(delete(usage).where(usage.c.day < before))


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
