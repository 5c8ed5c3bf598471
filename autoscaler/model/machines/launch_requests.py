"""The LaunchRequest record: one request to a provider for machines of one SKU, and its slots."""

from dataclasses import dataclass
from enum import StrEnum

from autoscaler.model.catalogue import CapacityType, Catalogue, LaunchOption
from autoscaler.model.identifiers import (
    Instant,
    LaunchRequestId,
    MachineId,
    ProviderName,
    Seconds,
    SkuName,
)
from autoscaler.model.machines.failures import FailureClass

REPEAT_WINDOW: Seconds = 600.0
"""How long after it was first sent a launch request with unknown outcome may be sent again."""


class LaunchRequestState(StrEnum):
    """recorded: stored, not sent. sent: no answer yet. unknown: no answer arrived. settled: over."""

    RECORDED = "recorded"
    SENT = "sent"
    UNKNOWN = "unknown"
    SETTLED = "settled"


LAUNCH_REQUEST_TRANSITIONS: dict[LaunchRequestState, frozenset[LaunchRequestState]] = {
    LaunchRequestState.RECORDED: frozenset({LaunchRequestState.SENT, LaunchRequestState.SETTLED}),
    LaunchRequestState.SENT: frozenset(
        {LaunchRequestState.SENT, LaunchRequestState.UNKNOWN, LaunchRequestState.SETTLED}
    ),
    LaunchRequestState.UNKNOWN: frozenset({LaunchRequestState.SENT, LaunchRequestState.SETTLED}),
    LaunchRequestState.SETTLED: frozenset(),
}


@dataclass(slots=True)
class LaunchRequest:
    """One request for `len(slots)` machines. Moments are Unix seconds."""

    id: LaunchRequestId
    sku: SkuName
    provider: ProviderName
    option: int
    """Index of the SKU's launch option."""
    capacity_type: CapacityType
    offerings: tuple[str, ...]
    """Keys of the offerings from which the provider may choose."""
    slots: tuple[MachineId, ...]
    token: str
    """The provider's idempotency token."""
    body: str
    """The exact request as text, with resolved image and template version, for identical repeats."""
    state: LaunchRequestState
    created_at: Instant
    sent_at: Instant | None = None
    last_sent_at: Instant | None = None
    attempts: int = 0
    settled_at: Instant | None = None
    full_listings: int = 0
    """Complete listings that began after the request was last sent.

    After two of them, slots of a request without an answer are written off.
    """
    last_listed_at: Instant | None = None
    """When the latest of these listings began."""
    failure: FailureClass | None = None
    reason: str = ""

    def offering(self, named: str | None) -> str | None:
        """Return the request's offering that a provider names, with its target; other names as they are.

        A provider's answer names an instance type, a zone and a capacity type. The request says the target.
        """
        for key in self.offerings:
            if named is not None and (key == named or key.startswith(f"{named}/")):
                return key
        return named

    def option_in(self, catalogue: Catalogue) -> LaunchOption | None:
        """Return the launch option, or None if the configuration does not have it any more."""
        sku = catalogue.skus.get(self.sku)
        if sku is None or self.option >= len(sku.launch_options):
            return None
        option = sku.launch_options[self.option]
        return option if option.provider == self.provider else None

    def is_given_up(self, now: Instant) -> bool:
        """Return True after the retry window.

        Then unfilled slots count against limits, but not as supply.
        """
        return self.sent_at is not None and now >= self.sent_at + REPEAT_WINDOW
