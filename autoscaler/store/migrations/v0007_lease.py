"""Create the table of the lease, which shows which process uses a PostgreSQL database.

A SQLite file has a lock instead.
"""

STATEMENTS = (
    "CREATE TABLE lease (name $text NOT NULL, holder $text NOT NULL, epoch $number NOT NULL, "
    "expires $real NOT NULL, PRIMARY KEY (name))",
)
