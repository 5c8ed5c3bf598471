"""The embedded store as the controller uses it, on a real file."""

import asyncio
import dataclasses
import random
import stat
import threading
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from autoscaler.controller.ports.store import (
    Cooldown,
    Delivery,
    HistoryRow,
    Record,
    Store,
    StoreError,
)
from autoscaler.model.identifiers import InstallationId, Installations, JobId
from autoscaler.model.jobs.job import JobState
from autoscaler.model.jobs.runners import RunnerState
from autoscaler.model.machines.failures import FailureClass
from autoscaler.model.machines.interruptions import RerunState
from autoscaler.model.machines.launch_requests import LaunchRequestState
from autoscaler.model.machines.machine import DAY, MachineState
from autoscaler.store import pruning
from autoscaler.store.pruning import LOOK_AT_ONCE, START, Cursor, prune_history
from autoscaler.store.rows import DETAIL_LIMIT
from autoscaler.store.sqlite.store import SqliteStore
from tests.store.records import call, job, machine, rerun, runner


def delivery(name: str, at: float = 100.0) -> Delivery:
    return Delivery(name, "workflow_job", at, b'{"action": "queued", "of": "%b"}' % name.encode())


def row(kind: str, record: str, at: float = 100.0, event: str = "seen") -> HistoryRow:
    return HistoryRow(at, kind, record, event, "why")


async def rows_of_history(store: SqliteStore) -> int:
    ((count,),) = await store._transact(lambda c: c.read("SELECT count(*) FROM history"))
    return int(count)


async def test_the_sqlite_store_implements_the_store_port(store: SqliteStore) -> None:
    port: Store = store
    assert (await port.load(0.0)).jobs == ()


async def test_the_installation_id_is_created_once(path: Path) -> None:
    ids = set()
    for _ in range(2):
        store = await SqliteStore.open(path)
        ids.add((await store.load(0.0)).installations)
        ids.add((await store.load(0.0)).installations)
        await store.close()
    (installations,) = ids
    assert len(installations.own) == 8
    assert set(installations.own) <= set("0123456789abcdef")


@pytest.mark.case(
    "a redelivery keeps its `X-GitHub-Delivery`",
    topic="GitHub's events",
    source="GitHub: redelivering",
)
async def test_a_delivery_is_stored_once_and_loaded_until_it_is_applied(
    store: SqliteStore,
) -> None:
    assert await store.accept(delivery("b", 200.0))
    assert await store.accept(delivery("a", 100.0))
    assert not await store.accept(delivery("b", 300.0))
    assert (await store.load(0.0)).unapplied == (delivery("b", 200.0), delivery("a", 100.0))
    await store.commit([], [], applied=[delivery("b").key])
    assert (await store.load(0.0)).unapplied == (delivery("a", 100.0),)
    assert not await store.accept(delivery("b"))


async def test_another_body_under_a_known_id_is_another_delivery(store: SqliteStore) -> None:
    """GitHub signs only the body: an attacker could send an old body with a future id."""
    captured = Delivery("a", "workflow_job", 100.0, b'{"action": "completed"}')
    assert await store.accept(captured)
    assert await store.accept(delivery("a"))
    assert (await store.load(0.0)).unapplied == (captured, delivery("a"))
    # Each is marked separately: an unapplied delivery must be loaded after a crash.
    await store.commit([], [], applied=[captured.key])
    assert (await store.load(0.0)).unapplied == (delivery("a"),)
    assert not await store.accept(captured)


@pytest.mark.case(
    "a captured delivery is sent again under any number of new ids",
    topic="Hostile input",
    source="GitHub: using webhooks",
)
async def test_a_body_under_another_id_is_the_same_delivery(store: SqliteStore) -> None:
    """An attacker can send a captured delivery with many ids, because the signature does not cover the id."""
    assert await store.accept(delivery("a"))
    for number in range(20):
        assert not await store.accept(replace(delivery("a"), id=f"replay-{number}"))
    answers = [store.accept(replace(delivery("b"), id=f"new-{n}")) for n in range(20)]
    assert await asyncio.gather(*answers) == [True] + [False] * 19
    assert [d.id for d in (await store.load(0.0)).unapplied] == ["a", "new-0"]


