"""The controller's sources of time and ids."""

from typing import Protocol

from autoscaler.model.identifiers import Instant, LaunchRequestId, MachineId, Seconds


class Clock(Protocol):
    """A clock. Raises only `asyncio.CancelledError`."""

    def now(self) -> Instant:
        """Return Unix seconds. They never decrease within a process."""

    async def sleep(self, seconds: Seconds) -> None:
        """Sleep for `seconds` of this clock's time."""


class Ids(Protocol):
    """Creates unique IDs."""

    def machine(self) -> MachineId:
        """Return a new ID of 16 hexadecimal digits."""

    def launch_request(self) -> LaunchRequestId:
        """Return a new ID of 16 hexadecimal digits."""

    def token(self) -> str:
        """Return a new idempotency token: at most 64 ASCII characters."""
