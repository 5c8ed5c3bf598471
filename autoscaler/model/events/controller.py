"""What happened to the controller itself: it started, or only time passed."""

from dataclasses import dataclass

from autoscaler.model.events.event import Event
from autoscaler.model.identifiers import Seconds, SkuName


@dataclass(frozen=True, slots=True)
class ControllerStarted(Event):
    """We are back; `absence` is how long nobody was deciding (0 on the first start)."""

    absence: Seconds


@dataclass(frozen=True, slots=True)
class CircuitClosed(Event):
    """A SKU's circuit breaker closes: its image was replaced, or an operator says so.

    `detail` is bounded text for people.
    """

    sku: SkuName
    detail: str
    by_operator: bool = False


@dataclass(frozen=True, slots=True)
class TimePassed(Event):
    """Nothing happened but the time.

    Jobs expire, idle runners and the jobs they were not given are marked, held jobs are offered again,
    re-runs are given up, and what ended long ago is forgotten.
    """
