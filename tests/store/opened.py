"""How a test opens a store in a database, also again as after a restart."""

from collections.abc import Awaitable, Callable

from autoscaler.store.database_store import DatabaseStore

Opener = Callable[[], Awaitable[DatabaseStore]]
