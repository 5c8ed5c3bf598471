"""The base class of all events."""

from dataclasses import dataclass

from autoscaler.model.identifiers import Instant


@dataclass(frozen=True, slots=True)
class Event:
    """A fact that the controller learned."""

    at: Instant
    """When the controller learned the fact, which may be later than when it became true."""
