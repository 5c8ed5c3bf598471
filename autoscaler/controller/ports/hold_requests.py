"""The requests with which operators pause, drain, quarantine, resume and retry parts of the fleet."""

from dataclasses import dataclass
from typing import Protocol

from autoscaler.model.operators import OperatorName


@dataclass(frozen=True, slots=True)
class HoldOutcome:
    """What a request did, and what happens next, in sentences. `target` is as the commands accept it."""

    target: str
    done: str
    next: str


class HoldRequests(Protocol):
    """The requests of an operator about what the fleet uses. `by` is who sends it.

    `target` is `all`, the name of a SKU or a provider, or a machine's ID or its ID at its provider; with
    `sku/`, `provider/` or `machine/` before it where a name has several meanings. A repeated request changes
    nothing. Durable on return. Every request raises OperatorRequestRefusedError and StoreError.
    """

    async def pause(self, target: str, *, by: OperatorName) -> HoldOutcome:
        """Launch no machine of a SKU, at a provider or in the whole fleet."""

    async def drain(self, target: str, *, by: OperatorName) -> HoldOutcome:
        """Give a machine, or those of a SKU or a provider, no further job, and terminate them without one.

        Machines of a drained SKU or provider are not replaced: the drain pauses it, too.
        """

    async def quarantine(self, target: str, *, by: OperatorName) -> HoldOutcome:
        """Keep a machine without a job for inspection, for its SKU's `lifetime` at most."""

    async def resume(self, target: str, *, by: OperatorName) -> HoldOutcome:
        """End what `pause`, `drain` and `quarantine` began for this target."""

    async def retry(self, target: str, *, by: OperatorName) -> HoldOutcome:
        """End the holds of failures for a SKU, a provider or the fleet, and close its circuit breakers."""