def size_of(path: Path) -> int:
    return path.stat().st_size


async def test_the_file_shrinks_after_pruning(path: Path) -> None:
    store = await SqliteStore.open(path)
    noise = random.Random(1)
    kept = [Delivery(str(n), "workflow_job", 100.0, noise.randbytes(20_000)) for n in range(400)]
    await asyncio.gather(*(store.accept(one) for one in kept))
    await store.commit([], [], applied=[one.key for one in kept[1:]])
    await store.prune(200.0)
    await store.close()
    assert size_of(path) < 400_000
    store = await SqliteStore.open(path)
    assert (await store.load(0.0)).unapplied == (kept[0],)
    await store.close()


async def test_two_bodies_under_one_id_at_once_are_two_deliveries(store: SqliteStore) -> None:
    other = Delivery("a", "workflow_job", 100.0, b"{}")
    given = delivery("a"), other, delivery("a")
    answers = await asyncio.gather(*(store.accept(one) for one in given))
    assert answers == [True, True, False]


async def test_deliveries_at_once_are_answered_each_for_itself(store: SqliteStore) -> None:
    names = ["a", "b", "a", "c", "b", "a"]
    answers = await asyncio.gather(*(store.accept(delivery(name)) for name in names))
    assert answers == [True, True, False, True, False, False]
    assert [d.id for d in (await store.load(0.0)).unapplied] == ["a", "b", "c"]


async def test_a_delivery_applied_in_the_batch_that_brings_it_is_applied(
    store: SqliteStore,
) -> None:
    # Both are queued before the writer begins, so that it writes them together.
    arrived = store.accept(delivery("a"))
    await store.commit([], [], applied=[delivery("a").key])
    assert await arrived
    assert (await store.load(0.0)).unapplied == ()


async def test_records_history_and_cooldowns_come_back(path: Path) -> None:
    store = await SqliteStore.open(path)
    records: list[Record] = [job(7), call("c0"), machine("m0"), runner("r0")]
    held = Cooldown("offering:x", 500.0, 2, "none", FailureClass.CAPACITY, error="NoCapacity")
    await store.commit(records, [row("job", "7"), row("job", "7", event="queued")], (), [held])
    await store.record_heartbeat(100.0, 99.5)
    await store.record_heartbeat(123.5)
    await store.close()
    again = await SqliteStore.open(path)
    state = await again.load(0.0)
    assert [*state.jobs, *state.launch_requests, *state.machines, *state.runners] == records
    assert state.cooldowns == (held,)
    assert (state.heartbeat, state.arrived_until) == (123.5, 99.5)
    assert [r.event for r in await again.history("job", "7")] == ["seen", "queued"]
    assert await again.history("job", "8") == ()
    await again.close()


async def test_the_last_write_of_a_record_counts_also_within_a_batch(store: SqliteStore) -> None:
    first, last = job(1), dataclasses.replace(job(1), state=JobState.IN_PROGRESS)
    await asyncio.gather(
        store.record_heartbeat(1.0),
        store.commit([first], [row("job", "1", event="queued")]),
        store.commit([last], [row("job", "1", event="in_progress")]),
    )
    assert (await store.load(0.0)).jobs == (last,)
    assert [r.event for r in await store.history("job", "1")] == ["queued", "in_progress"]


