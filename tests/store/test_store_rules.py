"""Rules 1 and 3 of the design, where they live in this room, against a model of plain dicts.

1: a delivery that was accepted is durable, once, and waits in order until it is applied.
3: what was committed is there after a crash, whole; what failed is not there at all.
"""

import asyncio
import shutil
import tempfile
from collections.abc import Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from autoscaler.controller.ports.store import (
    Cooldown,
    Delivery,
    DeliveryKey,
    HistoryRow,
    Record,
    StoreError,
)
from autoscaler.model.identifiers import InstallationId, Installations
from autoscaler.model.jobs.job import Job, JobState
from autoscaler.model.jobs.runners import Runner, RunnerState
from autoscaler.model.machines.interruptions import Rerun, RerunState
from autoscaler.model.machines.launch_requests import LaunchRequest, LaunchRequestState
from autoscaler.model.machines.machine import Machine, MachineState
from autoscaler.store.sqlite.store import SqliteStore
from tests.store.records import call, job, machine, rerun, runner
from tests.store.test_store_failures import pragma

Answer = TypeVar("Answer")

IDS = st.integers(0, 5).map(str)
OURS = IDS.map(InstallationId)
TIMES = st.integers(0, 100).map(float)
BODIES = st.sampled_from([b"", b"{}", b"\xff\x00", b"x" * 500])
KEYS = st.builds(lambda id_, body: Delivery(id_, "", 0.0, body).key, IDS, BODIES)
RECORDS = st.one_of(
    st.builds(job, st.integers(0, 3), st.sampled_from(JobState), TIMES),
    st.builds(call, st.sampled_from(["c0", "c1"]), st.sampled_from(LaunchRequestState), TIMES),
    st.builds(
        machine,
        st.sampled_from(["m0", "m1"]),
        st.sampled_from(MachineState),
        TIMES,
        of=st.sampled_from(["c0", "c1"]),
        provider_id=st.none() | st.just("i-1"),
    ),
    st.builds(
        runner,
        st.sampled_from(["r0", "r1"]),
        st.sampled_from(RunnerState),
        TIMES,
        on=st.sampled_from(["m0", "m1"]),
        of=st.none() | st.integers(0, 3),
    ),
    st.builds(rerun, st.integers(0, 3), st.sampled_from(RerunState), TIMES),
)


@dataclass(frozen=True)
class Accept:
    """One delivery."""

    delivery: Delivery


@dataclass(frozen=True)
class Commit:
    """One decision, with a history row for each record."""

    records: tuple[Record, ...]
    applied: tuple[DeliveryKey, ...]
    cooldowns: tuple[Cooldown, ...]
    at: float
    installations: Installations | None = None

    @property
    def history(self) -> tuple[HistoryRow, ...]:
        """One row a record."""
        return tuple(HistoryRow(self.at, *kind_and_key(r), r.state) for r in self.records)


ACCEPTS = st.builds(Accept, st.builds(Delivery, IDS, st.just("workflow_job"), TIMES, BODIES))
COMMITS = st.builds(
    Commit,
    st.lists(RECORDS, max_size=3).map(tuple),
    st.lists(KEYS, max_size=3).map(tuple),
    st.lists(
        st.builds(Cooldown, IDS, TIMES, st.integers(0, 5), st.text(max_size=3)), max_size=2
    ).map(tuple),
    TIMES,
    st.none() | st.builds(Installations, OURS, st.lists(OURS, max_size=2).map(tuple)),
)


def kind_and_key(record: Record) -> tuple[str, str]:
    match record:
        case Job():
            return "job", str(record.id)
        case LaunchRequest():
            return "launch_request", record.id
        case Machine():
            return "machine", record.id
        case Runner():
            return "runner", record.name
        case Rerun():
            return "rerun", str(record.job)


def ended(record: Record) -> float | None:
    """Return the time at which the record ended (completed, settled, terminated or done)."""
    match record:
        case Job():
            return record.completed_at if record.state is JobState.COMPLETED else None
        case LaunchRequest():
            return record.settled_at if record.state is LaunchRequestState.SETTLED else None
        case Machine():
            return None if record.occupies else record.prunable_from
        case Runner():
            return record.since if record.state is RunnerState.DONE else None
        case Rerun():
            return record.ended_at


