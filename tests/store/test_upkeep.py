"""Backups, restores and checks of a store, also while a controller uses it."""

import asyncio
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from autoscaler.controller.ports.store import Delivery, StoreError
from autoscaler.store.opening import open_upkeep
from autoscaler.store.sqlite.store import SqliteStore
from autoscaler.store.sqlite.upkeep import SqliteUpkeep
from tests.command_line import edit, run
from tests.command_line import example as example
from tests.patience import PATIENCE
from tests.store.served import Served

NOW = datetime(2026, 11, 29, 15, 4, 5, tzinfo=UTC)
KEPT = "state.db.replaced-20261129-150405"
BACKUP = "backup.db"


async def accept(store: SqliteStore, *names: str) -> None:
    for name in names:
        await store.accept(Delivery(name, "workflow_job", 1.0, name.encode()))


async def deliveries(path: Path) -> list[str]:
    opened = await SqliteStore.open(path)
    try:
        return [delivery.id for delivery in (await opened.load(0.0)).unapplied]
    finally:
        await opened.close()


def stored(path: Path) -> list[str]:
    """Return the deliveries in the file, as SQLite finds them after a crash."""
    with closing(sqlite3.connect(path)) as driver:
        return [name for (name,) in driver.execute("SELECT id FROM inbox ORDER BY seq")]


def names_in(folder: Path) -> set[str]:
    return {one.name for one in folder.iterdir()}


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


async def test_a_backup_of_an_open_store_has_all_that_it_accepted(
    store: SqliteStore, path: Path
) -> None:
    """Also what only the write-ahead log has. The store accepts more meanwhile, and afterwards."""
    target = path.with_name(BACKUP)
    target.write_bytes(b"an earlier one")
    await accept(store, "a")
    await store.record_heartbeat(1_700_000_000.0)
    found = SqliteUpkeep(path).backup(target)
    await accept(store, "b")
    assert (found.file, found.written_at) == (target, 1_700_000_000.0)
    assert (mode(target), found.bytes) == (0o600, target.stat().st_size)
    assert names_in(path.parent) <= {
        "state.db",
        "state.db.lock",
        "state.db-wal",
        "state.db-shm",
        "state.db.last-backup",
        BACKUP,
    }
    assert mode(path.with_name("state.db.last-backup")) == 0o600
    assert SqliteUpkeep(path).last_backup() is not None
    assert SqliteUpkeep(target).last_backup() is None
    assert await deliveries(target) == ["a"]


async def test_a_restore_replaces_the_store_and_keeps_it(store: SqliteStore, path: Path) -> None:
    upkeep, target = SqliteUpkeep(path), path.with_name(BACKUP)
    await accept(store, "a")
    upkeep.backup(target)
    await accept(store, "b")
    await store.close()
    kept = upkeep.restore(target, NOW)
    assert kept == path.with_name(KEPT)
    assert mode(path) == 0o600
    assert await deliveries(path) == ["a"]
    assert await deliveries(kept) == ["a", "b"]


def test_a_crashed_store_is_kept_with_what_its_write_ahead_log_has(tmp_path: Path) -> None:
    """And the log is not applied to the restored store."""
    path = tmp_path / "state.db"
    crashing = (
        "import asyncio, os, sys\n"
        "from pathlib import Path\n"
        "from autoscaler.store.sqlite.store import SqliteStore\n"
        "from autoscaler.store.sqlite.upkeep import SqliteUpkeep\n"
        "from tests.store.test_upkeep import accept\n"
        "async def main(path):\n"
        "    store = await SqliteStore.open(path)\n"
        "    await accept(store, 'a')\n"
        "    SqliteUpkeep(path).backup(path.with_name('backup.db'))\n"
        "    await accept(store, 'b')\n"
        "    os._exit(0)\n"
        "asyncio.run(main(Path(sys.argv[1])))\n"
    )
    subprocess.run([sys.executable, "-c", crashing, str(path)], check=True)
    assert path.with_name("state.db-wal").stat().st_size
    kept = SqliteUpkeep(path).restore(tmp_path / BACKUP, NOW)
    assert kept is not None
    assert asyncio.run(deliveries(kept)) == ["a", "b"]
    assert asyncio.run(deliveries(path)) == ["a"]