async def test_load_leaves_out_what_ended_before_the_horizon(each_store: Store) -> None:
    await each_store.commit(
        [
            job(1),
            job(2, JobState.COMPLETED, 50.0),
            job(3, JobState.COMPLETED, 150.0),
            call("old", LaunchRequestState.SETTLED, 50.0),
            call("new", LaunchRequestState.SETTLED, 150.0),
            call("open", LaunchRequestState.UNKNOWN, 50.0),
            machine("m1", MachineState.TERMINATED, 50.0),
            machine("m2", MachineState.LOST, 150.0),
            machine("m3", MachineState.FAILED, 50.0),
            machine("m4", MachineState.FAILED, 50.0, provider_id="i-1"),
            machine("m5", MachineState.TERMINATING, 50.0),
            runner("r1", RunnerState.DONE, 50.0, on="m1"),
            runner("r2", RunnerState.DONE, 150.0, on="m1"),
        ],
        [],
    )
    state = await each_store.load(100.0)
    assert [j.id for j in state.jobs] == [1, 3]
    assert [c.id for c in state.launch_requests] == ["new", "open"]
    assert [m.id for m in state.machines] == ["m2", "m4", "m5"]
    assert [r.name for r in state.runners] == ["r2"]


async def test_the_launch_request_and_runners_of_a_machine_are_kept_with_it(
    store: SqliteStore,
) -> None:
    await store.commit(
        [
            call("c", LaunchRequestState.SETTLED, 10.0),
            machine("m", MachineState.ASSIGNED, 10.0, of="c"),
            runner("r", RunnerState.DONE, 10.0, on="m"),
        ],
        [],
    )
    assert await store.prune(1000.0) == 0
    state = await store.load(1000.0)
    assert [c.id for c in state.launch_requests] == ["c"]
    assert [r.name for r in state.runners] == ["r"]
    await store.commit([machine("m", MachineState.TERMINATED, 20.0, of="c")], [])
    assert await store.prune(1000.0) == 3


@pytest.mark.case(
    "the controller restarts after a machine was taken from its job, and the provider reports that only then",
    topic="EC2's machines",
    source="Kubernetes: Pod Lifecycle",
)
async def test_the_job_of_a_machine_is_loaded_however_long_ago_it_ended(
    each_store: Store,
) -> None:
    numbers = range(1, 503)
    *existing, last = numbers
    await each_store.commit([machine(f"m{n}", MachineState.ASSIGNED, 10.0) for n in existing], [])
    await each_store.commit([machine(f"m{last}", MachineState.TERMINATED, 50.0)], [])
    await each_store.commit(
        [runner(f"r{n}", RunnerState.DONE, 50.0, f"m{n}", n) for n in numbers], []
    )
    await each_store.commit([job(n, JobState.COMPLETED, 50.0) for n in (0, *numbers)], [])
    assert [one.id for one in (await each_store.load(100.0)).jobs] == existing


@pytest.mark.case(
    "a machine is taken while its job's webhooks are lost and GitHub's answers are wrong: GitHub "
    "names the job hours later, and it is re-run",
    topic="EC2's machines",
    source="actions/runner#3539",
)
async def test_an_interrupted_machine_is_loaded_for_a_day(
    store: SqliteStore,
) -> None:
    """GitHub may name its job only then, and a restarted controller must know the machine."""
    taken = machine("m", MachineState.TERMINATED, 10.0, of="c")
    taken.interruption.taken_at = 10.0
    await store.commit(
        [
            call("c", LaunchRequestState.SETTLED, 10.0),
            taken,
            runner("r", RunnerState.DONE, 10.0, on="m"),
        ],
        [],
    )
    horizon = 10.0 + DAY
    assert await store.prune(horizon) == 0
    state = await store.load(horizon - 1.0)
    assert [c.id for c in state.launch_requests] == ["c"]
    assert [m.id for m in state.machines] == ["m"]
    assert [r.name for r in state.runners] == ["r"]
    assert (await store.load(horizon)).machines == ()


