"""How old rows are deleted, on a SQLite file and on a PostgreSQL server."""

from collections.abc import AsyncIterator
from functools import partial

import pytest

from autoscaler.controller.ports.store import (
    Cooldown,
    Record,
)
from autoscaler.model.identifiers import JobId
from autoscaler.model.jobs.job import JobState
from autoscaler.model.jobs.runners import RunnerState
from autoscaler.model.machines.interruptions import RerunState
from autoscaler.model.machines.launch_requests import LaunchRequestState
from autoscaler.model.machines.machine import MachineState
from autoscaler.store import pruning
from autoscaler.store.pruning import LOOK_AT_ONCE, START, Cursor, prune_history
from tests.store.opened import OpenedStore, Opener
from tests.store.records import call, delivery, job, machine, rerun, row, runner


@pytest.fixture
async def store(opener: Opener) -> AsyncIterator[OpenedStore]:
    opened = await opener()
    yield opened
    await opened.close()


async def rows_of_history(store: OpenedStore) -> int:
    ((count,),) = await store._transact(lambda c: c.read("SELECT count(*) FROM history"))
    return int(count)


async def test_a_job_that_left_memory_is_found_until_it_is_pruned(store: OpenedStore) -> None:
    ended = job(5, JobState.COMPLETED, 50.0)
    await store.commit([ended], [])
    assert await store.find_job(JobId(5)) == ended
    assert await store.find_job(JobId(6)) is None
    await store.prune(60.0)
    assert await store.find_job(JobId(5)) is None


async def test_the_history_of_faults_outlives_that_of_records(store: OpenedStore) -> None:
    rows = [row("fault", "all", at) for at in (10.0, 30.0, 50.0)]
    await store.commit([], [*rows, row("job", "99", 30.0)])
    await store.prune(60.0, faults_before=30.0)
    assert [one.at for one in await store.history("fault", "all")] == [30.0, 50.0]
    assert await store.history("job", "99") == ()
    await store.prune(60.0)
    assert await store.history("fault", "all") == ()


async def test_prune_removes_history_with_its_records_and_keeps_active_records(
    store: OpenedStore,
) -> None:
    await store.commit(
        [job(1, JobState.COMPLETED, 50.0), job(2), machine("m", MachineState.TERMINATED, 50.0)],
        [
            row("job", "1", 10.0),
            row("job", "2", 10.0),
            row("machine", "m", 10.0),
            row("machine", "1", 10.0),
            row("job", "99", 10.0),
            row("job", "98", 90.0),
        ],
        (),
        [Cooldown("over", 20.0, 1, ""), Cooldown("held", 90.0, 1, "")],
    )
    assert await store.prune(60.0) == 2
    kept = [len(await store.history("job", record)) for record in ("1", "2", "99", "98")]
    assert kept == [0, 1, 0, 1]
    assert await store.history("machine", "m") == ()
    assert await store.history("machine", "1") == ()
    assert [c.key for c in (await store.load(0.0)).cooldowns] == ["held"]


async def test_prune_keeps_the_history_of_a_record_of_another_kind_with_the_same_name(
    store: OpenedStore,
) -> None:
    rows = [row("job", "1", 90.0), row("machine", "1", 90.0)]
    await store.commit([job(1, JobState.COMPLETED, 50.0), machine("1")], rows)
    assert await store.prune(60.0) == 1
    assert await store.history("job", "1") == ()
    assert len(await store.history("machine", "1")) == 1


async def test_prune_keeps_records_that_ended_at_the_exact_time(store: OpenedStore) -> None:
    await store.commit(
        [
            job(1, JobState.COMPLETED, 60.0),
            call("c", LaunchRequestState.SETTLED, 60.0),
            machine("m", MachineState.TERMINATED, 60.0),
            runner("r", RunnerState.DONE, 60.0, on="other"),
            rerun(1, RerunState.ENDED, 60.0),
        ],
        [],
    )
    assert await store.prune(60.0) == 0
    assert await store.prune(60.5) == 5


async def test_prune_removes_reruns_that_ended_long_ago(store: OpenedStore) -> None:
    old, young = (rerun(number, RerunState.ENDED, at) for number, at in ((1, 50.0), (2, 90.0)))
    await store.commit([old, young, rerun(3, at=50.0)], [])
    assert await store.prune(60.0) == 1
    assert [one.job for one in (await store.load(0.0)).reruns] == [2, 3]


async def test_prune_comes_to_an_end_with_many_rows_of_one_moment(store: OpenedStore) -> None:
    """A burst of jobs, each of which the store keeps, has history rows of one moment."""
    living = [job(number) for number in range(100)]
    rows = [row("job", str(number % 100), 10.0) for number in range(3 * LOOK_AT_ONCE)]
    await store.commit(living, rows)
    after: Cursor | None = START
    for _ in range(4):
        assert after is not None
        after = await store._transact(
            partial(prune_history, before=60.0, after=after, faults_before=60.0)
        )
    assert after is None
    assert await rows_of_history(store) == len(rows)


