"""A store in memory with latency. It keeps every commit, and can fail."""

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from autoscaler.controller.ports.store import (
    Cooldown,
    Delivery,
    DeliveryKey,
    HistoryRow,
    Record,
    SavedState,
    StoreError,
)
from autoscaler.ledger.records.state import kind_and_key
from autoscaler.model.accounting import Usage
from autoscaler.model.changes import copied
from autoscaler.model.identifiers import (
    InstallationId,
    Installations,
    Instant,
    JobId,
    MachineId,
    ProviderName,
    RunnerName,
    Seconds,
)
from autoscaler.model.jobs.job import Job, JobState
from autoscaler.model.jobs.runners import Runner, RunnerState
from autoscaler.model.machines.interruptions import Rerun
from autoscaler.model.machines.launch_requests import LaunchRequest, LaunchRequestState
from autoscaler.model.machines.machine import Machine
from autoscaler.model.prices_and_quotas import Reading, ReadingKind
from autoscaler.simulator.world.processes import Process, calling, count_call, outside

INSTALLATION = InstallationId("0badcafe")

T = TypeVar("T")


@dataclass(frozen=True)
class Commit:
    """One stored transaction."""

    records: tuple[Record, ...]
    history: tuple[HistoryRow, ...]
    applied: tuple[DeliveryKey, ...]
    cooldowns: tuple[Cooldown, ...]


@dataclass(frozen=True)
class Backup:
    """What was durable at one moment. Empty by default."""

    records: dict[tuple[str, str], Record] = field(default_factory=dict)
    inbox: dict[DeliveryKey, Delivery] = field(default_factory=dict)
    applied: set[DeliveryKey] = field(default_factory=set)
    cooldowns: dict[str, Cooldown] = field(default_factory=dict)
    heartbeat: Instant | None = None
    arrived_until: Instant | None = None
    installations: Installations = field(default_factory=lambda: Installations(INSTALLATION))
    readings: dict[tuple[ProviderName, ReadingKind], tuple[Reading, ...]] = field(
        default_factory=dict
    )


class _Write(NamedTuple):
    """A write of a process that is not durable yet."""

    write: Callable[[], Any]
    done: asyncio.Future[Any]
    process: Process | None


