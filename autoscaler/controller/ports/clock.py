"""The controller's sources of time and ids."""

from typing import Protocol

from autoscaler.model.identifiers import Instant, LaunchRequestId, MachineId, Seconds


class Clock(Protocol):
    """A clock. Raises only `asyncio.CancelledError`."""

    def now(self) -> Instant:
        """Unix seconds. Never goes back within a process."""

    async def sleep(self, seconds: Seconds) -> None:
        """Sleep for `seconds` of this clock's time."""


class Ids(Protocol):
    """Makes unique ids."""

    def machine(self) -> MachineId:
        """16 hexadecimal digits, never given before."""

    def launch_request(self) -> LaunchRequestId:
        """16 hexadecimal digits, never given before."""

    def token(self) -> str:
        """An idempotency token: at most 64 ASCII characters."""
