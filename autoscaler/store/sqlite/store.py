"""The embedded store: one SQLite file, with synced commits. It never retries."""

import math
from functools import partial
from pathlib import Path
from typing import Self

from autoscaler.model.identifiers import Seconds
from autoscaler.store.database_store import DatabaseStore
from autoscaler.store.sqlite.file import SqliteFile


class SqliteStore(DatabaseStore[SqliteFile]):
    """A `Store` in one SQLite file."""

    @classmethod
    async def open(cls, path: Path) -> Self:
        """Open or create the file and upgrade its schema.

        Raises: StoreError if it is in use by another process, newer than this version, damaged, or not
        writable.
        """
        return await cls.open_with(partial(SqliteFile, path))

    def leads_for(self) -> Seconds:
        """See `Store.leads_for`. The file is locked."""
        return math.inf
