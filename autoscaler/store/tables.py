"""The tables, as SQLAlchemy Core objects. The migrations create the same tables.

The column `record` contains the whole record as JSON. The other columns repeat values for queries.
`ended_at` is null until the record has ended.
"""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    text,
)

metadata = MetaData()

_serial = BigInteger().with_variant(Integer(), "sqlite")
"""A 64-bit integer that can be an automatic primary key. SQLite supports these for INTEGER only."""


def _records(name: str, *first: Column[int] | Column[str]) -> Table:
    """Return the table of one kind of record. `first` are its key and the column that other tables name."""
    return Table(
        name,
        metadata,
        *first,
        Column("state", Text, nullable=False),
        Column("ended_at", Double),
        Column("record", Text, nullable=False),
        Index(f"{name}_ended_at", "ended_at"),
    )


jobs = _records("jobs", Column("id", _serial, primary_key=True, autoincrement=False))
launch_requests = _records("launch_requests", Column("id", Text, primary_key=True))
machines = _records(
    "machines",
    Column("id", Text, primary_key=True),
    Column("launch_request", Text, nullable=False),
)
Index("machines_launch_request", machines.c.launch_request)
runners = _records(
    "runners", Column("name", Text, primary_key=True), Column("machine", Text, nullable=False)
)
reruns = _records("reruns", Column("job", _serial, primary_key=True, autoincrement=False))

inbox = Table(
    "inbox",
    metadata,
    Column("seq", _serial, primary_key=True),
    Column("id", Text, nullable=False),
    Column("body_sha256", LargeBinary, nullable=False),
    Column("event", Text, nullable=False),
    Column("received_at", Double, nullable=False),
    Column("applied", Boolean, nullable=False),
    Column("body", LargeBinary, nullable=False),
    UniqueConstraint("body_sha256", name="inbox_body"),
    Index("inbox_received_at", "received_at"),
    Index(
        "inbox_unapplied",
        "seq",
        # The text that SQLAlchemy writes for `NOT applied`: SQLite compares the text.
        sqlite_where=text("applied = 0"),
        postgresql_where=text("NOT applied"),
    ),
)
"""Webhook deliveries. `seq` is the order of arrival. `id` is X-GitHub-Delivery, which GitHub's signature
does not cover, so the digest of the body is the key. `body` is compressed."""

history = Table(
    "history",
    metadata,
    Column("seq", _serial, primary_key=True),
    Column("at", Double, nullable=False),
    Column("kind", Text, nullable=False),
    Column("record", Text, nullable=False),
    Column("event", Text, nullable=False),
    Column("detail", Text, nullable=False),
    Column("code", Text, nullable=False, server_default=""),
    Index("history_record", "kind", "record", "seq"),
    Index("history_at", "at"),
)

cooldowns = Table(
    "cooldowns",
    metadata,
    Column("key", Text, primary_key=True),
    Column("until", Double, nullable=False),
    Column("failures", Integer, nullable=False),
    Column("reason", Text, nullable=False),
    Column("failure", Text, nullable=False),
    Column("image", Text, nullable=False),
    Column("error", Text, nullable=False, server_default=""),
)

readings = Table(
    "readings",
    metadata,
    Column("provider", Text, primary_key=True),
    Column("kind", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("value", Double, nullable=False),
    Column("read_at", Double, nullable=False),
)
"""The latest prices, quotas and sums of foreign machines of the providers (see `Store.save_readings`)."""

usage = Table(
    "usage",
    metadata,
    Column("day", Integer, primary_key=True),
    Column("provider", Text, primary_key=True),
    Column("sku", Text, primary_key=True),
    Column("repository", Text, primary_key=True),
    Column("use", Text, primary_key=True),
    Column("seconds", Double, nullable=False),
    Column("dollars", Double, nullable=False),
    Column("times", Integer, nullable=False),
    sqlite_with_rowid=False,
)
"""What the time of machines bought: one row for each day and key, of about 100 bytes (see `Usage`)."""

meta = Table(
    "meta",
    metadata,
    Column("key", Text, primary_key=True),
    Column("value", Text, nullable=False),
)
