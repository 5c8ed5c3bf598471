"""Let each job have the origin of its run, which was the one word `from_fork`.

The origin of jobs from before is unknown: it also has the visibility and the branch. Their runs are read again.
The reason code of a job that waits for its run gets its present name. A record is a JSON object.
"""

STATEMENTS = (
    "UPDATE jobs SET record = '{\"origin\":null,' || substr(record, 2)",
    "UPDATE jobs SET record = replace(record, "
    '\'"admission":"head_repository_unknown"\', \'"admission":"run_unknown"\')',
)
