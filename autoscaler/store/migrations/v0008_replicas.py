"""Let the lease say where its holder takes the requests of other replicas, and keep agents for all of them.

A SQLite file has a lock and a folder instead.
"""

STATEMENTS = (
    # `token` is new in each process that opens the database, so that no two processes have the same lease.
    "ALTER TABLE lease ADD COLUMN token $text NOT NULL DEFAULT ''",
    "ALTER TABLE lease ADD COLUMN url $text NOT NULL DEFAULT ''",
    "ALTER TABLE lease ADD COLUMN fleet $text NOT NULL DEFAULT ''",
    "ALTER TABLE lease ADD COLUMN secret $text NOT NULL DEFAULT ''",
    "CREATE TABLE agents (sha256 $text NOT NULL, kept_at $real NOT NULL, body $bytes NOT NULL, "
    "PRIMARY KEY (sha256)) $by_key",
)
