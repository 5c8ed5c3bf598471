"""Looks at a PostgreSQL database as a controller would use it, and changes nothing."""

from contextlib import closing
from dataclasses import dataclass

import psycopg

from autoscaler.controller.ports.replicas import Replica
from autoscaler.store.postgresql import lease
from autoscaler.store.postgresql.address import Address
from autoscaler.store.postgresql.connection import PostgresqlConnection
from autoscaler.store.postgresql.errors import explained
from autoscaler.store.schema import read_schema, read_usable_by, refuse_newer


@dataclass(frozen=True, slots=True)
class Inspection:
    """What a new session found.

    `version` is the server's. `read_only`: it takes no writes, such as a standby. `encrypted`: the session is.
    `leader` names the replica that leads; None: no replica leads.
    """

    version: int
    read_only: bool
    encrypted: bool
    leader: str | None


def inspect(url: str) -> Inspection:
    """Sign in and look. Raises: StoreError if a controller could not use the database."""
    address = Address.parse(url)
    try:
        with closing(address.connect()) as session:
            session.limit = 10.0
            connection = PostgresqlConnection(session)
            ((version, read_only),) = connection.read(
                "SELECT current_setting('server_version_num')::int / 10000, pg_is_in_recovery()"
            )
            return Inspection(
                int(version), bool(read_only), session.pgconn.ssl_in_use, _leader(connection)
            )
    except psycopg.Error as error:
        raise explained(address.title, error) from None


def _leader(connection: PostgresqlConnection) -> str | None:
    """Return the name of the replica that leads. Raises: StoreError for a schema that is too new."""
    schema = read_schema(connection)
    if schema is None:
        return None
    refuse_newer(schema, read_usable_by(connection))
    found = lease.seek(connection, lease.Claim(Replica("", "")), take_on=None)
    return None if found.expired else found.holder.name
