"""Create the table of what the time of machines bought. Days before the upgrade have no rows."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "usage",
        sa.Column("day", sa.Integer(), primary_key=True),
        sa.Column("provider", sa.Text(), primary_key=True),
        sa.Column("sku", sa.Text(), primary_key=True),
        sa.Column("repository", sa.Text(), primary_key=True),
        sa.Column("use", sa.Text(), primary_key=True),
        sa.Column("seconds", sa.Double(), nullable=False),
        sa.Column("dollars", sa.Double(), nullable=False),
        sa.Column("times", sa.Integer(), nullable=False),
        sqlite_with_rowid=False,
    )
