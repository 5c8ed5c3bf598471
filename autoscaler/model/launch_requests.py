"""The Call record: one request to a provider for some machines of one SKU, and its slots."""

from dataclasses import dataclass
from enum import StrEnum

from autoscaler.model.catalogue import CapacityType
from autoscaler.model.failures import FailureClass
from autoscaler.model.identifiers import (
    Instant,
    LaunchRequestId,
    MachineId,
    ProviderName,
    Seconds,
    SkuName,
)

REPEAT_WINDOW: Seconds = 600.0
"""For how long after its first sending a call with an unknown outcome may be repeated."""


class LaunchRequestState(StrEnum):
    """recorded: stored, not sent. sent: under way. unknown: no answer came. settled: done with."""

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
    """One request for `len(slots)` machines.

    `body` is the provider's exact request as text (image and template version resolved), so
    that a repeat is byte-identical; `token` is the provider's idempotency token. `offerings` are
    the keys of the offerings it may be answered from. `sweeps` counts the complete lists that
    began after the last sending, for writing off slots whose answer was lost; `swept_at` is when
    the latest of them began.
    """

    id: LaunchRequestId
    sku: SkuName
    provider: ProviderName
    option: int
    capacity_type: CapacityType
    offerings: tuple[str, ...]
    slots: tuple[MachineId, ...]
    token: str
    body: str
    state: LaunchRequestState
    created_at: Instant
    sent_at: Instant | None = None
    last_sent_at: Instant | None = None
    attempts: int = 0
    settled_at: Instant | None = None
    full_listings: int = 0
    last_listed_at: Instant | None = None
    failure: FailureClass | None = None
    reason: str = ""

    def is_given_up(self, now: Instant) -> bool:
        """Whether nobody repeats it any more: its unfilled slots are nobody's hope, and stay in the caps."""
        return self.sent_at is not None and now >= self.sent_at + REPEAT_WINDOW
