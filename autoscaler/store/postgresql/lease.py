"""The lease of the replica that leads: one row, by the database's clock.

Its epoch grows with each new holder. It is at least the time in seconds, so that it also grows if the database
is restored, or fails over and loses the last transaction. A process that lost the lease changes no row when it
renews its own.
"""

import secrets
from dataclasses import dataclass, field
from typing import Final

from autoscaler.controller.ports.replicas import LEASE_LENGTH, Lease, Replica
from autoscaler.model.identifiers import Instant
from autoscaler.store.database import Connection

_SECRET_BYTES: Final = 32

_SERVER: Final = "extract(epoch FROM pg_postmaster_start_time())::float8"
"""When the server started. `expires` of a lease that was given up is this with a minus."""


@dataclass(frozen=True, slots=True)
class Claim:
    """What a process writes into the lease when it takes it."""

    replica: Replica
    token: str = field(default_factory=lambda: secrets.token_hex(16))


def seek(connection: Connection, claim: Claim, take_on: Instant | None) -> Lease:
    """Return the lease. Take it first if it has expired, and the server started at `take_on`."""
    if take_on is not None:
        connection.write(
            "INSERT INTO lease (name, holder, epoch, expires) VALUES ('controller', '', 0, 0) "
            "ON CONFLICT (name) DO NOTHING"
        )
        connection.write(
            "UPDATE lease SET holder = :holder, url = :url, token = :token, secret = :secret, "  # noqa: S608 - the clock is a constant
            # A command that uses the store alone is of no fleet.
            "fleet = CASE WHEN :fleet = '' THEN fleet ELSE :fleet END, "
            f"epoch = GREATEST(epoch + 1, floor({connection.clock})::bigint), "
            f"expires = {connection.clock} + :length "
            f"WHERE expires < {connection.clock} AND {_SERVER} = :server",
            server=take_on,
            holder=claim.replica.name,
            url=claim.replica.url,
            fleet=claim.replica.fleet,
            token=claim.token,
            secret=secrets.token_urlsafe(_SECRET_BYTES),
            length=LEASE_LENGTH,
        )
    found = connection.read(
        "SELECT holder, url, fleet, token, secret, epoch, expires, "  # noqa: S608 - as above
        f"expires < {connection.clock}, {_SERVER}, expires = -{_SERVER} FROM lease"
    )
    if not found:  # no process has ever led
        ((server,),) = connection.read(f"SELECT {_SERVER}")
        nobody = Replica("", "")
        return Lease(nobody, 0, "", 0.0, expired=True, mine=False, server=server, given_up=True)
    ((holder, url, fleet, token, secret, epoch, expires, expired, server, given_up),) = found
    return Lease(
        Replica(str(holder), str(url), str(fleet)),
        int(epoch),
        str(secret),
        float(expires),
        expired=bool(expired),
        mine=token == claim.token and not expired,
        server=float(server),
        given_up=bool(given_up),
    )


@dataclass(frozen=True, slots=True)
class Held:
    """The lease as its holder left it with its last transaction."""

    epoch: int
    expires: Instant


def renewal(clock: str, held: Held, token: str) -> str:
    """Return the statement that renews a lease, and returns its new end.

    It changes no row if another process has it. Nor does it if a server took over that lacks the holder's last
    transactions: each of them renewed the lease.
    """
    return (
        f"UPDATE lease SET expires = {clock} + {LEASE_LENGTH} WHERE epoch = {held.epoch} "  # noqa: S608 - numbers, and hexadecimal digits
        f"AND token = '{token}' AND expires = {held.expires!r} RETURNING expires"
    )


def release(connection: Connection, epoch: int, token: str) -> None:
    """Let another process take the lease at once, if this one has it."""
    connection.write(
        f"UPDATE lease SET expires = -{_SERVER} WHERE epoch = :epoch AND token = :token",  # noqa: S608 - a constant
        epoch=epoch,
        token=token,
    )
