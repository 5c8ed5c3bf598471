"""What not every provider of machines has: notices, prices, quotas to keep, protection.

A notice is only a hint: it may be lost, late, repeated or forged. It marks a machine or makes the
controller read it sooner. The state of a machine is always read from the provider.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from autoscaler.controller.ports.provider_errors import OutcomeUnknownError, ProviderError
from autoscaler.model.catalogue import CapacityType, LaunchRate
from autoscaler.model.events import ListedMachine
from autoscaler.model.identifiers import Instant, ProviderMachineId, Seconds
from autoscaler.model.machines.interruptions import NoticeKind
from autoscaler.model.prices_and_quotas import Price, PriceSource, QuotaSource, Reading


@dataclass(frozen=True, slots=True)
class Notice:
    """One parsed notice. `means_at` is when the provider acts, or acted.

    `detail` is bounded, printable text. `ended` is set if the provider has shown the end of the only machine,
    which need not be read then.
    """

    kind: NoticeKind
    machines: tuple[ProviderMachineId, ...]
    means_at: Instant
    detail: str = ""
    ended: ListedMachine | None = None


@dataclass(frozen=True, slots=True)
class Message:
    """One message of the queue, to be settled by its `receipt`.

    `notice` is None if the message is of another kind, or if it cannot be parsed or was received too
    often (then `poison` is the reason). `excerpt` is its beginning as printable text.
    """

    id: str
    receipt: str = field(repr=False)
    notice: Notice | None = None
    poison: str = ""
    excerpt: str = ""


class NoticeQueue(Protocol):
    """One provider's queue. Every method raises ProviderError and OutcomeUnknownError.

    Decorate its class with `provider_errors`.
    """

    async def receive(self, wait: Seconds) -> tuple[Message, ...]:
        """Return up to ten messages. Waits up to `wait` seconds (20 at most, real time) for the first.

        A queue that keeps messages returns one that is not settled again later.
        """

    async def settle(self, receipts: Sequence[str]) -> None:
        """Delete messages of one `receive` from the queue. Idempotent.

        A message that could not be deleted may be received again.
        """

    async def shown(self, machines: Sequence[ProviderMachineId]) -> tuple[ListedMachine, ...]:
        """Return these machines as the provider shows them now. A missing machine proves nothing."""


@dataclass(frozen=True, slots=True)
class PriceAnswer:
    """The prices that a provider listed, and the first error of the requests that failed, if any."""

    prices: tuple[Price, ...]
    problem: ProviderError | OutcomeUnknownError | None = None


class PriceReader(Protocol):
    """A provider that lists its prices. `controller/money/price_refresh.py` has the interval."""

    @property
    def price_kinds(self) -> Collection[CapacityType]:
        """The capacity types whose prices the controller reads."""

    async def read_prices(self, capacity_type: CapacityType) -> PriceAnswer:
        """Return the prices of this capacity type that the configuration can use.

        If a request fails, only the prices of that request are missing. Raises OutcomeUnknownError for an
        error that the provider did not expect.
        """

    def use_prices(self, prices: Sequence[Price], source: PriceSource) -> bool:
        """Use these prices from now on. Return True if an offering has a new price."""

    def price_sources(self, capacity_type: CapacityType) -> Mapping[PriceSource, int]:
        """Return how many of the prices in use come from each source."""

    def known_prices(self, capacity_type: CapacityType) -> tuple[Price, ...]:
        """Return the prices in use that the provider listed, now or before a restart."""


class QuotaLimits(Protocol):
    """The limits behind `Provider.quotas`, which reads them anew each time it is called."""

    @property
    def problem(self) -> ProviderError | OutcomeUnknownError | None:
        """Why the last read failed, or None if it succeeded. After a failure the old quotas stay in use."""

    def use_kept(self, readings: Sequence[Reading]) -> None:
        """Use these stored quotas until the provider returns newer ones."""

    def readings(self) -> tuple[Reading, ...]:
        """Return the newest value of each quota that the provider returned."""

    def sources(self) -> Mapping[QuotaSource, int]:
        """Return how many of the quotas that the configuration needs come from each source."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """The limits of a provider's launches, and what not every provider has. Known before `open`."""

    largest_request: int
    """The maximum number of machines in one launch request."""
    launch_rate: LaunchRate | None = None
    """The rate limit of launch requests, and of the machines in them; None for no limit.

    The planner plans no more than this, so that no request waits in the provider.
    """
    notices: NoticeQueue | None = None
    """The provider's notices about machines, such as interruptions."""
    prices: PriceReader | None = None
    """The reader of the provider's prices; None if all prices are in the configuration."""
    limits: QuotaLimits | None = None
    """Where the values of `quotas` come from; None if none of them needs to be kept."""
    image_name: Callable[[str], str] | None = None
    """Returns the name of an image by its ID, or an empty text. None: the ID of an image is its name."""
    protect: Callable[[ProviderMachineId], Awaitable[None]] | None = None
    """Asks the provider not to interrupt a machine by choice, because it may run a job from now on.

    The controller calls this before it gives a machine its registration, and gives none after an error. A
    listing may show it afterwards (`ListedMachine.assigned`). Idempotent. Raises ProviderError (also for a
    machine that is going away), OutcomeUnknownError. None: the provider does not ask before an interruption.
    """
    mends: Mapping[str, str] = field(default_factory=dict)
    """What an operator can do, by the code of the provider's error, or by the name of a quota."""
