"""A store is copied into an empty one, row by row, between a file and a server."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from autoscaler.controller.ports.store import Cooldown, HistoryRow
from autoscaler.model.accounting import MachineUse, Usage
from autoscaler.model.identifiers import ProviderName, SkuName
from autoscaler.model.jobs.job import JobState
from autoscaler.model.prices_and_quotas import Reading, ReadingKind
from autoscaler.store.sqlite.store import SqliteStore
from tests.command_line import run
from tests.store.opened import OpenedStore, open_leading, take
from tests.store.postgresql_server import PostgresqlServer, change
from tests.store.records import call, delivery, job, machine, rerun, row, runner

EAST, GPU = ProviderName("east"), SkuName("gpu")
PRICE = Reading("g5.xlarge", 0.25, 1.8e9)


async def fill(store: OpenedStore) -> None:
    """Store something of every kind, and more jobs and history than one page has."""
    jobs = [job(number, JobState.COMPLETED, 50.0 + number) for number in range(2100)]
    await store.commit([*jobs, call("c0"), machine("m0"), runner("r0"), rerun(1)], [])
    await store.commit([], [row("job", str(number), float(number % 7)) for number in range(2100)])
    strange = HistoryRow(1.0, "job", "7", "said", '\u00e9 "%s" :name \\ \x7f', "code")
    used = Usage(1, EAST, GPU, "acme/widgets", MachineUse.JOB, 60.0, 0.1)
    await store.commit([], [strange], (), [Cooldown("k", 1e9, 2, "why")], usage=[used])
    for number in range(5):
        await store.accept(delivery(str(number), 100.0 + number))
    await store.commit([], [], [delivery("1").key])
    await store.save_readings(EAST, ReadingKind.SPOT_PRICE, [PRICE])
    await store.record_heartbeat(123.5, 99.25)


async def contents(store: OpenedStore) -> tuple[object, ...]:
    return (
        await store.load(0.0),
        await store.history("job", "7"),
        await store.usage(0),
        await store.load_readings(EAST, ReadingKind.SPOT_PRICE),
        await store.accept(delivery("1")),
    )


async def test_a_copy_on_a_server_and_back_is_the_same_store(
    path: Path, server: PostgresqlServer
) -> None:
    url, back = server.database(), path.with_name("back.db")
    store: OpenedStore = await SqliteStore.open(path)
    await fill(store)
    before = await contents(store)
    await store.close()
    there = await asyncio.to_thread(run, "store", "copy", f"sqlite:///{path}", url)
    assert there.exit_code == 0, there.stderr
    assert "jobs              2100\n" in there.stdout
    assert "history           2101\n" in there.stdout
    assert "every row was compared" in there.stdout
    store = await open_leading(url)
    assert await contents(store) == before
    assert before[-1] is False
    assert await store.accept(delivery("new"))
    await store.commit([], [row("job", "7")])
    await store.close()
    again = await asyncio.to_thread(run, "store", "copy", url, f"sqlite:///{back}")
    assert again.exit_code == 0, again.stderr
    store = await SqliteStore.open(back)
    assert [one.id for one in (await store.load(0.0)).unapplied] == ["0", "2", "3", "4", "new"]
    await store.close()


async def test_a_dump_of_a_database_in_use_is_restored_as_a_store(
    server: PostgresqlServer, tmp_path: Path
) -> None:
    """As docs/deploy.md says: pg_dump while a replica leads, and pg_restore into an empty database."""
    url, restored = server.database(), server.database()
    store = await open_leading(url)
    await fill(store)
    before, leads = await contents(store), await take(store)
    dump = str(tmp_path / "backup.dump")
    await asyncio.to_thread(server.run, "pg_dump", "--format=custom", f"--file={dump}", url)
    await store.accept(delivery("later"))
    await store.close()
    options = ("--no-owner", "--exit-on-error", "--single-transaction", f"--dbname={restored}")
    await asyncio.to_thread(server.run, "pg_restore", *options, dump)
    change(restored, "UPDATE lease SET expires = 0")  # in place of waiting until it expires
    again = await open_leading(restored)
    assert (await take(again)).epoch > leads.epoch
    assert await contents(again) == before
    assert await again.accept(delivery("later")), "it came after the dump: GitHub sends it again"
    await again.close()


async def test_a_store_in_use_is_not_copied(path: Path) -> None:
    store = await SqliteStore.open(path)
    other = path.with_name("other.db")
    for pair in ((path, other), (other, path)):
        other.touch()
        refused = await asyncio.to_thread(
            run, "store", "copy", *(f"sqlite:///{one}" for one in pair)
        )
        assert (refused.exit_code, "in use by another process" in refused.stderr) == (1, True)
    await store.close()


async def test_a_target_with_rows_is_refused_and_left(path: Path, server: PostgresqlServer) -> None:
    url = server.database()
    for opening, name in ((SqliteStore.open(path), "a"), (open_leading(url), "b")):
        filled: OpenedStore = await opening
        await filled.accept(delivery(name))
        await filled.close()
    refused = await asyncio.to_thread(run, "store", "copy", f"sqlite:///{path}", url)
    assert refused.exit_code == 1
    assert "the table inbox is not empty: copy into a new store" in refused.stderr
    store = await open_leading(url)
    assert [one.id for one in (await store.load(0.0)).unapplied] == ["b"]
    await store.close()


@pytest.mark.parametrize(
    "action", ["UPDATE jobs SET state = 'x' WHERE id = 7", "DELETE FROM jobs WHERE id = 7"]
)
async def test_a_row_that_differs_after_the_copy_is_found(path: Path, action: str) -> None:
    target = path.with_name("target.db")
    for file in (path, target):
        await (await SqliteStore.open(file)).close()
    store = await SqliteStore.open(path)
    await store.commit([job(7), job(8)], [])
    await store.close()
    with closing(sqlite3.connect(target)) as driver, driver:
        driver.execute(f"CREATE TRIGGER spoil AFTER INSERT ON jobs BEGIN {action}; END")
    refused = run("store", "copy", f"sqlite:///{path}", f"sqlite:///{target}")
    assert refused.exit_code == 1
    assert "the rows of jobs differ after they were copied" in refused.stderr
    store = await SqliteStore.open(target)
    assert (await store.load(0.0)).jobs == ()
    await store.close()


def test_a_source_that_is_missing_is_not_created(path: Path) -> None:
    refused = run("store", "copy", f"sqlite:///{path}", f"sqlite:///{path}.new")
    assert (refused.exit_code, "there is no such file" in refused.stderr) == (1, True)
    assert list(path.parent.iterdir()) == []