async def test_a_job_that_left_memory_is_found_until_it_is_pruned(store: SqliteStore) -> None:
    ended = job(5, JobState.COMPLETED, 50.0)
    await store.commit([ended], [])
    assert await store.find_job(JobId(5)) == ended
    assert await store.find_job(JobId(6)) is None
    await store.prune(60.0)
    assert await store.find_job(JobId(5)) is None


async def test_the_history_of_faults_outlives_that_of_records(store: SqliteStore) -> None:
    rows = [row("fault", "all", at) for at in (10.0, 30.0, 50.0)]
    await store.commit([], [*rows, row("job", "99", 30.0)])
    await store.prune(60.0, faults_before=30.0)
    assert [one.at for one in await store.history("fault", "all")] == [30.0, 50.0]
    assert await store.history("job", "99") == ()
    await store.prune(60.0)
    assert await store.history("fault", "all") == ()


async def test_prune_removes_history_with_its_records_and_keeps_active_records(
    store: SqliteStore,
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
    store: SqliteStore,
) -> None:
    rows = [row("job", "1", 90.0), row("machine", "1", 90.0)]
    await store.commit([job(1, JobState.COMPLETED, 50.0), machine("1")], rows)
    assert await store.prune(60.0) == 1
    assert await store.history("job", "1") == ()
    assert len(await store.history("machine", "1")) == 1


async def test_prune_keeps_records_that_ended_at_the_exact_time(store: SqliteStore) -> None:
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


async def test_prune_removes_reruns_that_ended_long_ago(store: SqliteStore) -> None:
    old, young = (rerun(number, RerunState.ENDED, at) for number, at in ((1, 50.0), (2, 90.0)))
    await store.commit([old, young, rerun(3, at=50.0)], [])
    assert await store.prune(60.0) == 1
    assert [one.job for one in (await store.load(0.0)).reruns] == [2, 3]


async def test_prune_comes_to_an_end_with_many_rows_of_one_moment(store: SqliteStore) -> None:
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


async def test_prune_continues_behind_the_last_row_that_it_read(store: SqliteStore) -> None:
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
    store: SqliteStore, record: Record, kind: str, name: str
) -> None:
    await store.commit([record], [row(kind, name, 10.0), row(kind, f"{name}0", 10.0)])
    assert await store.prune(60.0) == 0
    assert len(await store.history(kind, name)) == 1
    assert await store.history(kind, f"{name}0") == ()


async def test_the_history_of_a_rerun_is_removed_with_it(store: SqliteStore) -> None:
    await store.commit([rerun(1, RerunState.ENDED, 50.0)], [row("rerun", "1", 90.0)])
    assert await store.prune(60.0) == 1
    assert await store.history("rerun", "1") == ()


async def test_the_history_of_a_runner_is_removed_with_it(store: SqliteStore) -> None:
    await store.commit([runner("r", RunnerState.DONE, 50.0)], [row("runner", "r", 90.0)])
    assert await store.prune(60.0) == 1
    assert await store.history("runner", "r") == ()


@pytest.mark.parametrize("name", ["", "one", "\u0661", "\u00b2", "9" * 19, "-1", "1.5"])
async def test_prune_removes_history_with_an_invalid_job_id(store: SqliteStore, name: str) -> None:
    await store.commit([job(1)], [row("job", name, 10.0), row("job", "1", 10.0)])
    await store.prune(60.0)
    assert await store.history("job", name) == ()
    assert len(await store.history("job", "1")) == 1


async def test_prune_never_removes_a_delivery_that_was_not_applied(store: SqliteStore) -> None:
    for name, at in (("old", 10.0), ("waiting", 10.0), ("new", 90.0)):
        await store.accept(delivery(name, at))
    await store.commit([], [], applied=[delivery("old").key, delivery("new").key])
    await store.prune(60.0)
    assert await store.accept(delivery("old"))
    assert not await store.accept(delivery("waiting"))
    assert not await store.accept(delivery("new"))


