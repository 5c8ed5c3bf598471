"""The exponential delay of everything that is tried again, except for the agent, which is a file of its own."""

from dataclasses import dataclass

from autoscaler.model.identifiers import Seconds


@dataclass(frozen=True, slots=True)
class Backoff:
    """An exponential delay: `first` seconds, doubled with each further failure, at most `longest`."""

    first: Seconds
    longest: Seconds

    def delay(self, failures_before: int) -> Seconds:
        """Return the delay after a failure that follows `failures_before` failures."""
        return min(self.first * 2.0 ** min(failures_before, 16), self.longest)