@dataclass
class Model:
    """The expected contents of the file."""

    inbox: dict[DeliveryKey, Delivery] = field(default_factory=dict)
    applied: set[DeliveryKey] = field(default_factory=set)
    records: dict[tuple[str, str], Record] = field(default_factory=dict)
    history: list[HistoryRow] = field(default_factory=list)
    cooldowns: dict[str, Cooldown] = field(default_factory=dict)
    heartbeat: float | None = None
    installations: Installations | None = None

    def do(self, change: Accept | Commit) -> bool | None:
        """Apply one change, and return the answer that the store must give."""
        if isinstance(change, Accept):
            known = change.delivery.key in self.inbox
            if not known:
                self.inbox[change.delivery.key] = change.delivery
            return not known
        self.applied |= set(change.applied) & set(self.inbox)
        for record in change.records:
            self.records[kind_and_key(record)] = record
        self.history.extend(change.history)
        self.installations = change.installations or self.installations
        self.cooldowns.update({cooldown.key: cooldown for cooldown in change.cooldowns})
        return None

    def waiting(self) -> list[Delivery]:
        """Return the deliveries that are not applied, in order of arrival."""
        return [d for d in self.inbox.values() if d.key not in self.applied]

    def alive(self, horizon: float) -> set[tuple[str, str]]:
        """What `load` gives: not ended or ended later, and what belongs to a machine it gives.

        Reruns all: a run's budget is counted by those that have ended, too.
        """
        found = {
            key
            for key, record in self.records.items()
            if isinstance(record, Rerun) or not over(record, horizon)
        }
        for kind, name in tuple(found):
            carrier = self.records[kind, name]
            if isinstance(carrier, Machine):
                found |= {("launch_request", carrier.launch_request)} & set(self.records)
                found |= {
                    key
                    for key, r in self.records.items()
                    if isinstance(r, Runner) and r.machine == carrier.id
                }
        known = [self.records[key] for key in found]
        jobs = {("job", str(r.job)) for r in known if isinstance(r, Runner)}
        return found | (jobs & set(self.records))

    def forget(self, before: float) -> int:
        """Drop the records that ended before. Return how many."""
        machines = [r for r in self.records.values() if isinstance(r, Machine)]
        stay = [m for m in machines if not ended_before(m, before)]
        used = {m.launch_request for m in stay}
        carried = {m.id for m in stay}
        gone = {
            key
            for key, r in self.records.items()
            if ended_before(r, before)
            and not (isinstance(r, LaunchRequest) and r.id in used)
            and not (isinstance(r, Runner) and r.machine in carried)
        }
        for key in gone:
            del self.records[key]
        self.history = [row for row in self.history if (row.kind, row.record) not in gone]
        for delivery in tuple(self.inbox.values()):
            if delivery.received_at < before and delivery.key in self.applied:
                del self.inbox[delivery.key]
                self.applied.discard(delivery.key)
        self.cooldowns = {k: c for k, c in self.cooldowns.items() if not c.until < before}
        return len(gone)


def over(record: Record, horizon: float) -> bool:
    end = ended(record)
    return end is not None and end <= horizon


def ended_before(record: Record, before: float) -> bool:
    end = ended(record)
    return end is not None and end < before


class StoreAgainstModel(RuleBasedStateMachine):
    """Random sequences of the controller's calls, with failures and crashes in between."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="store-rules-"))
        self.loop = asyncio.Runner()
        self.model = Model()
        self.lives = 0
        self.store = self.run(SqliteStore.open(self.path))
        self.model.installations = self.run(self.store.load(0.0)).installations

    def run(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        return self.loop.run(work)

    @property
    def path(self) -> Path:
        return self.folder / f"{self.lives}.db"

    @initialize()
    def fresh(self) -> None:
        assert self.run(self.store.load(0.0)).heartbeat is None

    @rule(changes=st.lists(ACCEPTS | COMMITS, min_size=1, max_size=6))
    def at_once(self, changes: list[Accept | Commit]) -> None:
        """Overlapping calls take effect in the order of the calls."""
        wanted = [self.model.do(change) for change in changes]
        assert self.run(self.all_of(changes)) == wanted

    @rule(changes=st.lists(ACCEPTS | COMMITS, min_size=1, max_size=4))
    def refused(self, changes: list[Accept | Commit]) -> None:
        """Make the file read-only for a while: every caller gets the error, and nothing is stored."""
        pragma(self.store, "query_only = 1")
        assert all(isinstance(answer, StoreError) for answer in self.run(self.all_of(changes)))
        pragma(self.store, "query_only = 0")

    @rule(at=TIMES)
    def record_heartbeat(self, at: float) -> None:
        self.run(self.store.record_heartbeat(at))
        self.model.heartbeat = at

    @rule(before=TIMES)
    def forget(self, before: float) -> None:
        assert self.run(self.store.prune(before)) == self.model.forget(before)

    @rule()
    def restart(self) -> None:
        self.run(self.store.close())
        self.store = self.run(SqliteStore.open(self.path))

    @rule()
    def crash(self) -> None:
        """Continue with a copy of the file and its log, as after a crash of the process."""
        left = self.path
        self.lives += 1
        shutil.copy(left, self.path)
        shutil.copy(f"{left}-wal", f"{self.path}-wal")
        self.run(self.store.close())
        self.store = self.run(SqliteStore.open(self.path))

    @invariant()
    def holds_what_the_model_holds(self) -> None:
        horizon = 50.0
        state = self.run(self.store.load(horizon))
        assert list(state.unapplied) == self.model.waiting()
        found: list[Record] = [*state.jobs, *state.launch_requests, *state.machines, *state.runners]
        found += state.reruns
        assert {kind_and_key(record): record for record in found} == {
            key: self.model.records[key] for key in self.model.alive(horizon)
        }
        assert {c.key: c for c in state.cooldowns} == self.model.cooldowns
        assert state.heartbeat == self.model.heartbeat
        assert state.installations == self.model.installations
        for kind, name in self.model.records:
            rows = [r for r in self.model.history if (r.kind, r.record) == (kind, name)]
            assert list(self.run(self.store.history(kind, name))) == rows

    async def all_of(self, changes: list[Accept | Commit]) -> list[object]:
        return await asyncio.gather(*map(self.one, changes), return_exceptions=True)

    async def one(self, change: Accept | Commit) -> bool | None:
        if isinstance(change, Accept):
            return await self.store.accept(change.delivery)
        kept = change.records, change.history, change.applied, change.cooldowns
        await self.store.commit(*kept, installations=change.installations)
        return None

    def teardown(self) -> None:
        self.run(self.store.close())
        self.loop.close()
        shutil.rmtree(self.folder)


TestStoreAgainstModel = StoreAgainstModel.TestCase
TestStoreAgainstModel.settings = settings(
    max_examples=20, stateful_step_count=16, deadline=None, derandomize=True
)
