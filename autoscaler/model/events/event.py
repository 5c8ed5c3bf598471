"""What every fact has: the moment at which it was learned, never the one at which it was so."""

from dataclasses import dataclass

from autoscaler.model.identifiers import Instant


@dataclass(frozen=True, slots=True)
class Event:
    """What all facts share: when the controller learned it (Unix seconds)."""

    at: Instant