async def test_prune_removes_more_rows_than_one_transaction_has(store: SqliteStore) -> None:
    ended = [job(number, JobState.COMPLETED, 50.0) for number in range(1200)]
    await store.commit(ended, [row("job", str(number)) for number in range(1200)])
    assert await store.prune(60.0) == 1200
    assert (await store.load(0.0)).jobs == ()


async def test_history_gives_the_newest_rows_oldest_first(store: SqliteStore) -> None:
    rows = [row("job", "1", at=float(at)) for at in range(10)]
    await store.commit([], rows)
    assert await store.history("job", "1", limit=3) == tuple(rows[-3:])


async def test_history_keeps_text_that_databases_refuse(store: SqliteStore) -> None:
    strange = HistoryRow(1.0, "job", "1", "said", "a\0b\ud800c" + "x" * 10_000)
    await store.commit([], [strange])
    (kept,) = await store.history("job", "1")
    assert kept.detail.startswith("a\\x00b\\ud800cxxx")
    assert len(kept.detail) == DETAIL_LIMIT


async def test_a_value_that_cannot_be_stored_fails_its_own_caller_only(store: SqliteStore) -> None:
    nowhere = float("nan")
    answers = await asyncio.gather(
        store.accept(delivery("good")),
        store.accept(replace(delivery("bad"), id="bad\ud800")),
        store.accept(delivery("never", nowhere)),
        store.commit([job(2**63)], []),
        store.commit([job(1)], []),
        store.commit([], [row("job", "1", nowhere)]),
        store.commit([], [], (), [Cooldown("k", nowhere, 1, "")]),
        store.record_heartbeat(nowhere),
        return_exceptions=True,
    )
    good = [not isinstance(answer, StoreError) for answer in answers]
    assert good == [True, False, False, False, True, False, False, False]
    state = await store.load(0.0)
    assert [d.id for d in state.unapplied] == ["good"]
    assert [j.id for j in state.jobs] == [1]


async def test_the_rows_of_a_commit_are_encoded_in_the_stores_thread(store: SqliteStore) -> None:
    """Encoding takes 30 us a machine: a thousand would block the event loop."""
    go_on = threading.Event()
    held = store._thread.submit(go_on.wait)
    refused = asyncio.create_task(store.commit([job(2**63)], []))
    for _ in range(5):
        await asyncio.sleep(0)
    made_by_the_loop = refused.done()
    go_on.set()
    assert not made_by_the_loop
    with pytest.raises(StoreError, match="job id is not a 64-bit number"):
        await refused
    assert held.result()


async def test_concurrent_store_calls_run_one_after_the_other(store: SqliteStore) -> None:
    """One thread uses the file: a second one would begin a transaction within a transaction."""
    await store.commit([job(1)], [])
    many = 8
    found = await asyncio.gather(
        *(store.load(0.0) for _ in range(many)),
        *(store.find_job(JobId(1)) for _ in range(many)),
        *(store.accept(delivery(str(n))) for n in range(many)),
    )
    assert found[many : 2 * many] == [job(1)] * many
    assert found[2 * many :] == [True] * many


async def test_a_cancelled_caller_does_not_affect_the_others(
    store: SqliteStore,
) -> None:
    tasks = [asyncio.ensure_future(store.accept(delivery(str(n)))) for n in range(20)]
    await asyncio.sleep(0)
    for task in tasks[::2]:
        task.cancel()
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    assert answers[1::2] == [True] * 10
    assert all(isinstance(answer, asyncio.CancelledError) for answer in answers[::2])
    assert await store.accept(delivery("later"))


async def test_close_finishes_running_calls_and_refuses_later_ones(path: Path) -> None:
    store = await SqliteStore.open(path)
    tasks = [asyncio.ensure_future(store.accept(delivery(str(n)))) for n in range(5)]
    await asyncio.sleep(0)
    await asyncio.gather(store.close(), store.close())
    assert [task.result() for task in tasks] == [True] * 5
    await store.close()
    with pytest.raises(StoreError, match="closed"):
        await store.accept(delivery("x"))
    with pytest.raises(StoreError, match="closed"):
        await store.load(0.0)


