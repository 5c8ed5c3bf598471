"""Time and ids as the controller gets them. Nothing in the product reads a clock another way."""

from typing import Protocol

from autoscaler.model.identifiers import Instant, LaunchRequestId, MachineId, Seconds


class Clock(Protocol):
    """Raises nothing but `asyncio.CancelledError`."""

    def now(self) -> Instant:
        """Unix seconds. Never goes back within a process."""

    async def sleep(self, seconds: Seconds) -> None:
        """Return after this much of this clock's time."""


class Ids(Protocol):
    """Where names that must not repeat come from."""

    def machine(self) -> MachineId:
        """16 hexadecimal digits, never given before."""

    def launch_request(self) -> LaunchRequestId:
        """16 hexadecimal digits, never given before."""

    def token(self) -> str:
        """An idempotency token: at most 64 ASCII characters."""
