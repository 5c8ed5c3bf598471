"""The tables' columns, in the order in which `rows` gives their values. The migrations create the tables.

The column `record` contains the whole record as JSON. The other columns repeat values for queries.
`ended_at` is null until the record has ended.
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, eq=False, slots=True)
class Table:
    """A table. The first `keys` columns are its primary key."""

    name: str
    columns: tuple[str, ...]
    keys: int = 1

    @property
    def key(self) -> str:
        """The first column of the primary key."""
        return self.columns[0]


def _records(name: str, *first: str) -> Table:
    """Return the table of one kind of record. `first` are its key and the column that other tables name."""
    return Table(name, (*first, "state", "ended_at", "record"))


JOBS: Final = _records("jobs", "id")
LAUNCH_REQUESTS: Final = _records("launch_requests", "id")
MACHINES: Final = _records("machines", "id", "launch_request")
RUNNERS: Final = _records("runners", "name", "machine")
RERUNS: Final = _records("reruns", "job")

INBOX: Final = Table(
    "inbox", ("seq", "id", "body_sha256", "event", "received_at", "applied", "body")
)
"""Webhook deliveries. `seq` is the order of arrival. `id` is X-GitHub-Delivery, which GitHub's signature
does not cover, so the digest of the body is unique. `body` is compressed. `applied` is 0 or 1."""

HISTORY: Final = Table("history", ("seq", "at", "kind", "record", "event", "detail", "code"))

COOLDOWNS: Final = Table(
    "cooldowns", ("key", "until", "failures", "reason", "failure", "image", "error")
)

READINGS: Final = Table("readings", ("provider", "kind", "name", "value", "read_at"), keys=3)
"""The latest prices, quotas and sums of foreign machines of the providers (see `Store.save_readings`)."""

USAGE: Final = Table(
    "usage",
    ("day", "provider", "sku", "repository", "use", "seconds", "dollars", "times"),
    keys=5,
)
"""What the time of machines bought: one row for each day and key, of about 100 bytes (see `Usage`)."""

LEASE: Final = Table(
    "lease", ("name", "holder", "epoch", "expires", "token", "url", "fleet", "secret")
)
"""The replica that leads (see `postgresql.lease`). A SQLite file has a lock instead."""

AGENTS: Final = Table("agents", ("sha256", "kept_at", "body"))
"""The agents of this and of earlier versions. A SQLite file has a folder beside it instead."""

META: Final = Table("meta", ("key", "value"))
"""Single values: the version of the schema, the heartbeat, the installation IDs."""

TABLES: Final = (
    *(JOBS, LAUNCH_REQUESTS, MACHINES, RUNNERS, RERUNS),
    *(INBOX, HISTORY, COOLDOWNS, READINGS, USAGE, LEASE, AGENTS, META),
)
