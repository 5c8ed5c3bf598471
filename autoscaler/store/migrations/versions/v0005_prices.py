"""Prices that providers gave, so that a restart need not wait for them."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "prices",
        sa.Column("provider", sa.Text(), primary_key=True),
        sa.Column("capacity_type", sa.Text(), primary_key=True),
        sa.Column("instance_type", sa.Text(), primary_key=True),
        sa.Column("os", sa.Text(), primary_key=True),
        sa.Column("zone", sa.Text(), primary_key=True),
        sa.Column("dollars_per_hour", sa.Double(), nullable=False),
        sa.Column("read_at", sa.Double(), nullable=False),
    )
