"""For how long a process is still sure to hold the lease, by its own clock."""

import math
import time
from collections.abc import Callable

from autoscaler.controller.ports.replicas import LEADER_CLOCK, LEASE_LENGTH, LEASE_MARGIN
from autoscaler.model.identifiers import Seconds


def leader_clock() -> Seconds:
    """Return the seconds of LEADER_CLOCK."""
    return time.clock_gettime(LEADER_CLOCK)


class LeaseTime:
    """Until when this process is sure to lead. A store reads it, and reports each renewal to it."""

    def __init__(self, clock: Callable[[], Seconds] = leader_clock) -> None:
        self._clock = clock
        self._until = -math.inf

    def now(self) -> Seconds:
        """Return the time to give to `renewed`. Call it before the renewal is sent.

        The store may carry the renewal out at once and answer late. The process may even stand still meanwhile.
        """
        return self._clock()

    def renewed(self, sent_at: Seconds) -> None:
        """Note a durable renewal that was sent at this moment."""
        self._until = sent_at + LEASE_LENGTH - LEASE_MARGIN

    def lost(self) -> None:
        """Note that another process has the lease, or that this one gave it up."""
        self._until = -math.inf

    def left(self) -> Seconds:
        """Return the seconds that are left; 0 or less: another process may lead."""
        return self._until - self._clock()
