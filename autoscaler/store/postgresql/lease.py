"""The lease of the process that uses a database: one row, by the database's clock.

Its epoch grows with each new holder and never shrinks, so a process that lost the lease changes no row when it
renews its own epoch.
"""

from dataclasses import dataclass
from typing import Final

from autoscaler.model.identifiers import Instant, Seconds
from autoscaler.store.database import Connection

LENGTH: Final[Seconds] = 30.0
"""How long a lease lasts after its last renewal. The controller's heartbeat renews it every ten seconds."""


@dataclass(frozen=True, slots=True)
class Lease:
    """The lease as it is: `taken` by this call, or held by another process until `expires`."""

    holder: str
    epoch: int
    expires: Instant
    taken: bool


def acquire(connection: Connection, holder: str) -> Lease:
    """Take the lease if no process holds it. Return it."""
    connection.write(
        "INSERT INTO lease (name, holder, epoch, expires) VALUES ('controller', '', 0, 0) "
        "ON CONFLICT (name) DO NOTHING"
    )
    changed = connection.write(
        f"UPDATE lease SET holder = :holder, epoch = epoch + 1, "  # noqa: S608 - the clock is a constant
        f"expires = {connection.clock} + :length WHERE expires < {connection.clock}",
        holder=holder,
        length=LENGTH,
    )
    ((found, epoch, expires),) = connection.read("SELECT holder, epoch, expires FROM lease")
    return Lease(str(found), int(epoch), float(expires), changed == 1)


def renewal(clock: str, epoch: int) -> str:
    """Return the statement that renews the lease of this epoch. It changes no row if another process has it."""
    return f"UPDATE lease SET expires = {clock} + {LENGTH} WHERE epoch = {epoch}"  # noqa: S608 - numbers


def release(connection: Connection, epoch: int) -> None:
    """Let another process take the lease at once, if it has this epoch."""
    connection.write("UPDATE lease SET expires = 0 WHERE epoch = :epoch", epoch=epoch)
