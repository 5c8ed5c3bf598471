"""The controller started, a circuit breaker was closed, or time passed."""

from dataclasses import dataclass

from autoscaler.model.events.event import Event
from autoscaler.model.identifiers import Seconds, SkuName


@dataclass(frozen=True, slots=True)
class ControllerStarted(Event):
    """The controller started. `absence` is its downtime (0 at the first start)."""

    absence: Seconds


@dataclass(frozen=True, slots=True)
class CircuitClosed(Event):
    """A SKU's circuit breaker closes because its image was replaced.

    `detail` is text of bounded length for operators.
    """

    sku: SkuName
    detail: str


@dataclass(frozen=True, slots=True)
class ImageReplaced(Event):
    """A SKU launches another image than when its circuit breaker opened. `detail` is as in CircuitClosed."""

    sku: SkuName
    detail: str


@dataclass(frozen=True, slots=True)
class TimePassed(Event):
    """Time passed.

    The ledger expires jobs, marks idle runners and jobs as passed over, retries jobs on hold, gives up
    reruns, and prunes records that ended long ago.
    """
