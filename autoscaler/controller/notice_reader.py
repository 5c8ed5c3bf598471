"""Reads providers' notices from their queues, records them, and then deletes them from the queue.

A message that cannot be parsed is logged, counted and deleted. A message that could not be applied
is received again later, and does not delay others: each may say that a provider takes a machine.
"""

from collections.abc import Mapping, Sequence
from functools import partial

import structlog

from autoscaler.controller.journal import Journal
from autoscaler.controller.poller import PeriodicTask
from autoscaler.controller.ports.clock import Clock
from autoscaler.controller.ports.notices import Message, Notice, NoticeQueue
from autoscaler.controller.ports.provider import OutcomeUnknownError, ProviderError
from autoscaler.controller.ports.telemetry import NoticeTelemetry
from autoscaler.ledger.interruptions import is_unexplained
from autoscaler.model.backoff import Backoff
from autoscaler.model.events import MachineNoticed, MachinesListed
from autoscaler.model.identifiers import ProviderMachineId, ProviderName, Seconds
from autoscaler.model.interruptions import NoticeKind

WAIT: Seconds = 20.0
"""Longest wait of one request that SQS allows (real seconds)."""

PAUSES = Backoff(5.0, 30.0)
"""Pause after a queue could not be read. Short, because AWS warns two minutes before it takes a spot instance
(EC2 User Guide, "Spot Instance interruption notices").
"""

POISON = "poison"
OTHER = "other"

_log = structlog.get_logger(__name__)


class NoticeReader:
    """Reads each queue in a task of its own, so that one failing queue does not delay the others."""

    def __init__(
        self,
        journal: Journal,
        queues: Mapping[ProviderName, NoticeQueue],
        telemetry: NoticeTelemetry,
        clock: Clock,
    ) -> None:
        self._journal = journal
        self._queues = queues
        self._telemetry = telemetry
        self._clock = clock

    @property
    def tasks(self) -> list[PeriodicTask]:
        """One endless task for each queue."""
        return [partial(self._read_repeatedly, name) for name in self._queues]

    async def _read_repeatedly(self, name: ProviderName) -> None:
        failures = 0
        while True:
            try:
                await self.read(name)
            except (ProviderError, OutcomeUnknownError) as error:
                _log.warning("notices_not_read", provider=name, error=str(error))
                await self._clock.sleep(max(PAUSES.delay(failures), error.retry_after or 0.0))
                failures += 1
            else:
                failures = 0

    async def read(self, name: ProviderName) -> int:
        """Receive, apply and settle messages once. Return the number of messages.

        Raises: ProviderError, OutcomeUnknownError, StoreError.
        """
        queue = self._queues[name]
        messages = await queue.receive(WAIT)
        if not messages:
            return 0
        notices = [self._parsed(name, message) for message in messages]
        parsed = [notice for notice in notices if notice is not None]
        events = [
            MachineNoticed(self._journal.now, name, machine, one.kind, one.means_at, one.detail)
            for one in parsed
            for machine in one.machines
        ]
        # Durable before the message is deleted, so that a crash in between loses no notice.
        await self._journal.record(*events)
        waiting = {
            message.receipt
            for message, one in zip(messages, notices, strict=True)
            if one is not None and one.kind is NoticeKind.STATE_CHANGE
        }
        try:
            await self._read_machines(name, queue, parsed)
        except (ProviderError, OutcomeUnknownError) as error:
            # State changes are received again. The other notices are recorded: delete their messages.
            _log.warning("noticed_machines_not_read", provider=name, error=str(error))
        else:
            waiting.clear()
        done = [message.receipt for message in messages if message.receipt not in waiting]
        if done:
            await queue.settle(done)
        return len(messages)

    def _parsed(self, name: ProviderName, message: Message) -> Notice | None:
        kind = message.notice.kind if message.notice is not None else OTHER
        if message.poison:
            kind = POISON
            _log.warning(
                "notice_discarded",
                provider=name,
                message=message.id,
                reason=message.poison,
                excerpt=message.excerpt,
            )
        self._telemetry.notice(name, kind)
        return None if message.poison else message.notice

    async def _read_machines(
        self, name: ProviderName, queue: NoticeQueue, notices: Sequence[Notice]
    ) -> None:
        """Read and record the machines of this fleet whose state has changed according to the notices."""
        changed = {
            machine
            for one in notices
            if one.kind is NoticeKind.STATE_CHANGE
            for machine in one.machines
            if self._needs_reading(machine)
        }
        if not changed:
            return
        began_at = self._journal.now
        shown = await queue.shown(sorted(changed))
        await self._journal.record(MachinesListed(self._journal.now, name, began_at, False, shown))

    def _needs_reading(self, provider_id: ProviderMachineId) -> bool:
        """Return True if the machine may exist, or if a late notice may explain why it disappeared."""
        state = self._journal.ledger.state
        known = state.by_provider_id.get(provider_id)
        if known is None:
            return False
        machine = state.machines[known]
        return machine.occupies or is_unexplained(machine)
