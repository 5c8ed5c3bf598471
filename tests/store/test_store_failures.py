"""The store if the disk is full, the file is unusable, or another process uses it."""

import asyncio
import json
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from autoscaler.controller.ports.store import Delivery, HistoryRow, StoreError
from autoscaler.store.batch import Change, Heartbeat
from autoscaler.store.group_commit import GroupCommit
from autoscaler.store.loading import decoded, read
from autoscaler.store.rows import Arrival, arrival
from autoscaler.store.sqlite.file import SqliteFile
from autoscaler.store.sqlite.store import SqliteStore
from tests.store.records import job

ROOT = Path(__file__).parents[2]


def delivery(name: str, body: bytes = b"{}") -> Delivery:
    return Delivery(name, "workflow_job", 100.0, body)


def pragma(store: SqliteStore, setting: str) -> None:
    """Cause a real SQLite error on the store's connection."""
    assert isinstance(store._database, SqliteFile)
    driver = store._database._driver
    store._thread.submit(lambda: driver.execute(f"PRAGMA {setting}")).result()


async def everything_at_once(store: SqliteStore) -> Sequence[object]:
    return await asyncio.gather(
        store.accept(delivery("a")),
        store.accept(delivery("b", b"hunter2" * 10)),
        store.commit(
            [job(1)], [HistoryRow(1.0, "job", "1", "queued")], applied=[delivery("a").key]
        ),
        store.record_heartbeat(5.0),
        return_exceptions=True,
    )


async def test_a_failed_batch_stores_nothing_and_the_store_continues(store: SqliteStore) -> None:
    before = await store.load(0.0)
    pragma(store, "query_only = 1")
    answers = await everything_at_once(store)
    pragma(store, "query_only = 0")
    reported = [answer for answer in answers if isinstance(answer, StoreError)]
    assert len(reported) == len(answers)
    # Each caller gets its own exception: a shared one would collect the tracebacks of all callers.
    assert len({id(error) for error in reported}) == len(reported)
    assert {str(error) for error in reported} == {
        f"{store._database.title}: the file or its folder is read-only: let this user write to both "
        "(SQLITE_READONLY)"
    }
    # The log shows with each error which statement failed.
    causes = [str(error.__cause__.__cause__) for error in reported if error.__cause__ is not None]
    assert causes == ["attempt to write a readonly database"] * len(reported)
    assert await store.load(0.0) == before
    assert await store.accept(delivery("a"))


async def test_a_full_disk_stores_nothing_of_the_batch(store: SqliteStore) -> None:
    body = b"".join(number.to_bytes(4, "big") for number in range(50_000))
    pragma(store, "max_page_count = 1")
    held = asyncio.create_task(store.record_heartbeat(1.0))
    await asyncio.sleep(0)  # it is queued
    await asyncio.sleep(0)  # its write has begun: later commits share the next write
    batch: list[asyncio.Future[Any]] = [
        asyncio.create_task(store.commit([job(1)], [], applied=[delivery("a").key])),
        asyncio.ensure_future(store.accept(delivery("large", body))),
        asyncio.ensure_future(store.accept(delivery("small"))),
    ]
    answers = await asyncio.gather(*batch, return_exceptions=True)
    await asyncio.gather(held, return_exceptions=True)
    pragma(store, "max_page_count = 1073741823")
    for answer in answers:
        assert isinstance(answer, StoreError)
        assert "the disk is full" in str(answer)
    state = await store.load(0.0)
    assert (state.jobs, state.unapplied) == ((), ())
    assert await store.accept(delivery("small"))


async def test_errors_do_not_show_the_data_to_be_written(store: SqliteStore) -> None:
    pragma(store, "query_only = 1")
    for answer in await everything_at_once(store):
        assert isinstance(answer, StoreError)
        shown, error = "", answer.__cause__
        while error is not None:
            shown, error = shown + str(error), error.__cause__
        assert "INSERT" not in str(answer)
        assert "hunter2" not in str(answer) + shown
    pragma(store, "query_only = 0")


async def test_errors_do_not_show_the_values_of_a_query(store: SqliteStore) -> None:
    """A log shows an error with its causes."""
    await store._transact(lambda c: c.write("DROP TABLE history"))
    with pytest.raises(StoreError) as caught:
        await store.history("machine", "hunter2")
    assert "no such table: history" in str(caught.value.__cause__)
    assert "hunter2" not in f"{caught.value} {caught.value.__cause__}"


async def test_a_second_opening_is_refused_until_the_first_is_closed(path: Path) -> None:
    first = await SqliteStore.open(path)
    with pytest.raises(StoreError, match="in use by another process"):
        await SqliteStore.open(path)
    assert await first.accept(delivery("a"))
    await first.close()
    second = await SqliteStore.open(path)
    assert not await second.accept(delivery("a"))
    await second.close()


_SECOND_PROCESS = """
import asyncio, sys
from autoscaler.controller.ports.store import Delivery, StoreError
from autoscaler.store.opening import open_store

async def main():
    try:
        await open_store(f"sqlite:///{sys.argv[1]}")
    except StoreError as error:
        print(error)
    store = await open_store(f"sqlite:///{sys.argv[2]}")
    print(await store.accept(Delivery("a", "workflow_job", 1.0, b"{}")))
    await store.close()

asyncio.run(main())
"""


async def test_another_process_is_refused_and_leaves_nothing_open(
    store: SqliteStore, path: Path
) -> None:
    command = [sys.executable, "-X", "dev", "-W", "error", "-c", _SECOND_PROCESS]
    child = await asyncio.create_subprocess_exec(
        *command,
        str(path),
        str(path.with_name("own.db")),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
    )
    out, err = (text.decode() for text in await child.communicate())
    assert child.returncode == 0, err
    refusal, accepted = out.splitlines()
    assert "in use by another process" in refusal
    assert accepted == "True"
    assert "Warning" not in err


