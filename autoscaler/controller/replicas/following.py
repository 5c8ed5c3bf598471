"""What a replica does while another one leads: it stores deliveries, and waits until the lease is free."""

import asyncio
import math
from collections.abc import Callable

import structlog

from autoscaler.controller.intake.deliveries import Parse
from autoscaler.controller.ports.clock import Clock
from autoscaler.controller.ports.replicas import (
    LEASE_LENGTH,
    Lease,
    OtherFleetError,
    Replica,
    SharedStore,
)
from autoscaler.controller.ports.store import Delivery, StoreError
from autoscaler.model.identifiers import Instant, Seconds

LOOK_EVERY: Seconds = 0.2
"""How often (real time) a replica looks whether the lease is free: a takeover after SIGTERM waits for it."""

LOG_AGAIN_AFTER: Seconds = 60.0

_log = structlog.get_logger(__name__)


class Follower:
    """A replica that does not lead. `lease` is what it saw last; None: it cannot reach the store."""

    def __init__(self, store: SharedStore, replica: Replica, pacing: Clock) -> None:
        """`pacing` is a clock of real time."""
        self.lease: Lease | None = None
        self._store = store
        self._replica = replica
        self._pacing = pacing
        self._server: Instant | None = None
        self._may_take_from: Instant = -math.inf
        self._logged_at: Instant = -math.inf

    async def until_leading(self, *, intake_only: bool = False) -> Lease:
        """Look at the lease until this replica has it. `intake_only`: never take it.

        Raises: OtherFleetError.
        """
        while True:
            lease = await self._look(intake_only=intake_only)
            if lease is not None and lease.mine:
                return lease
            await self._pacing.sleep(LOOK_EVERY)

    async def _look(self, *, intake_only: bool) -> Lease | None:
        """Return the lease, and take it if it is free.

        A server that took over may lack what its predecessor wrote last, such as a renewal, and a replica that
        starts cannot know whether one did. So a lease is over only after its whole length on one server. But
        one that its holder gave up to this server is free at once.
        """
        may_take = not intake_only and self._pacing.now() >= self._may_take_from
        try:
            lease = await self._store.seek(
                self._replica, take_on=self._server if may_take else None
            )
        except StoreError as error:
            self.lease = None
            self._note_failure(error)
            return None
        if lease.server != self._server or lease.given_up:
            self._server = lease.server
            self._may_take_from = self._pacing.now() + (0.0 if lease.given_up else LEASE_LENGTH)
        if self.lease is None or self.lease.epoch != lease.epoch:
            leader = None if lease.expired else lease.holder.name
            _log.info("lease_seen", leader=leader, epoch=lease.epoch, mine=lease.mine)
        self._refuse_other_fleet(lease.holder.fleet)
        self.lease = lease
        return lease

    def _refuse_other_fleet(self, fleet: str) -> None:
        """Raise OtherFleetError for the state of another fleet. The first look at a store never takes it."""
        if fleet not in ("", self._replica.fleet):
            raise OtherFleetError(
                f"the database has the state of fleet {fleet}, and this is fleet {self._replica.fleet}: "
                "name another database in `store`. To rename a fleet, stop all its replicas, and set the "
                "column `fleet` of its table `lease` to the new name"
            )

    def _note_failure(self, error: StoreError) -> None:
        now = self._pacing.now()
        if now - self._logged_at >= LOG_AGAIN_AFTER:
            self._logged_at = now
            _log.error("store_not_reached", reason=str(error))


class FollowerIntake:
    """Stores deliveries, which the leader then reads.

    A body that is known already is not news here: only the leader knows the job's state, and its lists of
    GitHub show a job that is queued again.
    """

    def __init__(self, store: SharedStore, parse: Parse, is_covered: Callable[[str], bool]) -> None:
        """`is_covered` returns whether a repository is in a scope of the fleet."""
        self._store = store
        self._parse = parse
        self._is_covered = is_covered

    def accept(self, delivery: Delivery) -> "asyncio.Future[bool | None]":
        """Return a future: see `Intake.accept`. Raises: ValueError if the body is malformed."""
        event = self._parse(delivery.body, delivery.received_at)
        if event is not None and self._is_covered(event.repository):
            return asyncio.ensure_future(self._store.accept(delivery))
        unneeded: asyncio.Future[bool | None] = asyncio.get_running_loop().create_future()
        unneeded.set_result(None)
        return unneeded
