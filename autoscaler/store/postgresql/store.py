"""The store on a PostgreSQL server."""

from functools import partial
from typing import Self

from autoscaler.store.database_store import DatabaseStore
from autoscaler.store.postgresql.address import Address
from autoscaler.store.postgresql.database import PostgresqlDatabase


class PostgresqlStore(DatabaseStore):
    """A `Store` in one PostgreSQL database."""

    @classmethod
    async def open(cls, url: str) -> Self:
        """Connect, and upgrade the schema.

        Raises: StoreError if the database is in use by another process, newer than this version, or not
        usable, or if the server does not answer.
        """
        return await cls.open_with(partial(PostgresqlDatabase, Address.parse(url)))
