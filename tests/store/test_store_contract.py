"""What every store in a database does for the controller, on a SQLite file and on a PostgreSQL server."""

import asyncio
import dataclasses
import threading
from collections.abc import AsyncIterator
from dataclasses import replace

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
from autoscaler.model.machines.launch_requests import LaunchRequestState
from autoscaler.model.machines.machine import DAY, MachineState
from autoscaler.store.rows import DETAIL_LIMIT
from tests.store.opened import OpenedStore, Opener
from tests.store.records import call, delivery, job, machine, row, runner


@pytest.fixture
async def store(opener: Opener) -> AsyncIterator[OpenedStore]:
    opened = await opener()
    yield opened
    await opened.close()


async def test_the_sqlite_store_implements_the_store_port(store: OpenedStore) -> None:
    port: Store = store
    assert (await port.load(0.0)).jobs == ()


async def test_the_installation_id_is_created_once(opener: Opener) -> None:
    ids = set()
    for _ in range(2):
        store = await opener()
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
    store: OpenedStore,
) -> None:
    assert await store.accept(delivery("b", 200.0))
    assert await store.accept(delivery("a", 100.0))
    assert not await store.accept(delivery("b", 300.0))
    assert (await store.load(0.0)).unapplied == (delivery("b", 200.0), delivery("a", 100.0))
    await store.commit([], [], applied=[delivery("b").key])
    assert (await store.load(0.0)).unapplied == (delivery("a", 100.0),)
    assert not await store.accept(delivery("b"))


async def test_another_body_under_a_known_id_is_another_delivery(store: OpenedStore) -> None:
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
async def test_a_body_under_another_id_is_the_same_delivery(store: OpenedStore) -> None:
    """An attacker can send a captured delivery with many ids, because the signature does not cover the id."""
    assert await store.accept(delivery("a"))
    for number in range(20):
        assert not await store.accept(replace(delivery("a"), id=f"replay-{number}"))
    answers = [store.accept(replace(delivery("b"), id=f"new-{n}")) for n in range(20)]
    assert await asyncio.gather(*answers) == [True] + [False] * 19
    assert [d.id for d in (await store.load(0.0)).unapplied] == ["a", "new-0"]


async def test_two_bodies_under_one_id_at_once_are_two_deliveries(store: OpenedStore) -> None:
    other = Delivery("a", "workflow_job", 100.0, b"{}")
    given = delivery("a"), other, delivery("a")
    answers = await asyncio.gather(*(store.accept(one) for one in given))
    assert answers == [True, True, False]


async def test_deliveries_at_once_are_answered_each_for_itself(store: OpenedStore) -> None:
    names = ["a", "b", "a", "c", "b", "a"]
    answers = await asyncio.gather(*(store.accept(delivery(name)) for name in names))
    assert answers == [True, True, False, True, False, False]
    assert [d.id for d in (await store.load(0.0)).unapplied] == ["a", "b", "c"]


async def test_a_delivery_applied_in_the_batch_that_brings_it_is_applied(
    store: OpenedStore,
) -> None:
    # Both are queued before the writer begins, so that it writes them together.
    arrived = store.accept(delivery("a"))
    await store.commit([], [], applied=[delivery("a").key])
    assert await arrived
    assert (await store.load(0.0)).unapplied == ()


async def test_records_history_and_cooldowns_come_back(opener: Opener) -> None:
    store = await opener()
    records: list[Record] = [job(7), call("c0"), machine("m0"), runner("r0")]
    held = Cooldown("offering:x", 500.0, 2, "none", FailureClass.CAPACITY, error="NoCapacity")
    await store.commit(records, [row("job", "7"), row("job", "7", event="queued")], (), [held])
    await store.record_heartbeat(100.0, 99.5)
    await store.record_heartbeat(123.5)
    await store.close()
    again = await opener()
    state = await again.load(0.0)
    assert [*state.jobs, *state.launch_requests, *state.machines, *state.runners] == records
    assert state.cooldowns == (held,)
    assert (state.heartbeat, state.arrived_until) == (123.5, 99.5)
    assert [r.event for r in await again.history("job", "7")] == ["seen", "queued"]
    assert await again.history("job", "8") == ()
    await again.close()