class MemoryStore:
    """A store in memory. Each write is done `latency` seconds later, in the order of the calls.

    Overlapping calls are one transaction.
    """

    def __init__(self, latency: Seconds = 0.002) -> None:
        self.latency = latency
        self.failure: StoreError | None = None
        self.records: dict[tuple[str, str], Record] = {}
        self.inbox: dict[DeliveryKey, Delivery] = {}
        self.applied: set[DeliveryKey] = set()
        self.cooldowns: dict[str, Cooldown] = {}
        self.commits: list[Commit] = []
        self.on_commit: Callable[[Sequence[Record]], None] = lambda _: None
        self.installations = Installations(INSTALLATION)
        self.heartbeat: Instant | None = None
        self.arrived_until: Instant | None = None
        self.used: list[Usage] = []
        self.forgotten: list[Instant] = []
        self.readings: dict[tuple[ProviderName, ReadingKind], tuple[Reading, ...]] = {}
        self._group: list[_Write] = []

    async def keep_agent(self, agent: bytes) -> tuple[bytes, ...]:  # noqa: ARG002 - machines here have none
        """See `SharedStore.keep_agent`."""
        return ()

    def leads_for(self) -> Seconds:
        """See `Store.leads_for`."""
        return math.inf

    def snapshot(self) -> "Backup":
        """Return a backup of everything durable."""
        return Backup(
            dict(self.records),
            dict(self.inbox),
            set(self.applied),
            dict(self.cooldowns),
            self.heartbeat,
            self.arrived_until,
            self.installations,
            dict(self.readings),
        )

    def restore(self, backup: "Backup") -> None:
        """Replace the contents with a backup. No process may have the store open."""
        self.records = dict(backup.records)
        self.inbox = dict(backup.inbox)
        self.applied = set(backup.applied)
        self.cooldowns = dict(backup.cooldowns)
        self.heartbeat = backup.heartbeat
        self.arrived_until = backup.arrived_until
        self.installations = backup.installations
        self.readings = dict(backup.readings)

    def of_kind(self, kind: type[T]) -> list[T]:
        """Return the durable records of one kind."""
        return [record for record in self.records.values() if isinstance(record, kind)]

    def machine(self, machine: MachineId) -> Machine:
        """Return the durable record of a machine."""
        return next(m for m in self.of_kind(Machine) if m.id == machine)

    def runner(self, name: RunnerName) -> Runner:
        """Return the durable record of a runner."""
        return next(r for r in self.of_kind(Runner) if r.name == name)

    async def load(self, horizon: Instant) -> SavedState:
        """Return what is durable."""
        await self._reach()
        machines = [m for m in self.of_kind(Machine) if m.occupies or m.prunable_from > horizon]
        kept, their_calls = {m.id for m in machines}, {m.launch_request for m in machines}
        runners = [
            r
            for r in self.of_kind(Runner)
            if r.state is not RunnerState.DONE or r.since > horizon or r.machine in kept
        ]
        their_jobs = {r.job for r in runners}
        return SavedState(
            self.installations,
            self.heartbeat,
            _copies(
                j
                for j in self.of_kind(Job)
                if j.state is not JobState.COMPLETED
                or _after(j.completed_at, horizon)
                or j.id in their_jobs
            ),
            _copies(
                c
                for c in self.of_kind(LaunchRequest)
                if c.state is not LaunchRequestState.SETTLED
                or _after(c.settled_at, horizon)
                or c.id in their_calls
            ),
            _copies(machines),
            _copies(runners),
            tuple(self.cooldowns.values()),
            tuple(d for d in self.inbox.values() if d.key not in self.applied),
            self.arrived_until,
            _copies(self.of_kind(Rerun)),
        )

    async def accept(self, delivery: Delivery) -> bool:
        """Store a delivery. Return False if it was stored before."""

        return await self._durably(lambda: self._keep(delivery))

    async def commit(
        self,
        records: Sequence[Record],
        history: Sequence[HistoryRow],
        applied: Sequence[DeliveryKey] = (),
        cooldowns: Sequence[Cooldown] = (),
        installations: Installations | None = None,
        usage: Sequence[Usage] = (),
    ) -> None:
        """Store a transaction."""
        assert all(isinstance(row.at, float) for row in history), "an event without a time"
        kept = Commit(_copies(records), tuple(history), tuple(applied), tuple(cooldowns))

        def keep() -> None:
            self.records.update({kind_and_key(record): record for record in kept.records})
            self.applied.update(kept.applied)
            self.cooldowns.update({cooldown.key: cooldown for cooldown in kept.cooldowns})
            self.commits.append(kept)
            self.on_commit(kept.records)
            if installations is not None:
                self.installations = installations
            self.used += usage

        await self._durably(keep)

    async def record_heartbeat(self, at: Instant, arrived_until: Instant | None = None) -> None:
        """Store a heartbeat at once, because nothing waits for it."""
        await self._reach()
        if self.failure is not None:
            raise self.failure
        self.heartbeat = at
        if arrived_until is not None:
            self.arrived_until = arrived_until

    async def find_job(self, job: JobId) -> Job | None:
        """Return a job's durable record, or None."""
        await self._reach()
        found = self.records.get(("job", str(job)))
        return copied(found) if isinstance(found, Job) else None

    async def history(
        self, kind: str, record: str, limit: int = 1000, until: Instant = math.inf
    ) -> tuple[HistoryRow, ...]:
        """Return history rows of the commits so far."""
        rows = [row for commit in self.commits for row in commit.history if row.at <= until]
        return tuple(row for row in rows if (row.kind, row.record) == (kind, record))[-limit:]

    async def usage(self, since: int) -> tuple[Usage, ...]:
        """Return every use since this day, not summed."""
        await self._reach()
        return tuple(one for one in self.used if one.day >= since)

    async def prune(
        self, before: Instant, _faults_before: Instant | None = None, _usage_before: int = 0
    ) -> int:
        """Record the call, and delete nothing."""

        def drop() -> int:
            self.forgotten.append(before)
            return 0

        return await self._durably(drop)

    async def load_readings(self, provider: ProviderName, kind: ReadingKind) -> tuple[Reading, ...]:
        """Return the last readings."""
        await self._reach()
        return self.readings.get((provider, kind), ())

    async def save_readings(
        self, provider: ProviderName, kind: ReadingKind, readings: Sequence[Reading]
    ) -> None:
        """Keep these readings only."""
        await self._durably(lambda: self.readings.update({(provider, kind): tuple(readings)}))

    async def close(self) -> None:
        """Do nothing: nothing is open."""

    def _keep(self, delivery: Delivery) -> bool:
        new = delivery.key not in self.inbox
        self.inbox.setdefault(delivery.key, delivery)
        return new

    async def _reach(self) -> None:
        """Reach the store, for what follows at once."""
        await count_call()

    async def _durably(self, write: Callable[[], T]) -> T:
        await count_call()
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()
        if not self._group:
            outside(lambda: loop.call_later(self.latency, self._write))
        self._group.append(_Write(write, done, calling()))
        result = await done
        await count_call()
        return result

    def _write(self) -> None:
        group, self._group = self._group, []
        for write, done, process in group:
            if process is not None and process.crash_point.reached.is_set():
                continue  # rolled back
            # A cancelled caller does not roll its transaction back.
            if self.failure is not None:
                if not done.done():
                    done.set_exception(self.failure)
                continue
            result = write()
            if not done.done():
                done.set_result(result)


def _copies(records: Any) -> tuple[Any, ...]:
    return tuple(map(copied, records))


def _after(at: Instant | None, horizon: Instant) -> bool:
    return at is not None and at > horizon
