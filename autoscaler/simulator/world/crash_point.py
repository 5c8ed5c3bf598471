"""Ends a process in the middle of its work: after so many calls of its ports it hears nothing more."""

import asyncio


class CrashPoint:
    """Counts a process's calls of its ports; at the n-th the process hears nothing any more.

    Every call passes it twice: before it has any effect, and after, before its answer arrives.
    """

    def __init__(self, length: int | None = None) -> None:
        self.burnt = 0
        self.blown = asyncio.Event()
        self._length = length

    def light(self, length: int) -> None:
        """Blow at the `length`-th call from now on."""
        self._length = self.burnt + length

    async def burn(self) -> None:
        """Return, or never: from the n-th time on nothing goes out and nothing comes back."""
        if not self.blown.is_set():
            self.burnt += 1
            if self._length is None or self.burnt < self._length:
                return
            self.blown.set()
        await asyncio.Event().wait()
