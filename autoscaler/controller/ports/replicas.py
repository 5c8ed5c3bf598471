"""The port of a store that several replicas of the controller share. One of them leads.

The leader holds a lease: a row of the store with an epoch, which only grows, and the time at which it expires,
by the store's clock. Each transaction of the leader renews the lease. It writes nothing if another replica took
the lease.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from autoscaler.controller.ports.store import Delivery, Store, StoreError
from autoscaler.model.identifiers import Instant, Seconds

LEADER_CLOCK: Final = time.CLOCK_BOOTTIME
"""The clock of a leader: it goes on while the host is suspended, and all processes of the host share it."""

LEASE_LENGTH: Final[Seconds] = 15.0
"""How long a lease lasts after its last renewal (real time)."""

LEASE_MARGIN: Final[Seconds] = 1.0
"""By how much a leader counts its lease as shorter: its clock and the store's may run at different speeds."""

MOST_AGENTS: Final = 8
"""Number of agents that are kept for machines: those with which a controller was started last."""

Leads = Callable[[], Seconds]
"""Returns for how long (real time) this process is still sure to lead. 0 or less: it may send nothing.

Whatever changes something outside the store asks immediately before it sends, and waits no longer for its
answer.
"""


def leads_forever() -> Seconds:
    """Return infinity: what `Leads` says in the one process of a store that is not shared."""
    return math.inf


class StoreUnavailableError(StoreError):
    """The store's server does not answer, or not yet. It may later."""


class OtherFleetError(StoreError):
    """The store has the state of another fleet."""


@dataclass(frozen=True, slots=True)
class Replica:
    """A replica, as the others see it: words for its process, the URL where it takes requests, its fleet."""

    name: str
    url: str
    fleet: str = ""


@dataclass(frozen=True, slots=True)
class Lease:
    """The lease at one moment. `expires` is a time of the store's clock.

    `secret` is new in each epoch: with it, replicas prove to the leader that they pass on a request. `mine`:
    this process holds it. `server` is when the store's server started: one that takes over has another time.
    `given_up`: its holder ended well, and no replica has taken it since. That is known only if it was given up
    to this very server. A lease that no replica has ever had counts as given up.
    """

    holder: Replica
    epoch: int
    secret: str
    expires: Instant
    expired: bool
    mine: bool
    server: Instant
    given_up: bool


class SharedStore(Store, Protocol):
    """A store that several replicas share. Every method raises StoreError and nothing else.

    A replica that does not lead may call `accept`, `seek` and `close`, and no other method.
    """

    async def seek(self, replica: Replica, *, take_on: Instant | None) -> Lease:
        """Return the lease. Take it first if it has expired, with the next epoch.

        `take_on`: take it only if the server started then. A server that has just taken over started at another
        time. None: do not take it.
        """

    async def renew(self) -> None:
        """Renew the lease. Raises: StoreError if another replica took it."""

    async def keep_agent(self, agent: bytes) -> tuple[bytes, ...]:
        """Store the agent of this version. Return those of other versions, the latest first."""

    async def unapplied(self, limit: int) -> tuple[Delivery, ...]:
        """Return the oldest deliveries that are not marked as applied, of any replica."""