async def test_only_the_owner_can_read_the_store_and_its_log_files(path: Path) -> None:
    _left_readable(path)
    store = await SqliteStore.open(path)
    await store.accept(delivery("a"))
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
    await store.close()
    assert set(modes) == {"state.db", "state.db-wal", "state.db-shm", "state.db.lock"}
    assert set(modes.values()) == {0o600}


def _left_readable(path: Path) -> None:
    path.touch(0o644)


@pytest.mark.case(
    "the store's companion files are readable for others",
    topic="Hostile input",
    source="SQLite: WAL",
)
async def test_a_store_file_readable_by_others_is_restricted_to_its_owner(
    path: Path,
) -> None:
    store = await SqliteStore.open(path)
    await store.accept(delivery("a"))
    left = [path.with_name(path.name + suffix) for suffix in ("", "-wal", "-shm", ".lock")]
    copies = [file.read_bytes() for file in left]
    await store.close()
    for file, content in zip(left, copies, strict=True):
        file.write_bytes(content)
        file.chmod(0o666)
    again = await SqliteStore.open(path)
    await again.accept(delivery("b"))
    assert {file.name: stat.S_IMODE(file.stat().st_mode) for file in left} == {
        file.name: 0o600 for file in left
    }
    assert [d.id for d in (await again.load(0.0)).unapplied] == ["a", "b"]
    await again.close()


async def test_every_commit_is_synced(store: SqliteStore) -> None:
    async def pragma(name: str) -> object:
        return await store._transact(lambda c: c.read(f"PRAGMA {name}")[0][0])

    assert (await pragma("journal_mode"), await pragma("synchronous")) == ("wal", 2)


@pytest.mark.case(
    "an adoption gives up an installation's id: resources with that id are still found and deleted",
    topic="EC2's machines",
    source="ARC#4397",
)
async def test_an_adopted_installation_id_survives_a_restart(path: Path) -> None:
    store = await SqliteStore.open(path)
    (made,) = (await store.load(0.0)).installations.all
    old = InstallationId("01d01d01")
    history = [HistoryRow(1.0, "installation", old, "adopted", f"was {made}")]
    ids = Installations(old, (made,))
    await asyncio.gather(
        store.commit([], history, installations=ids), store.commit([machine("m-1")], [])
    )
    await store.close()
    store = await SqliteStore.open(path)
    assert (await store.load(0.0)).installations == ids
    assert [one.detail for one in await store.history("installation", old)] == [f"was {made}"]
    await store.close()


async def test_the_last_of_two_adoptions_in_one_write_stores_all_ids(store: SqliteStore) -> None:
    assert (await store.load(0.0)).installations.former == ()
    first, second, made = (InstallationId(one) for one in ("01d01d01", "2bad2bad", "0badcafe"))
    once, twice = Installations(first, (made,)), Installations(second, (first, made))
    await asyncio.gather(
        store.commit([], [], installations=once),
        store.commit([], [], installations=twice),
        store.commit([machine("m-1")], []),
    )
    assert (await store.load(0.0)).installations == twice


async def test_each_transaction_of_prune_reads_and_removes_only_a_few_rows(
    store: SqliteStore,
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


async def test_prune_deletes_a_few_records_in_each_transaction(store: SqliteStore) -> None:
    ended = [job(number, JobState.COMPLETED, 50.0) for number in range(1000)]
    await store.commit([*ended, machine("m", MachineState.TERMINATED, 50.0)], [])
    gone = []
    while some := await store._transact(partial(pruning.prune_records, before=60.0)):
        gone.append(some)
    assert sum(gone) == 1001
    assert max(gone) == pruning.PRUNE_AT_ONCE == 100
