"""GitHub's webhook deliveries: in order, late, twice or never. Failed ones can be redelivered."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Container
from dataclasses import dataclass, replace

from autoscaler.controller.ports.github import Redelivered
from autoscaler.controller.ports.store import Delivery, StoreError
from autoscaler.model.events import JobObserved
from autoscaler.model.identifiers import Instant, JobId, Seconds
from autoscaler.model.jobs.job import JobState
from autoscaler.simulator.world.controller.process import ProcessGoneError
from autoscaler.simulator.world.fault_schedule import FaultSchedule
from autoscaler.simulator.world.jobs import JobSnapshot
from autoscaler.simulator.world.schedule import FaultKind
from autoscaler.simulator.world.virtual_time import unowned

ON_THE_WAY: Seconds = 0.3
AGAIN_AFTER: Seconds = 30.0


def body_of(snapshot: JobSnapshot) -> bytes:
    """Return the body of a delivery, in a format of the simulation."""
    fields = {name: getattr(snapshot, name) for name in JobSnapshot.__slots__}
    return json.dumps(fields).encode()


def parse(body: bytes, received_at: Instant) -> JobObserved | None:
    """Parse a body of `body_of`. Raises ValueError."""
    fields = json.loads(body)
    labels, state = tuple(fields.pop("labels")), JobState(fields.pop("state"))
    return JobSnapshot(labels=labels, state=state, **fields).to_event(received_at)


@dataclass(frozen=True, slots=True)
class _Failed:
    """A delivery that GitHub's log shows as failed, and the time of its last attempt."""

    delivery: Delivery
    tried_at: Instant


class Webhooks:
    """The App's webhook. `deliver` raises for what would be a 5xx or an unreachable host.

    `logged` are the jobs with a delivery in GitHub's log: it arrived or can be redelivered. After the store
    was rewound, only those that the store knows or that can be redelivered remain.
    """

    def __init__(
        self,
        fault_schedule: FaultSchedule,
        now: Callable[[], Instant],
        deliver: Callable[[Delivery], Awaitable[object]],
    ) -> None:
        self.sent = 0
        self.logged: set[JobId] = set()
        self._fault_schedule = fault_schedule
        self._now = now
        self._deliver = deliver
        self._failed: list[_Failed] = []
        self._since: Instant = 0.0
        self._under_way: set[asyncio.Task[None]] = set()

    @property
    def settled(self) -> bool:
        """Return whether no delivery is on its way, and no failed one would be redelivered.

        Ignores failures before the time from which the controller requests redeliveries.
        """
        return not self._under_way and all(one.tried_at < self._since for one in self._failed)

    def send(self, snapshot: JobSnapshot) -> None:
        """Send a delivery for a change of a job."""
        self.sent += 1
        delivery = Delivery(f"d-{self.sent}", "workflow_job", self._now(), body_of(snapshot))
        fault_schedule = self._fault_schedule
        if fault_schedule.hit(FaultKind.WEBHOOK_VANISHED):
            return
        self.logged.add(snapshot.job)
        if fault_schedule.hit(FaultKind.WEBHOOK_FAILED):
            self._failed.append(_Failed(delivery, self._now()))
            return
        late = fault_schedule.hit(FaultKind.WEBHOOK_LATE)
        self._send(delivery, ON_THE_WAY if late is None else float(late.target))
        if fault_schedule.hit(FaultKind.WEBHOOK_REPEATED):
            self._send(delivery, AGAIN_AFTER)

    def rewind(self, known: Container[JobId]) -> None:
        """Take note that the store was rewound and knows only these jobs."""
        failed = {json.loads(one.delivery.body)["job"] for one in self._failed}
        self.logged = {job for job in self.logged if job in known or job in failed}

    def redeliver(self, since: Instant) -> Redelivered:
        """Send the deliveries again that failed since then."""
        self._since = since
        again = [failed for failed in self._failed if failed.tried_at >= since]
        self._failed = [failed for failed in self._failed if failed.tried_at < since]
        for failed in again:
            self._send(failed.delivery, ON_THE_WAY)
        oldest = min((failed.tried_at for failed in again), default=self._now())
        return Redelivered(len(again), oldest)

    def stop(self) -> None:
        """Drop the deliveries that are on their way."""
        for task in tuple(self._under_way):
            task.cancel()

    def _send(self, delivery: Delivery, after: Seconds) -> None:
        task = unowned(self._try(delivery, after))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def _try(self, delivery: Delivery, after: Seconds) -> None:
        await asyncio.sleep(after)
        try:
            await self._deliver(replace(delivery, received_at=self._now()))
        except (ProcessGoneError, StoreError):
            self._failed.append(_Failed(delivery, self._now()))
