"""The system's clock and random ids. For the lab, the clock can run faster than real time.

The controller reads the system's time and randomness only here.
"""

import asyncio
import secrets
import time
from dataclasses import dataclass, field

from autoscaler.model.identifiers import Instant, LaunchRequestId, MachineId, Seconds


@dataclass(slots=True)
class SystemClock:
    """The system's clock, which never goes back, optionally `scale` times as fast since `epoch`.

    Processes given the same `epoch` (Unix seconds) and `scale` agree on the time.
    """

    scale: float = 1.0
    epoch: Instant = 0.0
    _latest: Instant = field(default=0.0, init=False)

    def now(self) -> Instant:
        """Return the Unix seconds of this clock."""
        self._latest = max(self._latest, self.epoch + (time.time() - self.epoch) * self.scale)
        return self._latest

    async def sleep(self, seconds: Seconds) -> None:
        """Sleep for `seconds` of this clock's time."""
        await asyncio.sleep(seconds / self.scale)


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
