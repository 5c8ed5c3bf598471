"""What happened to the controller itself: it started, or only time passed."""

from dataclasses import dataclass

from autoscaler.model.events.event import Event
from autoscaler.model.identifiers import Seconds


@dataclass(frozen=True, slots=True)
class ControllerStarted(Event):
    """We are back; `absence` is how long nobody was deciding (0 on the first start)."""

    absence: Seconds


@dataclass(frozen=True, slots=True)
class TimePassed(Event):
    """Nothing happened but the time: lets the ledger forget what is old."""
