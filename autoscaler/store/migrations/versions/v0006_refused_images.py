"""The image that GitHub refuses, beside the hold on its SKU."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; the old rows name no image."""
    op.add_column("cooldowns", sa.Column("image", sa.Text(), nullable=False, server_default=""))
