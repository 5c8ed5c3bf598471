"""Starts a program again that Wine did not start. The end of Lib/subprocess.py on the lab's Windows machines.

On a busy host a new process of Wine sometimes ends before its first instruction. CreateProcess then fails
with ERROR_INTERNAL_ERROR (Wine, dlls/ntdll/unix/process.c, NtCreateUserProcess).
"""

import time
from collections.abc import Callable
from typing import Any

INTERNAL_ERROR = 1359
TRIES = 5
PAUSE = 0.2
"""Seconds between two tries."""


def retried(create_process: Callable[..., Any]) -> Callable[..., Any]:
    """Return a CreateProcess that tries again after this error only. Raises what the last try raised."""

    def create_again(*arguments: Any) -> Any:
        for _ in range(TRIES - 1):
            try:
                return create_process(*arguments)
            except OSError as error:
                if getattr(error, "winerror", None) != INTERNAL_ERROR:
                    raise
            time.sleep(PAUSE)
        return create_process(*arguments)

    return create_again
