"""Restores a crashed store again and again, and is killed one step later each time.

A step is a change of files: Python raises an audit event before each (PEP 578). The folder `killed-N` has what
is left after a kill before step N. The last one has a restore that was not killed.
"""

import asyncio
import os
import shutil
import sys
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

from autoscaler.controller.ports.store import Delivery
from autoscaler.store.sqlite.store import SqliteStore
from autoscaler.store.sqlite.upkeep import SqliteUpkeep

NOW = datetime(2026, 11, 29, 15, 4, 5, tzinfo=UTC)
_STEPS = frozenset(
    {"os.chown", "os.link", "os.mkdir", "os.remove", "os.rename", "os.rmdir", "sqlite3.connect"}
)
_KILLED = 9


async def crash(path: Path) -> None:
    """Store two deliveries, back up the first, and end without closing the store."""
    store = await SqliteStore.open(path)
    await store.accept(Delivery("a", "workflow_job", 1.0, b"a"))
    SqliteUpkeep(path).backup(path.with_name("backup.db"))
    await store.accept(Delivery("b", "workflow_job", 1.0, b"b"))
    os._exit(0)


def restore(path: Path, steps: int) -> None:
    """Restore the backup, and end before the step after `steps`."""
    left = iter(range(steps))

    def kill(event: str, _: tuple[object, ...]) -> None:
        if event in _STEPS and next(left, None) is None:
            os._exit(_KILLED)

    sys.addaudithook(kill)
    SqliteUpkeep(path).restore(path.with_name("backup.db"), NOW)
    os._exit(0)


def main(folder: Path) -> None:
    """Make the folders."""
    crashed = folder / "crashed"
    crashed.mkdir()
    if not (child := os.fork()):
        asyncio.run(crash(crashed / "state.db"))
    os.waitpid(child, 0)
    for steps in count():
        killed = shutil.copytree(crashed, folder / f"killed-{steps:02}")
        if not (child := os.fork()):
            restore(killed / "state.db", steps)
        if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != _KILLED:
            return


if __name__ == "__main__":
    main(Path(sys.argv[1]))
