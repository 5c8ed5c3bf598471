"""The first schema: records, inbox, history, cooldowns, lease, meta."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_serial = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Make every table."""
    _records()
    _inbox()
    _history()
    op.create_table(
        "cooldowns",
        sa.Column("key", sa.Text(), primary_key=True),
        sa.Column("until", sa.Double(), nullable=False),
        sa.Column("strikes", sa.Integer(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
    )
    op.create_table(
        "lease",
        sa.Column("name", sa.Text(), primary_key=True),
        sa.Column("holder", sa.Text(), nullable=False),
        sa.Column("epoch", _serial, nullable=False),
        sa.Column("expires", sa.Double(), nullable=False),
    )
    op.create_table(
        "meta",
        sa.Column("key", sa.Text(), primary_key=True),
        sa.Column("value", sa.Text(), nullable=False),
    )


def _records() -> None:
    _record_table("jobs", sa.Column("id", _serial, primary_key=True, autoincrement=False))
    _record_table("calls", sa.Column("id", sa.Text(), primary_key=True))
    _record_table(
        "machines",
        sa.Column("id", sa.Text(), primary_key=True),
        sa.Column("call", sa.Text(), nullable=False),
    )
    op.create_index("machines_call", "machines", ["call"])
    _record_table(
        "runners",
        sa.Column("name", sa.Text(), primary_key=True),
        sa.Column("machine", sa.Text(), nullable=False),
    )


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
        sa.Column("id", sa.Text(), nullable=False, unique=True),
        sa.Column("event", sa.Text(), nullable=False),
        sa.Column("received_at", sa.Double(), nullable=False),
        sa.Column("applied", sa.Boolean(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
    )
    op.create_index("inbox_received_at", "inbox", ["received_at"])
    waiting = sa.text("NOT applied")
    op.create_index(
        "inbox_unapplied", "inbox", ["seq"], sqlite_where=waiting, postgresql_where=waiting
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
