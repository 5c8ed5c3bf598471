"""Let each hold have the code of the provider's error. Earlier holds have none."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column. SQLite changes no row for that."""
    op.add_column(
        "cooldowns", sa.Column("error", sa.Text(), nullable=False, server_default=sa.text("''"))
    )
