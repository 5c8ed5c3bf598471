"""One table for all that providers said: prices, and from now on quotas."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the table and move the prices there."""
    op.create_table(
        "readings",
        sa.Column("provider", sa.Text(), primary_key=True),
        sa.Column("kind", sa.Text(), primary_key=True),
        sa.Column("name", sa.Text(), primary_key=True),
        sa.Column("value", sa.Double(), nullable=False),
        sa.Column("read_at", sa.Double(), nullable=False),
    )
    op.execute(
        "INSERT INTO readings (provider, kind, name, value, read_at) "
        "SELECT provider, CASE capacity_type WHEN 'spot' THEN 'spot_price' ELSE 'on_demand_price' "
        "END, instance_type || '/' || os || '/' || zone, dollars_per_hour, read_at FROM prices"
    )
    op.drop_table("prices")
