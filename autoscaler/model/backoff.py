"""The exponential delay of all retries, except those of the agent, which is a separate file."""

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
