"""Stops a process in the middle of its work, after a given number of calls of its ports."""

import asyncio


class CrashPoint:
    """Counts a process's calls of its ports, and blocks the process for ever at the n-th.

    Each call is counted twice: before it has any effect, and before its answer arrives.
    """

    def __init__(self, count: int | None = None) -> None:
        self.calls = 0
        self.reached = asyncio.Event()
        self._count = count

    def arm(self, count: int) -> None:
        """Block at the `count`-th count from now on."""
        self._count = self.calls + count

    async def count_call(self) -> None:
        """Count a call. From the n-th time on, never return."""
        if not self.reached.is_set():
            self.calls += 1
            if self._count is None or self.calls < self._count:
                return
            self.reached.set()
        await asyncio.Event().wait()