def test_a_restore_that_is_killed_leaves_a_complete_store(tmp_path: Path) -> None:
    """Killed before each of its changes of files: the store is the crashed one, or the backup."""
    command = [sys.executable, "-m", "tests.store.killed_restore", str(tmp_path)]
    subprocess.run(command, check=True, timeout=PATIENCE)
    found = []
    for killed in sorted(one for one in tmp_path.iterdir() if one.name.startswith("killed-")):
        found.append(stored(killed / "state.db"))
        if found[-1] == ["a"]:
            assert stored(killed / KEPT) == ["a", "b"], killed
    restored = found.index(["a"])
    assert restored > 5
    assert found == [["a", "b"]] * restored + [["a"]] * (len(found) - restored)


def test_a_damaged_store_is_replaced_and_kept_with_its_log(tmp_path: Path) -> None:
    path, target = tmp_path / "state.db", tmp_path / BACKUP
    asyncio.run(deliveries(target))
    path.write_bytes(b"spoiled" * 1000)
    path.with_name("state.db-wal").write_bytes(b"a log")
    kept = SqliteUpkeep(path).restore(target, NOW)
    assert kept is not None
    assert kept.read_bytes() == b"spoiled" * 1000
    assert kept.with_name(f"{KEPT}-wal").read_bytes() == b"a log"
    assert not path.with_name("state.db-wal").exists()
    assert stored(path) == []


async def test_a_store_that_another_program_reads_is_not_replaced(
    store: SqliteStore, path: Path
) -> None:
    upkeep, target = SqliteUpkeep(path), path.with_name(BACKUP)
    upkeep.backup(target)
    await accept(store, "a")
    await store.close()
    with closing(sqlite3.connect(path)) as writer, closing(sqlite3.connect(path)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM meta").fetchall()
        writer.execute("INSERT INTO meta VALUES ('x', 'y')")
        writer.commit()
        with pytest.raises(StoreError, match="another program reads the file"):
            upkeep.restore(target, NOW)
    assert stored(path) == ["a"]


async def test_a_restore_without_a_store_keeps_nothing(store: SqliteStore, path: Path) -> None:
    target, new = path.with_name(BACKUP), path.parent / "new"
    SqliteUpkeep(path).backup(target)
    new.mkdir()
    assert SqliteUpkeep(new / "state.db").restore(target, NOW) is None
    assert names_in(new) == {"state.db", "state.db.lock"}


async def test_a_store_in_use_is_not_replaced(store: SqliteStore, path: Path) -> None:
    upkeep, target = SqliteUpkeep(path), path.with_name(BACKUP)
    upkeep.backup(target)
    await accept(store, "a")
    with pytest.raises(StoreError, match="in use by another process"):
        upkeep.restore(target, NOW)
    await store.close()
    assert await deliveries(path) == ["a"]
    assert not path.with_name(KEPT).exists()


@pytest.mark.systems
async def test_root_restores_for_the_owner_of_the_folder(store: SqliteStore, path: Path) -> None:
    target, home = path.with_name(BACKUP), path.parent / "home"
    SqliteUpkeep(path).backup(target)
    home.mkdir()
    os.chown(home, 1234, 1235)
    SqliteUpkeep(home / "state.db").restore(target, NOW)
    for name in ("state.db", "state.db.lock"):
        found = (home / name).stat()
        assert (found.st_uid, found.st_gid, found.st_mode & 0o777) == (1234, 1235, 0o600)


def spoil(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xa5" * 4096)


def rename_schema(path: Path) -> None:
    with closing(sqlite3.connect(path)) as driver, driver:
        driver.execute("UPDATE meta SET value = '9999' WHERE key LIKE 'schema%'")


def make_foreign(path: Path) -> None:
    path.unlink()
    with closing(sqlite3.connect(path)) as driver, driver:
        driver.execute("CREATE TABLE cats (name)")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (spoil, "is damaged"),
        (rename_schema, "newer version"),
        (make_foreign, "not a store of this program"),
        (lambda path: path.write_bytes(b""), "not a store of this program"),
        (Path.unlink, "does not exist"),
    ],
    ids=["damaged", "newer", "foreign", "empty", "missing"],
)
async def test_what_is_no_usable_backup_leaves_the_store_as_it_is(
    store: SqliteStore, path: Path, change: object, reason: str
) -> None:
    upkeep, target = SqliteUpkeep(path), path.with_name(BACKUP)
    await accept(store, "a")
    upkeep.backup(target)
    await store.close()
    assert callable(change)
    change(target)
    before = names_in(path.parent)
    with pytest.raises(StoreError, match=reason):
        upkeep.restore(target, NOW)
    assert names_in(path.parent) == before
    assert await deliveries(path) == ["a"]


