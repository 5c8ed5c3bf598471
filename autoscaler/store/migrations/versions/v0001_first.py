"""Create the first schema: records, inbox, history, cooldowns, readings, meta."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_serial = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Create every table."""
    _records()
    _inbox()
    _history()
    op.create_table(
        "cooldowns",
        sa.Column("key", sa.Text(), primary_key=True),
        sa.Column("until", sa.Double(), nullable=False),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("failure", sa.Text(), nullable=False),
        sa.Column("image", sa.Text(), nullable=False),
    )
    op.create_table(
        "readings",
        sa.Column("provider", sa.Text(), primary_key=True),
        sa.Column("kind", sa.Text(), primary_key=True),
        sa.Column("name", sa.Text(), primary_key=True),
        sa.Column("value", sa.Double(), nullable=False),
        sa.Column("read_at", sa.Double(), nullable=False),
    )
    op.create_table(
        "meta",
        sa.Column("key", sa.Text(), primary_key=True),
        sa.Column("value", sa.Text(), nullable=False),
    )


def _records() -> None:
    _record_table("jobs", sa.Column("id", _serial, primary_key=True, autoincrement=False))
    _record_table("launch_requests", sa.Column("id", sa.Text(), primary_key=True))
    _record_table(
        "machines",
        sa.Column("id", sa.Text(), primary_key=True),
        sa.Column("launch_request", sa.Text(), nullable=False),
    )
    op.create_index("machines_launch_request", "machines", ["launch_request"])
    _record_table(
        "runners",
        sa.Column("name", sa.Text(), primary_key=True),
        sa.Column("machine", sa.Text(), nullable=False),
    )
    _record_table("reruns", sa.Column("job", _serial, primary_key=True, autoincrement=False))


def _record_table(name: str, *first: sa.Column[int] | sa.Column[str]) -> None:
    op.create_table(
        name,
        *first,
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("ended_at", sa.Double()),
        sa.Column("record", sa.Text(), nullable=False),
    )
    op.create_index(f"{name}_ended_at", name, ["ended_at"])


def _inbox() -> None:
    op.create_table(
        "inbox",
        sa.Column("seq", _serial, primary_key=True),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("body_sha256", sa.LargeBinary(), nullable=False),
        sa.Column("event", sa.Text(), nullable=False),
        sa.Column("received_at", sa.Double(), nullable=False),
        sa.Column("applied", sa.Boolean(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.UniqueConstraint("body_sha256", name="inbox_body"),
    )
    op.create_index("inbox_received_at", "inbox", ["received_at"])
    op.create_index(
        "inbox_unapplied",
        "inbox",
        ["seq"],
        # SQLite uses a partial index only for a query with the same text in its condition.
        sqlite_where=sa.text("applied = 0"),
        postgresql_where=sa.text("NOT applied"),
    )


def _history() -> None:
    op.create_table(
        "history",
        sa.Column("seq", _serial, primary_key=True),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("record", sa.Text(), nullable=False),
        sa.Column("event", sa.Text(), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
    )
    op.create_index("history_record", "history", ["kind", "record", "seq"])
    op.create_index("history_at", "history", ["at"])
