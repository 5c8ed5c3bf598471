"""Let each machine have the host on which it runs. That of machines from before is read from a listing."""

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the key to the placement of each record, a JSON object."""
    op.get_bind().exec_driver_sql(
        "UPDATE machines SET record = replace(record, "
        '\'"placement":{\', \'"placement":{"host":"",\')'
    )
