"""Stops the agent's unit as systemd does when a lab machine's operating system shuts down.

Reads `KillMode` and `TimeoutStopSec` from the unit that the user data wrote. So a mistake in the unit ends a
job's runner as it would on a real machine.
"""

import asyncio
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

DEFAULT_TIMEOUT = 90.0
"""Seconds: DefaultTimeoutStopSec in systemd-system.conf(5)."""


@dataclass(frozen=True, slots=True)
class Unit:
    """The parts of a unit that decide how systemd stops it. `timeout` is in machine seconds."""

    kill_mode: str
    timeout: float

    def signalled(self, main: int, everything: set[int]) -> set[int]:
        """Return the processes that get SIGTERM first (systemd.kill(5), KillMode)."""
        return everything if self.kill_mode == "control-group" else {main}


def parse_unit(text: str) -> Unit:
    """Read a unit file. A missing key has systemd's default.

    Raises: ValueError if `TimeoutStopSec` is not a number of seconds, or `KillMode` is not supported here.
    """
    said = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    timeout = float(said.get("TimeoutStopSec", DEFAULT_TIMEOUT))
    unit = Unit(said.get("KillMode", "control-group"), timeout)
    if unit.kill_mode not in ("control-group", "mixed", "process"):
        raise ValueError(f"KillMode={unit.kill_mode}")
    return unit


async def stop(root: Path, everything: Callable[[], set[int]], scale: float) -> None:
    """Stop the agent's service: SIGTERM, then wait until its main process exits or the timeout is over.

    Returns at once if the service does not run. The caller must kill the remaining processes, as systemd
    does. `everything` returns the machine's processes. `scale` is machine seconds per real second.
    """
    try:
        unit = parse_unit((root / "etc/systemd/system/runner-agent.service").read_text("utf-8"))
        main = int((root / "run/runner-agent.pid").read_text("ascii"))
        watched = os.pidfd_open(main)
    except (FileNotFoundError, ProcessLookupError):
        return
    try:
        for pid in unit.signalled(main, everything()):
            _send(pid)
        async with asyncio.timeout(unit.timeout / scale):
            await _exit_of(watched)
    except TimeoutError:
        return
    finally:
        os.close(watched)


async def _exit_of(watched: int) -> None:
    """Return when the process behind a pidfd has exited (pidfd_open(2): it is readable then)."""
    loop = asyncio.get_running_loop()
    exited = asyncio.Event()
    loop.add_reader(watched, exited.set)
    try:
        await exited.wait()
    finally:
        loop.remove_reader(watched)


def _send(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGTERM)
    except ProcessLookupError:
        return
