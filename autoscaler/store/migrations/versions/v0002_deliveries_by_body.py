"""A delivery is known by its id and its body: GitHub's signature does not cover the id.

The partial index is made in the words of the query that it is for, or SQLite does not use it.
"""

import hashlib
import zlib
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_serial = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_ROWS_AT_ONCE = 200


def upgrade() -> None:
    """Make the inbox anew, for SQLite cannot drop a constraint, and move every delivery over."""
    made = op.create_table(
        "inbox_by_body",
        sa.Column("seq", _serial, primary_key=True),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("body_sha256", sa.LargeBinary(), nullable=False),
        sa.Column("event", sa.Text(), nullable=False),
        sa.Column("received_at", sa.Double(), nullable=False),
        sa.Column("applied", sa.Boolean(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.UniqueConstraint("id", "body_sha256", name="inbox_delivery"),
    )
    connection = op.get_bind()
    old = sa.Table("inbox", sa.MetaData(), autoload_with=connection)
    last = -1
    while rows := _page(connection, old, last):
        connection.execute(sa.insert(made), rows)
        last = rows[-1]["seq"]
    op.drop_table("inbox")
    op.rename_table("inbox_by_body", "inbox")
    op.create_index("inbox_received_at", "inbox", ["received_at"])
    op.create_index(
        "inbox_unapplied",
        "inbox",
        ["seq"],
        sqlite_where=sa.text("applied = 0"),
        postgresql_where=sa.text("NOT applied"),
    )


def _page(connection: sa.Connection, old: sa.Table, after: int) -> list[dict[str, Any]]:
    wanted = sa.select(old).where(old.c.seq > after).order_by(old.c.seq).limit(_ROWS_AT_ONCE)
    rows = connection.execute(wanted).mappings()
    return [{**row, "body_sha256": _digest(row["body"])} for row in rows]


def _digest(body: bytes) -> bytes:
    try:
        return hashlib.sha256(zlib.decompress(body)).digest()
    except zlib.error:
        # Damaged: `load` will name it. It keeps its place by what is left of it.
        return hashlib.sha256(body).digest()
