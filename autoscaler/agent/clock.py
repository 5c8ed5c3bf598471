"""The machine's time, random numbers, and delays between tries."""

from __future__ import annotations

import os
import time

from autoscaler.agent.limits import RETRY_FIRST, RETRY_MOST


def uniform() -> float:
    """Return a random number in [0, 1), from os.urandom, because importing `random` is slow."""
    return int.from_bytes(os.urandom(4), "big") / 2**32


class Clock:
    """The machine's time: monotonic seconds, `scale` of them per real second (1 except in a lab)."""

    def __init__(self, scale: float) -> None:
        self.scale = scale

    def now(self) -> float:
        """Return the seconds since a fixed moment."""
        return time.monotonic() * self.scale

    def sleep(self, seconds: float) -> None:
        """Return after `seconds` of this clock."""
        time.sleep(max(0.0, seconds) / self.scale)

    def real_timeout(self, seconds: float) -> float:
        """Return a timeout in real seconds: neither the network nor a program is faster in a lab."""
        return max(3.0, seconds / self.scale)


class Backoff:
    """Computes growing delays with jitter: half to all of 1, 2, 4 ... 30 seconds."""

    def __init__(self) -> None:
        self.tries = 0

    def reset(self) -> None:
        """Start again with the shortest delay."""
        self.tries = 0

    def next(self, retry_after: float | None = None) -> float:
        """Return the seconds until the next try, at least `retry_after`. 0 counts as no delay."""
        self.tries += 1
        if retry_after:
            return max(RETRY_FIRST, retry_after) * (1.0 + uniform() / 4)
        return min(RETRY_MOST, RETRY_FIRST * 2.0 ** min(self.tries - 1, 10)) * (0.5 + uniform() / 2)