async def test_a_damaged_store_replaces_no_earlier_backup(store: SqliteStore, path: Path) -> None:
    upkeep, target = SqliteUpkeep(path), path.with_name(BACKUP)
    upkeep.backup(target)
    good = target.read_bytes()
    await store.close()
    spoil(path)
    with pytest.raises(StoreError, match="damaged"):
        upkeep.backup(target)
    assert target.read_bytes() == good


def test_a_backup_refuses_the_store_itself_and_a_missing_folder(path: Path) -> None:
    assert asyncio.run(deliveries(path)) == []
    upkeep, before = SqliteUpkeep(path), path.read_bytes()
    with pytest.raises(StoreError, match="is the store itself"):
        upkeep.backup(path)
    with pytest.raises(StoreError, match="cannot be written: No such file or directory"):
        upkeep.backup(path.parent / "nowhere" / BACKUP)
    assert path.read_bytes() == before


def test_a_url_that_names_no_store_is_refused_without_its_password() -> None:
    with pytest.raises(StoreError, match="not the URL of a store") as refused:
        open_upkeep("mysql://autoscaler:hunter2@db/autoscaler")
    assert "hunter2" not in str(refused.value)


def test_a_store_on_postgresql_is_left_to_the_tools_of_the_server() -> None:
    with pytest.raises(StoreError, match="back it up with pg_dump, restore it with pg_restore"):
        open_upkeep("postgresql://autoscaler@db/autoscaler")


async def test_the_commands_care_for_the_store_of_a_serving_controller(tmp_path: Path) -> None:
    folder = tmp_path / "controller"
    served = Served(folder, folder / "state.db")
    fleet, target = folder / "fleet.yaml", tmp_path / BACKUP
    process = await served.start()
    assert await served.deliver(1, 2) == [202, 202], served.log()
    backed_up = await asyncio.to_thread(run, "store", "backup", "-c", fleet, target)
    assert backed_up.exit_code == 0, backed_up.stderr
    assert f"backup            {target}\n" in backed_up.stdout
    assert await served.deliver(3) == [202]
    checked = await asyncio.to_thread(run, "store", "check", "-c", fleet)
    assert "no damage found" in checked.stdout
    refused = await asyncio.to_thread(run, "store", "restore", "-c", fleet, target)
    assert (refused.exit_code, "in use by another process" in refused.stderr) == (1, True)
    process.terminate()
    await asyncio.wait_for(process.wait(), PATIENCE)
    assert await served.kept() == {1, 2, 3}
    restored = await asyncio.to_thread(run, "store", "restore", "-c", fleet, target)
    assert restored.exit_code == 0, restored.stderr
    assert "the replaced store is " in restored.stdout
    assert await served.kept() == {1, 2}


def test_the_commands_report_a_wrong_fleet_file_and_a_missing_store(example: Path) -> None:
    missing = run("store", "check", "-c", example)
    assert (missing.exit_code, "state.db: the file does not exist" in missing.stderr) == (1, True)
    edit(example, "fleet:", "flet:")
    wrong = run("store", "check", "-c", example)
    assert (wrong.exit_code, "unknown key" in wrong.stderr) == (2, True)
