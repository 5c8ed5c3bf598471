"""Jobs whose machines were taken from under them: the durable list of what is run again."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_serial = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "reruns",
        sa.Column("job", _serial, primary_key=True, autoincrement=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("ended_at", sa.Double()),
        sa.Column("record", sa.Text(), nullable=False),
    )
    op.create_index("reruns_ended_at", "reruns", ["ended_at"])
