"""How a test opens a store in a database, also again as after a restart."""

from collections.abc import Awaitable, Callable

from autoscaler.controller.ports.replicas import Lease, Replica
from autoscaler.store.postgresql.store import PostgresqlStore
from autoscaler.store.sqlite.store import SqliteStore

OpenedStore = SqliteStore | PostgresqlStore

Opener = Callable[[], Awaitable[OpenedStore]]

REPLICA = Replica("host 1, process 1", "https://host-1:8443")


async def open_leading(url: str, replica: Replica = REPLICA) -> PostgresqlStore:
    """Open a store on PostgreSQL, and take the lease, which must be free."""
    store = await PostgresqlStore.open(url)
    lease = await take(store, replica)
    assert lease.mine, lease
    return store


async def take(store: PostgresqlStore, replica: Replica = REPLICA) -> Lease:
    """Return the lease. Take it first if it has expired."""
    seen = await store.seek(replica, take_on=None)
    return await store.seek(replica, take_on=seen.server)
