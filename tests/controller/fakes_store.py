"""A store in memory that is slow enough to be overtaken, remembers every commit, and can fail."""

import asyncio
import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from autoscaler.controller.ports.store import (
    Cooldown,
    Delivery,
    DeliveryKey,
    HistoryRow,
    Record,
    SavedState,
    StoreError,
)
from autoscaler.ledger.state import kind_and_key
from autoscaler.model.calls import Call, CallState
from autoscaler.model.identifiers import (
    InstallationId,
    Instant,
    JobId,
    MachineId,
    RunnerName,
    Seconds,
)
from autoscaler.model.jobs import Job, JobState
from autoscaler.model.machines import Machine
from autoscaler.model.runners import Runner, RunnerState
from tests.controller.fakes import Fuse

INSTALLATION = InstallationId("0badcafe")

T = TypeVar("T")


@dataclass(frozen=True)
class Commit:
    """One transaction as it was kept."""

    records: tuple[Record, ...]
    history: tuple[HistoryRow, ...]
    applied: tuple[DeliveryKey, ...]
    cooldowns: tuple[Cooldown, ...]


class FakeStore:
    """Writes in the order of the calls, those that overlap together, `latency` seconds later."""

    def __init__(self, latency: Seconds = 0.002) -> None:
        self.fuse = Fuse()
        self.latency = latency
        self.failure: StoreError | None = None
        self.records: dict[tuple[str, str], Record] = {}
        self.inbox: dict[DeliveryKey, Delivery] = {}
        self.applied: set[DeliveryKey] = set()
        self.cooldowns: dict[str, Cooldown] = {}
        self.commits: list[Commit] = []
        self.heartbeat: Instant | None = None
        self.arrived_until: Instant | None = None
        self.forgotten: list[Instant] = []
        self._queue: list[tuple[Callable[[], Any], asyncio.Future[Any]]] = []
        self._writer: asyncio.Task[None] | None = None

    def reopen(self, fuse: Fuse) -> None:
        """As a new process finds it: what was not durable is lost."""
        self.fuse = fuse
        self._queue = []
        self._writer = None

    def of_kind(self, kind: type[T]) -> list[T]:
        """The durable records of one kind."""
        return [record for record in self.records.values() if isinstance(record, kind)]

    def machine(self, machine: MachineId) -> Machine:
        """One machine as it is on disk."""
        return next(m for m in self.of_kind(Machine) if m.id == machine)

    def runner(self, name: RunnerName) -> Runner:
        """One registration as it is on disk."""
        return next(r for r in self.of_kind(Runner) if r.name == name)

    async def load(self, horizon: Instant) -> SavedState:
        await self.fuse.burn()
        machines = [m for m in self.of_kind(Machine) if m.occupies or m.since > horizon]
        kept, their_calls = {m.id for m in machines}, {m.call for m in machines}
        return SavedState(
            INSTALLATION,
            self.heartbeat,
            _copies(
                j
                for j in self.of_kind(Job)
                if j.state is not JobState.COMPLETED or _after(j.completed_at, horizon)
            ),
            _copies(
                c
                for c in self.of_kind(Call)
                if c.state is not CallState.SETTLED
                or _after(c.settled_at, horizon)
                or c.id in their_calls
            ),
            _copies(machines),
            _copies(
                r
                for r in self.of_kind(Runner)
                if r.state is not RunnerState.DONE or r.since > horizon or r.machine in kept
            ),
            tuple(self.cooldowns.values()),
            tuple(d for d in self.inbox.values() if d.key not in self.applied),
            self.arrived_until,
        )

    async def accept(self, delivery: Delivery) -> bool:
        def keep() -> bool:
            new = delivery.key not in self.inbox
            self.inbox.setdefault(delivery.key, delivery)
            return new

        return await self._durably(keep)

    async def commit(
        self,
        records: Sequence[Record],
        history: Sequence[HistoryRow],
        applied: Sequence[DeliveryKey] = (),
        cooldowns: Sequence[Cooldown] = (),
    ) -> None:
        kept = Commit(_copies(records), tuple(history), tuple(applied), tuple(cooldowns))

        def keep() -> None:
            self.records.update({kind_and_key(record): record for record in kept.records})
            self.applied.update(kept.applied)
            self.cooldowns.update({cooldown.key: cooldown for cooldown in kept.cooldowns})
            self.commits.append(kept)

        await self._durably(keep)

    async def beat(self, at: Instant, arrived_until: Instant | None = None) -> None:
        def keep() -> None:
            self.heartbeat = at
            if arrived_until is not None:
                self.arrived_until = arrived_until

        await self._durably(keep)

    async def find_job(self, job: JobId) -> Job | None:
        await self.fuse.burn()
        found = self.records.get(("job", str(job)))
        return copy.copy(found) if isinstance(found, Job) else None

    async def history(self, kind: str, record: str, limit: int = 1000) -> tuple[HistoryRow, ...]:
        rows = [row for commit in self.commits for row in commit.history]
        return tuple(row for row in rows if (row.kind, row.record) == (kind, record))[:limit]

    async def forget(self, before: Instant) -> int:
        def drop() -> int:
            self.forgotten.append(before)
            return 0

        return await self._durably(drop)

    async def close(self) -> None:
        """Nothing is open."""

    async def _durably(self, write: Callable[[], T]) -> T:
        await self.fuse.burn()
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._queue.append((write, done))
        if self._writer is None:
            self._writer = asyncio.get_running_loop().create_task(self._write(self.fuse))
        # A caller that leaves does not take its transaction back.
        result = await asyncio.shield(done)
        await self.fuse.burn()
        return result

    async def _write(self, fuse: Fuse) -> None:
        while self._queue:
            group, self._queue = self._queue, []
            await asyncio.sleep(self.latency)
            if fuse.blown.is_set():
                return
            for write, done in group:
                if self.failure is not None:
                    done.set_exception(self.failure)
                else:
                    done.set_result(write())
        self._writer = None


def _copies(records: Any) -> tuple[Any, ...]:
    return tuple(copy.copy(record) for record in records)


def _after(at: Instant | None, horizon: Instant) -> bool:
    return at is not None and at > horizon
