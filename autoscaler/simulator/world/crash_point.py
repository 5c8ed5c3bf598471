"""Stops a process in the middle of its work, after a given number of calls of its ports."""

import asyncio


class CrashPoint:
    """Counts a process's calls of its ports, and blocks the process for ever at the n-th.

    Each call is counted twice: before it has any effect, and before its answer arrives.
    """

    def __init__(self, length: int | None = None) -> None:
        self.burnt = 0
        self.blown = asyncio.Event()
        self._length = length

    def light(self, length: int) -> None:
        """Block at the `length`-th count from now on."""
        self._length = self.burnt + length

    async def burn(self) -> None:
        """Count a call. From the n-th time on, never return."""
        if not self.blown.is_set():
            self.burnt += 1
            if self._length is None or self.burnt < self._length:
                return
            self.blown.set()
        await asyncio.Event().wait()