def _garbage(path: Path) -> None:
    path.write_bytes(b"not a database, whatever its name says" * 200)


def _foreign(path: Path) -> None:
    with_table = sqlite3.connect(path)
    with_table.execute("CREATE TABLE jobs (x)")
    with_table.close()


def _folder(path: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize(
    ("prepare", "words"),
    [
        (_garbage, "not a SQLite database"),
        (_foreign, "tables of another program"),
        (_folder, "cannot be opened"),
    ],
)
async def test_an_unusable_file_is_named_and_closed(
    path: Path, prepare: Callable[[Path], None], words: str
) -> None:
    prepare(path)
    for _ in range(2):
        with pytest.raises(StoreError, match=words) as raised:
            await SqliteStore.open(path)
        assert str(path) in str(raised.value)


async def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    said = "cannot be opened: No such file.*; the folder must exist, have free space, and let this user write"
    with pytest.raises(StoreError, match=said):
        await SqliteStore.open(tmp_path / "missing" / "state.db")


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        ("UPDATE jobs SET record = '{}'", "the row 1 of jobs is damaged"),
        ("UPDATE jobs SET record = '{'", "the row 1 of jobs is damaged: not JSON"),
        ("UPDATE inbox SET body = x'00'", "the delivery a in inbox is damaged"),
        (
            "INSERT INTO meta VALUES ('former_installations', '[1]')",
            "the row former_installations of meta is damaged: ",
        ),
    ],
)
async def test_a_damaged_row_is_named(path: Path, damage: str, words: str) -> None:
    store = await SqliteStore.open(path)
    await store.accept(delivery("a"))
    await store.commit([job(1)], [])
    await store.close()
    edit(path, damage)
    again = await SqliteStore.open(path)
    with pytest.raises(StoreError, match=f"state.db: {words}"):
        await again.load(0.0)
    await again.close()


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        ("UPDATE jobs SET record = '{'", "the row 1 of jobs is damaged"),
        ("UPDATE inbox SET body = x'00'", "the delivery a in inbox is damaged"),
    ],
)
async def test_rows_are_decoded_after_the_transaction_that_read_them(
    path: Path, damage: str, words: str
) -> None:
    """PostgreSQL ends a session that is idle within a transaction, and decoding takes long on a busy host."""
    store = await SqliteStore.open(path)
    await store.accept(delivery("a"))
    await store.commit([job(1)], [])
    await store.close()
    edit(path, damage)
    file = SqliteFile(path)
    stored = file.transaction(lambda connection: read(connection, 0.0))
    file.close()
    with pytest.raises(StoreError, match=words):
        decoded(stored)


def edit(path: Path, statement: str) -> None:
    connection = sqlite3.connect(path)
    connection.execute(statement)
    connection.commit()
    connection.close()


async def test_a_cancelled_open_closes_the_file(path: Path) -> None:
    opening = asyncio.create_task(SqliteStore.open(path))
    await asyncio.sleep(0)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    # The thread that opened the file closes it later.
    for _ in range(500):
        try:
            store = await SqliteStore.open(path)
        except StoreError:
            await asyncio.sleep(0.01)
        else:
            await store.close()
            return
    pytest.fail("the file is still held")


class Journal:
    """A `write` function that keeps its groups, and fails on demand."""

    def __init__(self) -> None:
        self.groups: list[list[Change]] = []
        self.failure: Exception | None = None

    def write(self, changes: Sequence[Change]) -> list[bool]:
        self.groups.append(list(changes))
        if self.failure is not None:
            raise self.failure
        return [isinstance(change, Arrival) for change in changes]


async def test_overlapping_changes_share_one_write() -> None:
    journal = Journal()
    with ThreadPoolExecutor(1) as thread:
        commits = GroupCommit(thread, journal.write)
        changes: list[Change] = [Heartbeat(float(number)) for number in range(50)]
        changes.append(arrival(delivery("a")))
        answers = await asyncio.gather(*(commits.submit(change) for change in changes))
        await commits.drained()
    assert answers == [False] * 50 + [True]
    assert journal.groups == [changes]


async def test_a_change_during_a_write_waits_for_the_next_write() -> None:
    journal = Journal()
    with ThreadPoolExecutor(1) as thread:
        commits = GroupCommit(thread, journal.write)
        first = asyncio.ensure_future(commits.submit(Heartbeat(1.0)))
        await asyncio.sleep(0)  # it is queued
        await asyncio.sleep(0)  # its write is under way
        rest = [asyncio.ensure_future(commits.submit(Heartbeat(float(n)))) for n in (2, 3, 4)]
        await asyncio.gather(first, *rest)
    assert journal.groups == [[Heartbeat(1.0)], [Heartbeat(2.0), Heartbeat(3.0), Heartbeat(4.0)]]


async def test_a_failed_writer_leaves_no_caller_waiting() -> None:
    journal = Journal()
    failures: list[object] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _loop, context: failures.append(context.get("exception"))
    )
    with ThreadPoolExecutor(1) as thread:
        commits = GroupCommit(thread, journal.write)
        journal.failure = ZeroDivisionError("a bug")
        for _ in range(2):
            with pytest.raises(StoreError, match="writer stopped"):
                await commits.submit(Heartbeat(1.0))
        journal.failure = None
        assert await commits.submit(arrival(delivery("a")))
    assert json.dumps([str(failure) for failure in failures[:1]]) == '["a bug"]'
