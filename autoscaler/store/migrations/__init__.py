"""The schema's migrations by version. `store.schema` runs them when a database is opened.

A migration that was released never changes. It only expands the schema, so that the version before can still
use the database: a column has a default, and is dropped one version after the last that uses it.
"""

from collections.abc import Mapping
from typing import Final

from autoscaler.store.migrations import (
    v0001_first,
    v0002_run_origins,
    v0003_reason_codes,
    v0004_hosts,
    v0005_provider_errors,
    v0006_usage,
    v0007_lease,
    v0008_replicas,
)

MIGRATIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "0001": v0001_first.STATEMENTS,
    "0002": v0002_run_origins.STATEMENTS,
    "0003": v0003_reason_codes.STATEMENTS,
    "0004": v0004_hosts.STATEMENTS,
    "0005": v0005_provider_errors.STATEMENTS,
    "0006": v0006_usage.STATEMENTS,
    "0007": v0007_lease.STATEMENTS,
    "0008": v0008_replicas.STATEMENTS,
}
"""The statements of each version, in the order of the versions. Types are `Connection.types`, as `$text`."""
