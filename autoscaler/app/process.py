"""The process on its host: open files, signals, the folder of the agents, the size of the store."""

import asyncio
import resource
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import structlog

from autoscaler.controller.ports.telemetry import Telemetry
from autoscaler.model.identifiers import Seconds
from autoscaler.server.machines.agents import keep_agent

SIZES_EVERY: Seconds = 15.0

_log = structlog.get_logger(__name__)


def raise_file_limit() -> None:
    """Raise the limit of open files to the system's hard limit: each ready machine has a connection."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def file_limit() -> int:
    """Return how many file descriptors this process may have open."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft


def keep_agent_beside(store: Path | None, agent: bytes) -> tuple[bytes, ...]:
    """Store this version's agent in `STORE.agents`; return the earlier agents from there.

    Returns none if there is no store file, or if the folder is not usable. Machines that boot during an
    upgrade then miss their deadline and are replaced.
    """
    if store is None:
        return ()
    try:
        return keep_agent(store.with_name(f"{store.name}.agents"), agent)
    except OSError as error:
        _log.warning("agent_not_kept", error=str(error))
        return ()


async def report_store_size(path: Path, telemetry: Telemetry) -> None:
    """Report the sizes of a SQLite file and its write-ahead log every 15 seconds, until cancelled.

    Reads them in a thread, because a network disk may be slow.
    """
    log = path.with_name(f"{path.name}-wal")
    while True:
        sizes = await asyncio.to_thread(lambda: (_size(path), _size(log)))
        telemetry.store_size(*sizes)
        await asyncio.sleep(SIZES_EVERY)


def _size(path: Path) -> int:
    """Return a file's size in bytes; 0 if it does not exist or cannot be read."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


class Signals:
    """Passes signals on to the controller that runs: SIGTERM and SIGINT stop it, SIGHUP reloads fleet.yaml.

    Until one runs, it remembers SIGHUP.
    """

    def __init__(self, process: asyncio.Task[None]) -> None:
        """Receive signals from now on. `process` is cancelled if it is to stop while no controller runs."""
        self._process = process
        self.stopped = False
        """Whether SIGTERM or SIGINT has come."""
        self._reload_wanted = False
        self._stop: Callable[[], None] | None = None
        self._reload: Callable[[], None] | None = None
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._note_stop)
        loop.add_signal_handler(signal.SIGHUP, self._note_reload)

    def use(self, stop: Callable[[], None], reload: Callable[[], None]) -> None:
        """Call `stop` and `reload` for signals from now on, and at once for those that came before."""
        self._stop, self._reload = stop, reload
        if self.stopped:
            stop()
        elif self._reload_wanted:
            self._reload_wanted = False
            reload()

    def use_none(self) -> None:
        """Call nothing until a controller runs."""
        self._stop = self._reload = None

    def reload_later(self) -> None:
        """Remember a SIGHUP for the controller that runs next."""
        self._reload_wanted = True

    def _note_stop(self) -> None:
        self.stopped = True
        if self._stop is not None:
            self._stop()
        else:
            self._process.cancel()

    def _note_reload(self) -> None:
        if self._reload is None:
            self.reload_later()
        else:
            self._reload()
