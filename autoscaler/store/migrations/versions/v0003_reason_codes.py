"""Let each row of history have a reason code. Earlier rows have none."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column. SQLite changes no row for that."""
    op.add_column(
        "history", sa.Column("code", sa.Text(), nullable=False, server_default=sa.text("''"))
    )
