"""GitHub's deliveries: told in order, late, twice, or not at all; the failed ones told again.

It decides how a word travels, never what it says.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from autoscaler.controller.ports.github import Redelivered
from autoscaler.controller.ports.store import Delivery, StoreError
from autoscaler.model.events import JobObserved
from autoscaler.model.identifiers import Instant, JobId, RunnerName, Seconds
from autoscaler.model.jobs import JobState
from autoscaler.simulator.world.fault_schedule import FaultSchedule
from autoscaler.simulator.world.process import ProcessGoneError
from autoscaler.simulator.world.schedule import FaultKind
from autoscaler.simulator.world.virtual_time import unowned

ON_THE_WAY: Seconds = 0.3
AGAIN_AFTER: Seconds = 30.0


@dataclass(frozen=True, slots=True)
class Word:
    """What GitHub says of a job."""

    job: JobId
    run: int
    attempt: int
    state: JobState
    repository: str
    labels: tuple[str, ...]
    queued_at: Instant
    runner_name: RunnerName | None = None
    runner_id: int | None = None
    started_at: Instant | None = None
    completed_at: Instant | None = None
    conclusion: str | None = None

    def fact(self, at: Instant, *, read: bool = False) -> JobObserved:
        """The word as the controller takes it in."""
        return JobObserved(
            at,
            self.job,
            self.state,
            self.repository,
            self.labels,
            self.queued_at,
            run_id=self.run,
            run_attempt=self.attempt,
            runner_name=self.runner_name,
            started_at=self.started_at,
            completed_at=self.completed_at,
            conclusion=self.conclusion,
            read=read,
            runner_id=self.runner_id,
        )


def body_of(word: Word) -> bytes:
    """A word as a delivery carries it, in the world's own spelling."""
    said = {name: getattr(word, name) for name in Word.__slots__}
    return json.dumps(said).encode()


def parse(body: bytes, received_at: Instant) -> JobObserved | None:
    """The fact in a body of `body_of`. Raises ValueError."""
    said = json.loads(body)
    labels, state = tuple(said.pop("labels")), JobState(said.pop("state"))
    return Word(labels=labels, state=state, **said).fact(received_at)


@dataclass(frozen=True, slots=True)
class _Failed:
    """A delivery that GitHub lists as failed, and when it was tried last."""

    delivery: Delivery
    tried_at: Instant


class Webhooks:
    """The App's hook. `deliver` takes a delivery in, or raises what a 5xx or a dead host is here.

    `logged` are the jobs of which GitHub knows a delivery: it came, or may be asked for again.
    """

    def __init__(
        self,
        fault_schedule: FaultSchedule,
        now: Callable[[], Instant],
        deliver: Callable[[Delivery], Awaitable[object]],
    ) -> None:
        self.told = 0
        self.logged: set[JobId] = set()
        self._fault_schedule = fault_schedule
        self._now = now
        self._deliver = deliver
        self._failed: list[_Failed] = []
        self._since: Instant = 0.0
        self._under_way: set[asyncio.Task[None]] = set()

    @property
    def settled(self) -> bool:
        """Whether nothing is on its way, nor waits to be asked for again.

        What failed before the time that is asked about, as by an empty store, is nobody's any more.
        """
        return not self._under_way and all(one.tried_at < self._since for one in self._failed)

    def tell(self, word: Word) -> None:
        """Send a word off."""
        self.told += 1
        delivery = Delivery(f"d-{self.told}", "workflow_job", self._now(), body_of(word))
        fault_schedule = self._fault_schedule
        if fault_schedule.strikes(FaultKind.WEBHOOK_VANISHED):
            return
        self.logged.add(word.job)
        if fault_schedule.strikes(FaultKind.WEBHOOK_FAILED):
            self._failed.append(_Failed(delivery, self._now()))
            return
        late = fault_schedule.strikes(FaultKind.WEBHOOK_LATE)
        self._send(delivery, ON_THE_WAY if late is None else float(late.target))
        if fault_schedule.strikes(FaultKind.WEBHOOK_REPEATED):
            self._send(delivery, AGAIN_AFTER)

    def redeliver(self, since: Instant) -> Redelivered:
        """Send again what failed since then."""
        self._since = since
        again = [failed for failed in self._failed if failed.tried_at >= since]
        self._failed = [failed for failed in self._failed if failed.tried_at < since]
        for failed in again:
            self._send(failed.delivery, ON_THE_WAY)
        oldest = min((failed.tried_at for failed in again), default=self._now())
        return Redelivered(len(again), oldest)

    def stop(self) -> None:
        """Drop what is on its way."""
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
