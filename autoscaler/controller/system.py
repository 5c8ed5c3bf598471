"""The system's clock and random ids. For the lab, the clock can run faster than real time.

The controller reads the system's time and randomness only here.
"""

import asyncio
import os
import secrets
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from autoscaler.model.identifiers import Instant, LaunchRequestId, MachineId, Seconds
from autoscaler.model.wording import duration

_FOLLOWED: Seconds = 1.0
"""A difference to the wall clock up to this one is followed at once: the host's clock is being adjusted."""

BELIEVED_AFTER: Seconds = 300.0
"""A wall clock that is ahead for so long is right: the host was suspended, or its clock was behind before."""

_CATCHES_UP = 0.5
"""How fast time passes while the wall clock is behind."""

MAX_SET_BACK: Seconds = 3600.0
"""A wall clock that stays behind by more than this is right: it was ahead, and would be reached too late."""


class ClockSetBackError(Exception):
    """The host's clock was set back so far that only a new process can use its time."""


@dataclass(slots=True)
class SystemClock:
    """The system's clock, which never goes back, optionally `scale` times as fast since `epoch`.

    Time passes as the monotonic clock says. If the wall clock is set back, time passes at half its speed
    until both agree; a wall clock that is ahead for a short time changes nothing. `stop_if_set_back` bounds
    the difference.

    Processes given the same `epoch` (Unix seconds) and `scale` agree on the time. `unscaled` and `monotonic`
    are the host's clocks, in seconds.
    """

    scale: float = 1.0
    epoch: Instant = 0.0
    unscaled: Callable[[], Instant] = time.time
    monotonic: Callable[[], Seconds] = time.monotonic
    _latest: Instant | None = field(default=None, init=False)
    _from: Instant = field(default=0.0, init=False)
    _from_at: Seconds = field(default=0.0, init=False)
    _speed: float = field(default=1.0, init=False)
    _ahead_since: Seconds | None = field(default=None, init=False)

    def wall(self) -> Instant:
        """Return the Unix seconds of the wall clock, for what others compare with theirs. It may go back."""
        return self.epoch + (self.unscaled() - self.epoch) * self.scale

    def now(self) -> Instant:
        """Return the Unix seconds of this clock."""
        wall, at = self.wall(), self.monotonic()
        if self._latest is None:
            self._latest = self._go_on(wall, at)
        else:
            self._latest = max(self._latest, self._next(wall, at))
        return self._latest

    def _next(self, wall: Instant, at: Seconds) -> Instant:
        now = self._from + (at - self._from_at) * self.scale * self._speed
        ahead = wall - now
        if abs(ahead) <= _FOLLOWED * self.scale:
            self._ahead_since = None
            return self._go_on(wall, at)
        if ahead < 0:
            self._ahead_since = None
            return self._go_on(now, at, _CATCHES_UP)
        self._ahead_since = at if self._ahead_since is None else self._ahead_since
        return self._go_on(wall if at - self._ahead_since >= BELIEVED_AFTER else now, at)

    def _go_on(self, now: Instant, at: Seconds, speed: float = 1.0) -> Instant:
        """Let time pass from here at this speed, unless it does: each new start would round the time."""
        follows = self._from + (at - self._from_at) * self.scale * self._speed
        if speed != self._speed or now != follows:
            self._from, self._from_at, self._speed = now, at, speed
        return now

    async def stop_if_set_back(self) -> None:
        """Watch the wall clock until it is set back by more than an hour, for five to ten minutes.

        A controller that starts again corrects the moments in its store. Raises ClockSetBackError.
        """
        behind = False
        while True:
            await asyncio.sleep(BELIEVED_AFTER)
            ahead = (self.now() - self.wall()) / self.scale
            was_behind, behind = behind, ahead > MAX_SET_BACK
            if was_behind and behind:
                raise ClockSetBackError(
                    f"the host's clock was set back by {duration(ahead)}: start the controller again, "
                    "so that it continues with the host's time"
                )

    async def sleep(self, seconds: Seconds) -> None:
        """Sleep for `seconds` of this clock's time."""
        await asyncio.sleep(seconds / self.scale)


def process_name() -> str:
    """Return words for operators that name this process: its host and its number."""
    return f"{socket.gethostname()}, process {os.getpid()}"


class RandomIds:
    """Creates random IDs."""

    def machine(self) -> MachineId:
        """Return 64 random bits in hexadecimal."""
        return MachineId(secrets.token_hex(8))

    def launch_request(self) -> LaunchRequestId:
        """Return 64 random bits in hexadecimal."""
        return LaunchRequestId(secrets.token_hex(8))

    def token(self) -> str:
        """Return 128 random bits in hexadecimal."""
        return secrets.token_hex(16)
