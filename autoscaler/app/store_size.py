"""Reports the size of the store's files."""

import asyncio
from pathlib import Path

from autoscaler.controller.ports.telemetry import Telemetry
from autoscaler.model.identifiers import Seconds

EVERY: Seconds = 15.0


class StoreSize:
    """Reads the sizes every 15 seconds, in a thread, because a network disk may be slow."""

    def __init__(self, path: Path, telemetry: Telemetry) -> None:
        """`path` is the SQLite file. Its write-ahead log has the same name with `-wal` at the end."""
        self._path = path
        self._telemetry = telemetry

    async def run(self) -> None:
        """Report until cancelled."""
        log = self._path.with_name(f"{self._path.name}-wal")
        while True:
            sizes = await asyncio.to_thread(lambda: (_size(self._path), _size(log)))
            self._telemetry.store_size(*sizes)
            await asyncio.sleep(EVERY)


def _size(path: Path) -> int:
    """Return a file's size in bytes; 0 if it does not exist or cannot be read."""
    try:
        return path.stat().st_size
    except OSError:
        return 0
