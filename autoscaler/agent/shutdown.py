"""The host's commands: cancels the scheduled shutdown, and powers the machine off."""

from __future__ import annotations

import subprocess
import time

from autoscaler.agent.actions import PowerOff
from autoscaler.agent.journal import log_line

DISARMED = (0, 1116)
"""Exit statuses of `shutdown /a`: done, and ERROR_NO_SHUTDOWN_IN_PROGRESS (WinError.h)."""

SCHEDULED = 1190
"""Exit status of `shutdown /s` while another is scheduled: ERROR_SHUTDOWN_IS_SCHEDULED (WinError.h)."""


def command(argv: list[str]) -> int | None:
    """Run one of the host's commands. Return its exit status, or None if it did not run to its end."""
    try:
        done = subprocess.run(  # noqa: S603 - argv comes from the root-only host file
            argv, check=False, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, timeout=60
        )
    except (OSError, subprocess.SubprocessError) as error:
        log_line(f"{argv[0]}: {type(error).__name__}")
        return None
    return done.returncode


def disarm(argv: list[str], tries: int = 5, pause: float = 2.0) -> None:
    """Cancel the scheduled shutdown. Raises PowerOff if this fails: the shutdown would kill a job."""
    for _ in range(tries):
        if command(argv) in DISARMED:
            return
        time.sleep(pause)
    raise PowerOff("the scheduled shutdown could not be cancelled")


def power_off(argv: list[str], cancel: list[str], tries: int = 3, pause: float = 20.0) -> None:
    """Power the machine off, and wait for it. If this fails, the end of the service does it.

    `cancel` cancels a scheduled shutdown. Where the user data's, which is up to 40 minutes away, still stands,
    Windows refuses another one.
    """
    for _ in range(tries):
        if command(argv) == SCHEDULED:
            command(cancel)
            command(argv)
        time.sleep(pause)
