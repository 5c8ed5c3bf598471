"""A provider's notices about machines, such as interruptions and state changes.

A notice is only a hint: it may be lost, late, repeated or forged. It marks a machine or makes the
controller read it sooner. The state of a machine is always read from the provider.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from autoscaler.model.events import ListedMachine
from autoscaler.model.identifiers import Instant, ProviderMachineId, Seconds
from autoscaler.model.machines.interruptions import NoticeKind


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
    """One provider's queue. Every method raises ProviderError and OutcomeUnknownError."""

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
