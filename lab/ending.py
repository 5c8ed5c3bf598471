"""Ends a program that stops when its standard input is closed."""

import contextlib
import os
import signal
import subprocess

PATIENCE = 30.0
"""Seconds until a program that does not stop by itself is killed."""


def end(process: subprocess.Popen[bytes], patience: float = PATIENCE) -> None:
    """Close the standard input of a program with a session of its own, and wait for its exit. Blocks.

    If it does not exit, kill its process group.
    """
    try:
        process.communicate(timeout=patience)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
