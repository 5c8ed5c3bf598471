"""Create the first schema: records, inbox, history, cooldowns, readings, meta."""

from collections.abc import Iterator


def _record_table(name: str, *first: str) -> Iterator[str]:
    key = first[0].split()[0]
    columns = (*first, "state $text NOT NULL", "ended_at $real", "record $text NOT NULL")
    yield f"CREATE TABLE {name} ({', '.join(columns)}, PRIMARY KEY ({key}))"
    yield f"CREATE INDEX {name}_ended_at ON {name} (ended_at)"


STATEMENTS = (
    *_record_table("jobs", "id $number NOT NULL"),
    *_record_table("launch_requests", "id $text NOT NULL"),
    *_record_table("machines", "id $text NOT NULL", "launch_request $text NOT NULL"),
    "CREATE INDEX machines_launch_request ON machines (launch_request)",
    *_record_table("runners", "name $text NOT NULL", "machine $text NOT NULL"),
    *_record_table("reruns", "job $number NOT NULL"),
    """
    CREATE TABLE inbox (
        seq $serial NOT NULL,
        id $text NOT NULL,
        body_sha256 $bytes NOT NULL,
        event $text NOT NULL,
        received_at $real NOT NULL,
        applied $flag NOT NULL,
        body $bytes NOT NULL,
        PRIMARY KEY (seq),
        CONSTRAINT inbox_body UNIQUE (body_sha256)
    )
    """,
    "CREATE INDEX inbox_received_at ON inbox (received_at)",
    # SQLite uses a partial index only for a query with the same text in its condition.
    "CREATE INDEX inbox_unapplied ON inbox (seq) WHERE applied = 0",
    """
    CREATE TABLE history (
        seq $serial NOT NULL,
        at $real NOT NULL,
        kind $text NOT NULL,
        record $text NOT NULL,
        event $text NOT NULL,
        detail $text NOT NULL,
        PRIMARY KEY (seq)
    )
    """,
    "CREATE INDEX history_record ON history (kind, record, seq)",
    "CREATE INDEX history_at ON history (at)",
    """
    CREATE TABLE cooldowns (
        key $text NOT NULL,
        until $real NOT NULL,
        failures INTEGER NOT NULL,
        reason $text NOT NULL,
        failure $text NOT NULL,
        image $text NOT NULL,
        PRIMARY KEY (key)
    )
    """,
    """
    CREATE TABLE readings (
        provider $text NOT NULL,
        kind $text NOT NULL,
        name $text NOT NULL,
        value $real NOT NULL,
        read_at $real NOT NULL,
        PRIMARY KEY (provider, kind, name)
    )
    """,
    "CREATE TABLE meta (key $text NOT NULL, value $text NOT NULL, PRIMARY KEY (key))",
)
