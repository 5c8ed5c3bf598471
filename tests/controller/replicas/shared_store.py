"""A store in memory whose lease a test holds, frees and loses."""

from dataclasses import replace

from autoscaler.controller.ports.replicas import Lease, Replica
from autoscaler.controller.ports.store import Delivery, StoreError
from autoscaler.controller.replicas.lease_time import LeaseTime
from autoscaler.model.jobs.job import JobState
from tests.controller.controllers import delivery
from tests.controller.fakes_store import FakeStore
from tests.controller.virtual_time import EPOCH, VirtualClock

OTHER = Replica("host 2, process 2", "https://host-2:8443")


def queued(job: int) -> Delivery:
    """Return the delivery about a new job."""
    return delivery(job, job, JobState.QUEUED, EPOCH)


class LeasedStore(FakeStore):
    """The store of one replica, `server` a number of its server. Without `reached`, every call fails."""

    def __init__(self) -> None:
        super().__init__()
        self.lease = Lease(
            OTHER, 1, "secret", EPOCH, expired=False, mine=False, server=1.0, given_up=False
        )
        self.server = 1.0
        self.reached = True
        self.taken_at: list[float] = []
        self.renewals = 0
        self._clock = VirtualClock()
        self.lease_time = LeaseTime(self._clock.now)

    def fail_over(self) -> None:
        """Let another server take over."""
        self.server += 1.0
        self.lease = replace(self.lease, given_up=False)

    async def seek(self, replica: Replica, *, take_on: float | None) -> Lease:
        self._require()
        if self.lease.expired and take_on == self.server:
            self.taken_at.append(self._clock.now())
            self.lease = replace(
                self.lease,
                holder=replica,
                epoch=self.lease.epoch + 1,
                expired=False,
                mine=True,
                given_up=False,
            )
            self.lease_time.renewed(self._clock.now())
        return replace(self.lease, server=self.server)

    async def renew(self) -> None:
        self._require()
        self.renewals += 1
        self.lease_time.renewed(self._clock.now())

    async def unapplied(self, limit: int) -> tuple[Delivery, ...]:
        self._require()
        waiting = [one for one in self.inbox.values() if one.key not in self.applied]
        return tuple(waiting[:limit])

    def leads_for(self) -> float:
        return self.lease_time.left()

    def _require(self) -> None:
        if not self.reached:
            raise StoreError("the server does not answer")
