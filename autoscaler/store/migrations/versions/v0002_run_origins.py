"""Let each job have the origin of its run, which was the one word `from_fork`.

The origin of jobs from before is unknown: it also has the visibility and the branch. Their runs are read again.
"""

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the key to each record, a JSON object, and rename the reason code of a job that waits for its run."""
    connection = op.get_bind()
    connection.exec_driver_sql("UPDATE jobs SET record = '{\"origin\":null,' || substr(record, 2)")
    connection.exec_driver_sql(
        "UPDATE jobs SET record = replace(record, "
        '\'"admission":"head_repository_unknown"\', \'"admission":"run_unknown"\')'
    )
