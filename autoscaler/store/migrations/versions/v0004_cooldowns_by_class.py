"""A hold counts failures of one class: the rows before this one do not say which."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; the old rows' class is unknown."""
    op.add_column(
        "cooldowns", sa.Column("failure", sa.Text(), nullable=False, server_default="unknown")
    )
