"""Opens a PostgreSQL database for one command, while no controller uses it."""

import time
from typing import Final

from autoscaler.controller.ports.replicas import Replica
from autoscaler.controller.ports.store import StoreError
from autoscaler.controller.system import process_name
from autoscaler.model.identifiers import Seconds
from autoscaler.store.postgresql.address import Address
from autoscaler.store.postgresql.database import PostgresqlDatabase

_LOOK_EVERY: Final[Seconds] = 1.0


def open_alone(url: str) -> PostgresqlDatabase:
    """Open the database and take the lease. A lease that its holder no longer renews is taken when it ends.

    Raises: StoreError, also once its holder has renewed it.
    """
    database = PostgresqlDatabase(Address.parse(url))
    try:
        _take_lease(database)
    except BaseException:
        database.close()
        raise
    return database


def _take_lease(database: PostgresqlDatabase) -> None:
    replica = Replica(process_name(), "")
    first = found = database.seek(replica, take_on=None)
    while not (found := database.seek(replica, take_on=found.server)).mine:
        if found.expires != first.expires:
            raise StoreError(
                f"{database.title}: in use by another process ({found.holder.name}): stop the controllers first"
            )
        time.sleep(_LOOK_EVERY)
