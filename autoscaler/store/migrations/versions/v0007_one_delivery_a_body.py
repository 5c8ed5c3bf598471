"""A delivery is known by its body alone: an id that no signature covers makes no other delivery."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

_serial = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_COLUMNS = "seq, id, body_sha256, event, received_at, applied, body"


def upgrade() -> None:
    """Make the inbox anew and keep the first delivery of each body; applied if any of them was."""
    op.create_table(
        "inbox_of_bodies",
        sa.Column("seq", _serial, primary_key=True),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("body_sha256", sa.LargeBinary(), nullable=False),
        sa.Column("event", sa.Text(), nullable=False),
        sa.Column("received_at", sa.Double(), nullable=False),
        sa.Column("applied", sa.Boolean(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.UniqueConstraint("body_sha256", name="inbox_body"),
    )
    op.execute(
        f"INSERT INTO inbox_of_bodies ({_COLUMNS}) SELECT {_COLUMNS} FROM inbox "  # noqa: S608
        "WHERE seq IN (SELECT min(seq) FROM inbox GROUP BY body_sha256) ORDER BY seq"
    )
    applied = sa.true().compile(dialect=op.get_bind().dialect)
    op.execute(
        f"UPDATE inbox_of_bodies SET applied = {applied} WHERE body_sha256 IN "  # noqa: S608
        f"(SELECT body_sha256 FROM inbox WHERE applied = {applied})"
    )
    op.drop_table("inbox")
    op.rename_table("inbox_of_bodies", "inbox")
    op.create_index("inbox_received_at", "inbox", ["received_at"])
    op.create_index(
        "inbox_unapplied",
        "inbox",
        ["seq"],
        sqlite_where=sa.text("applied = 0"),
        postgresql_where=sa.text("NOT applied"),
    )
