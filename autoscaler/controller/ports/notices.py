"""A provider's notices as the controller reads them: what it will do to machines, and has done.

A notice is a hint and may be lost, late, repeated or forged: it marks a machine or makes the
controller look sooner. What has become of a machine is always asked of the provider itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from autoscaler.model.events import ListedMachine
from autoscaler.model.identifiers import Instant, ProviderMachineId, Seconds
from autoscaler.model.interruptions import NoticeKind


@dataclass(frozen=True, slots=True)
class Notice:
    """One notice that was understood. `means_at` is when the provider acts, or acted.

    `detail` is bounded, printable text.
    """

    kind: NoticeKind
    machines: tuple[ProviderMachineId, ...]
    means_at: Instant
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Message:
    """One message of the queue, to be settled by its `receipt`.

    `notice` is None where it is none of ours to understand, or (`poison`, the reason) where it can
    not be understood, or came too often; `excerpt` is its beginning, printable.
    """

    id: str
    receipt: str = field(repr=False)
    notice: Notice | None = None
    poison: str = ""
    excerpt: str = ""


class NoticeQueue(Protocol):
    """One provider's queue. Every method raises ProviderError and OutcomeUnknownError."""

    async def receive(self, wait: Seconds) -> tuple[Message, ...]:
        """The next messages, ten at most; waits so long (20 s at most, real time) for the first.

        What is not settled comes again after a while.
        """

    async def settle(self, receipts: Sequence[str]) -> None:
        """Take messages that one `receive` gave off the queue for good. Idempotent.

        One that was not taken comes again.
        """

    async def shown(self, machines: Sequence[ProviderMachineId]) -> tuple[ListedMachine, ...]:
        """What the provider shows of these machines now: no word by absence."""
