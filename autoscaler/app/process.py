"""The process on its host: open files, signals, the folder of the agents, the size of the store."""

import asyncio
import os
import resource
import signal
import sys
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import structlog

from autoscaler.app.reloading import Reloading
from autoscaler.controller.ports.operator_requests import (
    ControllerStopsError,
    RefusedConfigurationError,
)
from autoscaler.controller.ports.store import StoreError
from autoscaler.controller.ports.telemetry import Telemetry
from autoscaler.controller.reconciler import Reconciler
from autoscaler.model.identifiers import Seconds
from autoscaler.model.operators import OperatorName
from autoscaler.server.machines.agents import keep_agent

SIZES_EVERY: Seconds = 15.0

T = TypeVar("T")

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
    """Report the sizes of a SQLite file, its write-ahead log and their disk every 15 seconds, until cancelled.

    Reads them in a thread, because a network disk may be slow.
    """
    log = path.with_name(f"{path.name}-wal")
    while True:
        sizes = await asyncio.to_thread(lambda: (_size(path), _size(log)))
        telemetry.store_size(*sizes)
        if (disk := await asyncio.to_thread(_disk, path.parent)) is not None:
            telemetry.store_disk(*disk)
        await asyncio.sleep(SIZES_EVERY)


def _size(path: Path) -> int:
    """Return a file's size in bytes; 0 if it does not exist or cannot be read."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _disk(folder: Path) -> tuple[int, int] | None:
    """Return the free and all bytes of a folder's file system; None if they cannot be read.

    Counts as `df` does: what only root may use is neither free nor part of the whole.
    """
    try:
        found = os.statvfs(folder)
    except OSError:
        return None
    used = found.f_blocks - found.f_bfree
    return found.f_bavail * found.f_frsize, (used + found.f_bavail) * found.f_frsize


class Signals:
    """Passes signals on to the controller that runs: SIGTERM and SIGINT stop it, SIGHUP reloads fleet.yaml.

    A replica that follows begins again with the changed file. While neither runs, SIGHUP is remembered.
    """

    def __init__(self, process: asyncio.Task[None]) -> None:
        """Receive signals from now on. `process` is cancelled if it is to stop while no controller runs."""
        self._process = process
        self.stopped = False
        """Whether SIGTERM or SIGINT has come."""
        self._reload_wanted = False
        self._following: asyncio.Task[Any] | None = None
        self._running: tuple[Reconciler, Reloading] | None = None
        self._reloads: set[asyncio.Task[None]] = set()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._note_stop)
        loop.add_signal_handler(signal.SIGHUP, self._note_reload)

    def use(self, reconciler: Reconciler, reloading: Reloading) -> None:
        """Stop and reload these from now on, and at once for signals that came before."""
        self._running = reconciler, reloading
        if self.stopped:
            reconciler.stop()
        elif self._reload_wanted:
            self._reload_wanted = False
            self._note_reload()

    def use_none(self) -> None:
        """Stop and reload nothing until a controller runs."""
        self._running = None

    async def unless_reloaded(self, work: Coroutine[Any, Any, T]) -> T | None:
        """Do the work of a replica that follows. Return None if SIGHUP came, which ends it."""
        self._following = following = asyncio.get_running_loop().create_task(work)
        try:
            if self._reload_wanted:
                self._note_reload()
            return await following
        except asyncio.CancelledError:
            if self._process.cancelling():
                raise
            return None
        finally:
            self._following = None

    def _note_stop(self) -> None:
        self.stopped = True
        if self._running is not None:
            self._running[0].stop()
        else:
            self._process.cancel()

    def _note_reload(self) -> None:
        if self._following is not None:
            self._reload_wanted = False
            self._following.cancel()
            return
        if self._running is None or self._running[0].stopping:
            self._reload_wanted = True
            return
        task = asyncio.get_running_loop().create_task(self._reload(self._running[1]))
        self._reloads.add(task)
        task.add_done_callback(self._reloads.discard)

    async def _reload(self, reloading: Reloading) -> None:
        # The log has why a file is refused. After a StoreError, the control loop raises one, too.
        with suppress(RefusedConfigurationError, StoreError):
            try:
                await reloading.reload(by=OperatorName("SIGHUP"))
            except ControllerStopsError:
                self._reload_wanted = True