async def test_prune_continues_behind_the_last_row_that_it_read(store: OpenedStore) -> None:
    rows = [row("job", "1", float(number)) for number in range(LOOK_AT_ONCE + 1)]
    await store.commit([job(1)], rows)
    after = await store._transact(
        partial(prune_history, before=1e6, after=START, faults_before=1e6)
    )
    assert after == (rows[-2].at, LOOK_AT_ONCE)


@pytest.mark.parametrize(
    ("record", "kind", "name"),
    [
        (job(1, JobState.COMPLETED, 60.0), "job", "1"),
        (call("c", LaunchRequestState.SETTLED, 60.0), "launch_request", "c"),
        (machine("m", MachineState.TERMINATED, 60.0), "machine", "m"),
        (runner("r", RunnerState.DONE, 60.0), "runner", "r"),
        (rerun(1, RerunState.WAITING), "rerun", "1"),
        (rerun(1, RerunState.DUE), "rerun", "1"),
        (rerun(1, RerunState.ENDED, 60.0), "rerun", "1"),
    ],
)
async def test_the_old_history_of_a_record_stays_until_the_record_is_removed(
    store: OpenedStore, record: Record, kind: str, name: str
) -> None:
    await store.commit([record], [row(kind, name, 10.0), row(kind, f"{name}0", 10.0)])
    assert await store.prune(60.0) == 0
    assert len(await store.history(kind, name)) == 1
    assert await store.history(kind, f"{name}0") == ()


async def test_the_history_of_a_rerun_is_removed_with_it(store: OpenedStore) -> None:
    await store.commit([rerun(1, RerunState.ENDED, 50.0)], [row("rerun", "1", 90.0)])
    assert await store.prune(60.0) == 1
    assert await store.history("rerun", "1") == ()


async def test_the_history_of_a_runner_is_removed_with_it(store: OpenedStore) -> None:
    await store.commit([runner("r", RunnerState.DONE, 50.0)], [row("runner", "r", 90.0)])
    assert await store.prune(60.0) == 1
    assert await store.history("runner", "r") == ()


@pytest.mark.parametrize("name", ["", "one", "\u0661", "\u00b2", "9" * 19, "-1", "1.5"])
async def test_prune_removes_history_with_an_invalid_job_id(store: OpenedStore, name: str) -> None:
    await store.commit([job(1)], [row("job", name, 10.0), row("job", "1", 10.0)])
    await store.prune(60.0)
    assert await store.history("job", name) == ()
    assert len(await store.history("job", "1")) == 1


async def test_prune_never_removes_a_delivery_that_was_not_applied(store: OpenedStore) -> None:
    for name, at in (("old", 10.0), ("waiting", 10.0), ("new", 90.0)):
        await store.accept(delivery(name, at))
    await store.commit([], [], applied=[delivery("old").key, delivery("new").key])
    await store.prune(60.0)
    assert await store.accept(delivery("old"))
    assert not await store.accept(delivery("waiting"))
    assert not await store.accept(delivery("new"))


async def test_prune_removes_more_rows_than_one_transaction_has(store: OpenedStore) -> None:
    ended = [job(number, JobState.COMPLETED, 50.0) for number in range(1200)]
    await store.commit(ended, [row("job", str(number)) for number in range(1200)])
    assert await store.prune(60.0) == 1200
    assert (await store.load(0.0)).jobs == ()


async def test_each_transaction_of_prune_reads_and_removes_only_a_few_rows(
    store: OpenedStore,
) -> None:
    """Deliveries wait for each transaction: a large one delayed them by up to 592 ms."""
    many = 5 * LOOK_AT_ONCE
    living = [job(number) for number in range(100)]
    rows = [row("job", str(number % 200), float(number % 7)) for number in range(many)]
    await store.commit(living, rows)
    rows_before = await rows_of_history(store)
    after: Cursor | None = START
    pieces = 0
    while after is not None:
        before = await rows_of_history(store)
        after = await store._transact(
            partial(prune_history, before=60.0, after=after, faults_before=60.0)
        )
        pieces += 1
        assert before - await rows_of_history(store) <= LOOK_AT_ONCE
    assert pieces > 5
    assert await rows_of_history(store) == sum(int(one.record) < 100 for one in rows) < rows_before
    assert await store.history("job", "7") != ()
    assert await store.history("job", "107") == ()


async def test_prune_deletes_a_few_records_in_each_transaction(store: OpenedStore) -> None:
    ended = [job(number, JobState.COMPLETED, 50.0) for number in range(1000)]
    await store.commit([*ended, machine("m", MachineState.TERMINATED, 50.0)], [])
    gone = []
    while some := await store._transact(partial(pruning.prune_records, before=60.0)):
        gone.append(some)
    assert sum(gone) == 1001
    assert max(gone) == pruning.PRUNE_AT_ONCE == 100
