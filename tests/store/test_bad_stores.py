"""Disk full, store read-only, store damaged: a clear message, and nothing that was answered 2xx is lost.

A real controller on a real file; a full disk is a small one of its own where this user may mount
one, and a limit on the size of files everywhere.
"""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from autoscaler.controller.ports.store import Delivery, StoreError
from autoscaler.store.sqlite.file import SqliteFile
from autoscaler.store.sqlite.store import SqliteStore
from tests.patience import PATIENCE
from tests.store.served import Served

PAGE = 4096
JOBS = frozenset(range(1, 41))
_CAP_SYS_ADMIN = 1 << 21


def may_mount() -> bool:
    """Return True if this process may mount a disk. In some containers root may not."""
    status = Path("/proc/self/status").read_text()
    (effective,) = (line.split()[1] for line in status.splitlines() if line.startswith("CapEff"))
    return bool(int(effective, 16) & _CAP_SYS_ADMIN)


class Disk:
    """A small in-memory disk mounted on a folder, or the folder itself with its permissions."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.mounted = False

    def mount(self, size: str) -> None:
        self.folder.mkdir(exist_ok=True)
        _run("mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(self.folder))
        self.mounted = True

    def leave_no_room(self, size: int) -> None:
        """Fill the disk, which has at most so many bytes."""
        with pytest.raises(OSError, match="No space left"):
            (self.folder / "filler").write_bytes(b"x" * (size + 1))

    def change(self, options: str) -> None:
        _run("mount", "-o", f"remount,{options}", str(self.folder))

    def write_protect(self, protected: bool) -> None:
        """Forbid or allow writes."""
        if self.mounted:
            self.change("ro" if protected else "rw")
        else:
            self.folder.chmod(0o500 if protected else 0o700)

    def leave(self) -> None:
        if self.mounted:
            _run("umount", "--lazy", str(self.folder))


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    one = Disk(tmp_path / "disk")
    yield one
    one.leave()


async def ended(process: asyncio.subprocess.Process) -> int:
    async with asyncio.timeout(PATIENCE):
        return await process.wait()


async def refused_to_start(served: Served, *wrapper: str) -> str:
    """Return the reason that a controller prints if it does not start."""
    process = await served.start(*wrapper)
    if process.returncode is None:
        process.kill()
        await ended(process)
        pytest.fail(f"it serves:\n{served.log()}")
    assert process.returncode == 1
    return served.stopped()


async def goes_on(served: Served) -> None:
    """Check that a controller started now serves, and exits on SIGTERM."""
    process = await served.start()
    assert process.returncode is None, served.log()
    assert await served.deliver(9001) == [202]
    process.send_signal(signal.SIGTERM)
    assert await ended(process) == 0


SHORT_BY = ("limit", "disk") if may_mount() else ("limit",)
WORDS = {
    "limit": "the disk failed to read or write: check its errors, quotas and size limits",
    "disk": "the disk is full: make room on it, then start again",
}


def served_where_room_is_short(
    kind: str, disk: Disk, fleet: Path, size: str, limit: int
) -> tuple[Served, tuple[str, ...]]:
    """Return a store on a disk of this size, or with a command that limits its files to so many bytes."""
    if kind == "disk":
        disk.mount(size)
    else:
        disk.folder.mkdir()
    wrapper = () if kind == "disk" else ("prlimit", f"--fsize={limit}")
    return Served(fleet, disk.folder / "state.db"), wrapper


@pytest.mark.systems
@pytest.mark.case(
    "the disk fills up: the controller ends, reports it, and keeps what it acknowledged",
    topic="EC2's machines",
    source="SQLite: result codes",
)
@pytest.mark.parametrize("kind", SHORT_BY)
async def test_a_full_disk_ends_the_controller_and_acknowledged_deliveries_are_kept(
    kind: str, disk: Disk, tmp_path: Path
) -> None:
    served, wrapper = served_where_room_is_short(kind, disk, tmp_path / "fleet", "3m", 1_500_000)
    process = await served.start(*wrapper)
    assert process.returncode is None, served.log()
    refused = []
    for first in range(1, 2000, 8):
        some = await asyncio.gather(
            *(served.deliver(job, padding=60_000) for job in range(first, first + 8))
        )
        refused += [status for of_one in some for status in of_one if status // 100 != 2]
        if refused:
            break
    assert await ended(process) == 1
    assert set(refused) <= {0, 503}
    assert f"{served.store}: {WORDS[kind]}" in served.stopped()
    assert len(served.acknowledged) >= 8

    if kind == "disk":
        disk.change("size=64m")
    else:
        await goes_on(served)
    assert served.acknowledged <= await served.kept()


async def fill(path: Path) -> None:
    """Create a store with acknowledged deliveries, closed cleanly."""
    store = await SqliteStore.open(path)
    for job in JOBS:
        assert await store.accept(
            Delivery(f"d-{job}", "workflow_job", float(job), b"%06d" % job * 166)
        )
    await store.close()


@pytest.mark.systems
@pytest.mark.case(
    "the disk fills up: the controller ends, reports it, and keeps what it acknowledged",
    topic="EC2's machines",
    source="SQLite: result codes",
)
@pytest.mark.parametrize("kind", SHORT_BY)
async def test_a_full_disk_is_named_at_the_start_and_the_store_is_kept(
    kind: str, disk: Disk, tmp_path: Path
) -> None:
    served, wrapper = served_where_room_is_short(kind, disk, tmp_path / "fleet", "1m", 4 * PAGE)
    await fill(served.store)
    if kind == "disk":
        disk.leave_no_room(2**20)
    reason = await refused_to_start(served, *wrapper)
    assert reason.startswith(
        f"{served.store}: the disk is full, or a quota or size limit is reached"
    )
    if kind == "disk":
        disk.change("size=8m")
    assert await served.kept() == JOBS


@pytest.mark.systems
@pytest.mark.case(
    "a store that is not writable is refused and not changed",
    topic="EC2's machines",
    source="SQLite: result codes",
)
async def test_a_store_that_may_not_be_written_to_is_refused_and_untouched(
    disk: Disk, tmp_path: Path
) -> None:
    disk.folder.mkdir()
    if os.geteuid() == 0:
        disk.mount("8m")
    served = Served(tmp_path / "fleet", disk.folder / "state.db")
    await fill(served.store)
    before = served.store.read_bytes()
    disk.write_protect(True)
    reason = await refused_to_start(served)
    assert str(served.store) in reason
    assert "let this user write" in reason
    disk.write_protect(False)
    assert served.store.read_bytes() == before
    assert await served.kept() == JOBS


def _no_header(good: bytes) -> bytes:
    return b"\xa5" * 100 + good[100:]


def _no_pages(good: bytes) -> bytes:
    return good[:PAGE] + b"\xa5" * (len(good) - PAGE)


def _cut_off(good: bytes) -> bytes:
    return good[: len(good) // 2]


DAMAGED = "the file is damaged: keep a copy, then restore a backup"


@pytest.mark.systems
@pytest.mark.case(
    "a damaged store is refused by name and not changed, whichever page is damaged",
    topic="EC2's machines",
    source="SQLite: how to corrupt",
)
async def test_a_controller_refuses_a_damaged_store_and_leaves_it_as_it_is(tmp_path: Path) -> None:
    served = Served(tmp_path / "fleet", tmp_path / "state.db")
    await fill(served.store)
    good = served.store.read_bytes()
    served.store.write_bytes(_no_pages(good))
    reason = await refused_to_start(served)
    assert reason.startswith(f"{served.store}: {DAMAGED}")
    assert served.store.read_bytes() == _no_pages(good)
    served.store.write_bytes(good)
    assert await served.kept() == JOBS


@pytest.mark.parametrize(
    ("damage", "words"),
    [(_no_header, "the file is not a SQLite database"), (_no_pages, DAMAGED), (_cut_off, DAMAGED)],
)
async def test_a_damaged_file_is_named_and_opens_again_once_repaired(
    damage: Callable[[bytes], bytes], words: str, tmp_path: Path
) -> None:
    served = Served(tmp_path / "fleet", tmp_path / "state.db")
    await fill(served.store)
    good = served.store.read_bytes()
    served.store.write_bytes(damage(good))
    with pytest.raises(StoreError, match=words) as raised:
        await served.kept()
    assert str(raised.value).startswith(f"{served.store}: ")
    assert served.store.read_bytes() == damage(good)
    served.store.write_bytes(good)
    assert await served.kept() == JOBS


def _page_of(byte: bytes) -> Callable[[bytes], bytes]:
    return lambda page: byte * len(page)


def _rotated(page: bytes) -> bytes:
    """The same bytes at other places, as of another sector."""
    return page[512:] + page[:512]


def _half_written(page: bytes) -> bytes:
    return page[: PAGE // 2] + bytes(PAGE - PAGE // 2)


def _leave_as_after_a_crash(path: Path) -> None:
    """Fill the store, and leave some of it in the write-ahead log."""
    asyncio.run(fill(path))
    crashing = (
        "import os, sqlite3, sys\n"
        "driver = sqlite3.connect(sys.argv[1])\n"
        "driver.execute('INSERT INTO meta VALUES (1, 2)')\n"
        "driver.commit()\n"
        "os._exit(0)\n"
    )
    subprocess.run([sys.executable, "-c", crashing, str(path)], check=True)


@pytest.mark.case(
    "a damaged store is refused by name and not changed, whichever page is damaged",
    topic="EC2's machines",
    source="SQLite: how to corrupt",
)
@pytest.mark.parametrize(
    "damage",
    [_page_of(b"\xa5"), _page_of(b"\x00"), _rotated, _half_written],
    ids=["noise", "zeros", "rotated", "half"],
)
@pytest.mark.parametrize("crashed", [False, True])
def test_a_store_with_a_damaged_page_is_refused_and_not_changed(
    crashed: bool, damage: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    path, log = tmp_path / "state.db", tmp_path / "state.db-wal"
    if crashed:
        _leave_as_after_a_crash(path)
    else:
        asyncio.run(fill(path))
    good, frames = path.read_bytes(), log.read_bytes() if crashed else b""
    in_log = _pages_of(frames)
    for start in range(0, len(good), PAGE):
        page = good[start : start + PAGE]
        if damage(page) == page or start // PAGE + 1 in in_log:
            continue
        bad = good[:start] + damage(page) + good[start + PAGE :]
        path.write_bytes(bad)
        if crashed:
            log.write_bytes(frames)
        with pytest.raises(StoreError, match=r"the file is (damaged|not a SQLite)") as raised:
            SqliteFile(path)
        assert str(raised.value).startswith(f"{path}: ")
        assert path.read_bytes() == bad
        assert not crashed or log.read_bytes() == frames


def _pages_of(log: bytes) -> set[int]:
    """Return the pages that a write-ahead log replaces (sqlite.org/fileformat2.html#the_write_ahead_log)."""
    frames = range(32, len(log), 24 + PAGE)
    return {int.from_bytes(log[at : at + 4]) for at in frames}


def test_a_store_whose_creation_was_interrupted_opens(tmp_path: Path) -> None:
    """A journal of an unfinished transaction is applied, not taken for damage."""
    path = tmp_path / "state.db"
    crashing = (
        "import os, sqlite3, sys\n"
        "driver = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "driver.execute('PRAGMA cache_size = 1')\n"
        "driver.execute('CREATE TABLE some (value)')\n"
        "driver.execute('DROP TABLE some')\n"
        "driver.execute('BEGIN')\n"
        "driver.execute('CREATE TABLE other (value)')\n"
        "driver.executemany('INSERT INTO other VALUES (?)', [('x' * 4000,)] * 50)\n"
        "os._exit(0)\n"
    )
    subprocess.run([sys.executable, "-c", crashing, str(path)], check=True)
    assert path.with_name("state.db-journal").exists()
    SqliteFile(path).close()
