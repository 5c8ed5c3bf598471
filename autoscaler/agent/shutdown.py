"""The host's commands: cancels the scheduled shutdown, and powers the machine off."""

from __future__ import annotations

import subprocess
import time

from autoscaler.agent.actions import PowerOff
from autoscaler.agent.journal import log_line

DISARMED = (0, 1116)
"""Exit statuses of `shutdown /a`: done, and ERROR_NO_SHUTDOWN_IN_PROGRESS (WinError.h)."""


def command(argv: list[str], fine: tuple[int, ...] = (0,)) -> bool:
    """Run one of the host's commands; return whether its exit status is in `fine`."""
    try:
        done = subprocess.run(  # noqa: S603 - argv comes from the root-only host file
            argv, check=False, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, timeout=60
        )
    except (OSError, subprocess.SubprocessError) as error:
        log_line(f"{argv[0]}: {type(error).__name__}")
        return False
    return done.returncode in fine


def disarm(argv: list[str], tries: int = 5, pause: float = 2.0) -> None:
    """Cancel the scheduled shutdown. Raises PowerOff if this fails: the shutdown would kill a job."""
    for _ in range(tries):
        if command(argv, DISARMED):
            return
        time.sleep(pause)
    raise PowerOff("the scheduled shutdown could not be cancelled")


def power_off(argv: list[str]) -> None:
    """Power the machine off, and wait for it. If this fails, the end of the service does it."""
    for _ in range(3):
        command(argv)
        time.sleep(20)
