"""Ids that count up, so that a run can be repeated."""

from autoscaler.model.identifiers import LaunchRequestId, MachineId


class SequentialIds:
    """Counts up, so that a run can be repeated. One for all processes of an installation."""

    def __init__(self) -> None:
        self._last = 0

    def machine(self) -> MachineId:
        """Return the next number."""
        return MachineId(self._next())

    def launch_request(self) -> LaunchRequestId:
        """Return the next number."""
        return LaunchRequestId(self._next())

    def token(self) -> str:
        """Return the next number as a token."""
        return f"token-{self._next()}"

    def _next(self) -> str:
        self._last += 1
        return f"{self._last:016x}"
