"""The store on a PostgreSQL server."""

from functools import partial
from typing import Self

from autoscaler.controller.ports.replicas import Lease, Replica
from autoscaler.controller.ports.store import Delivery
from autoscaler.model.identifiers import Instant, Seconds
from autoscaler.store import statements
from autoscaler.store.database_store import DatabaseStore
from autoscaler.store.postgresql.address import Address
from autoscaler.store.postgresql.agents import keep_agent
from autoscaler.store.postgresql.database import PostgresqlDatabase


class PostgresqlStore(DatabaseStore[PostgresqlDatabase]):
    """A `SharedStore` in one PostgreSQL database."""

    @classmethod
    async def open(cls, url: str) -> Self:
        """Connect, and upgrade the schema. The store does not lead yet: see `seek`.

        Raises: StoreUnavailableError if the server does not answer now, StoreError if the database is newer
        than this version, or not usable.
        """
        return await cls.open_with(partial(PostgresqlDatabase, Address.parse(url), 0.0))

    async def seek(self, replica: Replica, *, take_on: Instant | None) -> Lease:
        """See `SharedStore.seek`."""
        return await self._in_thread(lambda: self._database.seek(replica, take_on))

    async def renew(self) -> None:
        """See `SharedStore.renew`."""
        await self._in_thread(self._database.renew)

    async def unapplied(self, limit: int) -> tuple[Delivery, ...]:
        """See `SharedStore.unapplied`."""
        decode = statements.decode_delivery
        return await self._transact(lambda c: tuple(map(decode, statements.unapplied(c, limit))))

    async def keep_agent(self, agent: bytes) -> tuple[bytes, ...]:
        """See `SharedStore.keep_agent`."""
        return await self._transact(lambda connection: keep_agent(connection, agent))

    def leads_for(self) -> Seconds:
        """See `Store.leads_for`."""
        return self._database.leads_for()