async def test_the_last_write_of_a_record_counts_also_within_a_batch(store: OpenedStore) -> None:
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
    store: OpenedStore,
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
    store: OpenedStore,
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


async def test_history_gives_the_newest_rows_oldest_first(store: OpenedStore) -> None:
    rows = [row("job", "1", at=float(at)) for at in range(10)]
    await store.commit([], rows)
    assert await store.history("job", "1", limit=3) == tuple(rows[-3:])


async def test_history_keeps_text_that_databases_refuse(store: OpenedStore) -> None:
    strange = HistoryRow(1.0, "job", "1", "said", "a\0b\ud800c" + "x" * 10_000)
    await store.commit([], [strange])
    (kept,) = await store.history("job", "1")
    assert kept.detail.startswith("a\\x00b\\ud800cxxx")
    assert len(kept.detail) == DETAIL_LIMIT


async def test_a_value_that_cannot_be_stored_fails_its_own_caller_only(
    store: OpenedStore,
) -> None:
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


async def test_the_rows_of_a_commit_are_encoded_in_the_stores_thread(store: OpenedStore) -> None:
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


async def test_concurrent_store_calls_run_one_after_the_other(store: OpenedStore) -> None:
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
    store: OpenedStore,
) -> None:
    tasks = [asyncio.ensure_future(store.accept(delivery(str(n)))) for n in range(20)]
    await asyncio.sleep(0)
    for task in tasks[::2]:
        task.cancel()
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    assert answers[1::2] == [True] * 10
    assert all(isinstance(answer, asyncio.CancelledError) for answer in answers[::2])
    assert await store.accept(delivery("later"))


async def test_close_finishes_running_calls_and_refuses_later_ones(opener: Opener) -> None:
    store = await opener()
    tasks = [asyncio.ensure_future(store.accept(delivery(str(n)))) for n in range(5)]
    await asyncio.sleep(0)
    await asyncio.gather(store.close(), store.close())
    assert [task.result() for task in tasks] == [True] * 5
    await store.close()
    with pytest.raises(StoreError, match="closed"):
        await store.accept(delivery("x"))
    with pytest.raises(StoreError, match="closed"):
        await store.load(0.0)


@pytest.mark.case(
    "an adoption gives up an installation's id: resources with that id are still found and deleted",
    topic="EC2's machines",
    source="ARC#4397",
)
async def test_an_adopted_installation_id_survives_a_restart(opener: Opener) -> None:
    store = await opener()
    (made,) = (await store.load(0.0)).installations.all
    old = InstallationId("01d01d01")
    history = [HistoryRow(1.0, "installation", old, "adopted", f"was {made}")]
    ids = Installations(old, (made,))
    await asyncio.gather(
        store.commit([], history, installations=ids), store.commit([machine("m-1")], [])
    )
    await store.close()
    store = await opener()
    assert (await store.load(0.0)).installations == ids
    assert [one.detail for one in await store.history("installation", old)] == [f"was {made}"]
    await store.close()


async def test_the_last_of_two_adoptions_in_one_write_stores_all_ids(store: OpenedStore) -> None:
    assert (await store.load(0.0)).installations.former == ()
    first, second, made = (InstallationId(one) for one in ("01d01d01", "2bad2bad", "0badcafe"))
    once, twice = Installations(first, (made,)), Installations(second, (first, made))
    await asyncio.gather(
        store.commit([], [], installations=once),
        store.commit([], [], installations=twice),
        store.commit([machine("m-1")], []),
    )
    assert (await store.load(0.0)).installations == twice
