"""Reads providers' notices from their queues, records them, and then deletes them from the queue.

A message that cannot be parsed is logged, counted and deleted. Notices that a provider takes a machine are
recorded at once. The machines of other notices are read at the provider first, by a task of its own: the
provider may be slow or fail, while the next notice is urgent.
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial

import structlog

from autoscaler.controller.effects import PeriodicTask
from autoscaler.controller.journal import Journal
from autoscaler.controller.ports.capabilities import Message, Notice, NoticeQueue
from autoscaler.controller.ports.clock import Clock
from autoscaler.controller.ports.provider import OutcomeUnknownError, ProviderError
from autoscaler.controller.ports.telemetry import Telemetry
from autoscaler.controller.wakeups import Wakeups
from autoscaler.ledger.machines.interruptions import is_unexplained
from autoscaler.model.backoff import Backoff
from autoscaler.model.events import Event, MachineNoticed, MachinesListed
from autoscaler.model.identifiers import ProviderMachineId, ProviderName, Seconds
from autoscaler.model.machines.interruptions import NoticeKind

WAIT: Seconds = 20.0
"""Longest wait of one request that SQS allows (real seconds)."""

PAUSES = Backoff(5.0, 30.0)
"""Pause after a failed read, or longer if the provider asks for it. Short, because AWS warns two minutes before
it takes a spot instance (EC2 User Guide, "Spot Instance interruption notices").
"""

AT_ONCE = 10
"""State changes whose machines are read together; one by one after a failure, which one machine may cause."""

MOST_CHANGES = 5000
"""State changes that are kept until their machines are read, the last ones. Listings show the others."""

POISON = "poison"
OTHER = "other"

_log = structlog.get_logger(__name__)


class NoticeReader:
    """Reads each queue in a task of its own, so that one failing queue does not delay the others."""

    def __init__(
        self,
        journal: Journal,
        queues: Mapping[ProviderName, NoticeQueue],
        telemetry: Telemetry,
        clock: Clock,
    ) -> None:
        self._journal = journal
        self._queues = queues
        self._telemetry = telemetry
        self._clock = clock
        self._changes: dict[ProviderName, dict[str, Message]] = {name: {} for name in queues}
        """State changes whose machines were not read yet, by the message's ID."""
        self._news: Wakeups[ProviderName] = Wakeups(clock)

    @property
    def tasks(self) -> list[PeriodicTask]:
        """Two endless tasks for each queue."""
        return [
            partial(self._repeat, name, task, warn)
            for name in self._queues
            for task, warn in (
                (self._read_messages, partial(_log.warning, "notices_not_read")),
                (self._read_noticed, partial(_log.warning, "noticed_machines_not_read")),
            )
        ]

    async def _repeat(
        self,
        name: ProviderName,
        read: Callable[[ProviderName, int], Awaitable[None]],
        warn: Callable[..., None],
    ) -> None:
        """Call `read` until cancelled, with the number of failures in a row. Log each failure with `warn`."""
        failures = 0
        while True:
            try:
                await read(name, failures)
            except (ProviderError, OutcomeUnknownError) as error:
                warn(provider=name, error=str(error))
                await self._clock.sleep(max(PAUSES.delay(failures), error.retry_after or 0.0))
                failures += 1
            else:
                failures = 0

    async def _read_messages(self, name: ProviderName, _: int) -> None:
        await self.read(name)

    async def _read_noticed(self, name: ProviderName, failures: int) -> None:
        while not self._changes[name]:
            await self._news.wait(name, WAIT)
        await self.read_machines(name, 1 if failures else AT_ONCE)

    async def read(self, name: ProviderName) -> int:
        """Receive and record messages once. Return the number of messages.

        Settles all but the state changes of this fleet's machines: `read_machines` settles those.
        Raises: ProviderError, OutcomeUnknownError, StoreError.
        """
        queue = self._queues[name]
        messages = await queue.receive(WAIT)
        if not messages:
            return 0
        notices = [self._parsed(name, message) for message in messages]
        now = self._journal.now
        events: list[Event] = [
            MachineNoticed(now, name, machine, one.kind, one.means_at, one.detail)
            for one in notices
            if one is not None
            for machine in one.machines
        ]
        ended = tuple(one.ended for one in notices if one is not None and one.ended is not None)
        if ended:
            events.append(MachinesListed(now, name, now, False, ended))
        # Durable before the message is deleted, so that a crash in between loses no notice.
        await self._journal.record(*events)
        changes = {
            message.id: message
            for message, one in zip(messages, notices, strict=True)
            if one is not None and one.kind is NoticeKind.STATE_CHANGE and self._changed(message)
        }
        kept = self._changes[name]
        kept.update(changes)
        while len(kept) > MOST_CHANGES:
            del kept[next(iter(kept))]
        self._news.wake(name)
        done = [message.receipt for message in messages if message.id not in changes]
        if done:
            await queue.settle(done)
        return len(messages)

    async def read_machines(self, name: ProviderName, most: int = AT_ONCE) -> None:
        """Read and record the machines of up to `most` state changes, and settle those.

        If it fails, the state changes are read again after the others.
        Raises: ProviderError, OutcomeUnknownError, StoreError.
        """
        queue, changes = self._queues[name], self._changes[name]
        chosen = {key: changes.pop(key) for key in tuple(changes)[:most]}
        machines = sorted({one for message in chosen.values() for one in self._changed(message)})
        try:
            if machines:
                began_at = self._journal.now
                shown = await queue.shown(machines)
                listed = MachinesListed(self._journal.now, name, began_at, False, shown)
                await self._journal.record(listed)
        except BaseException:
            # A message may have been received again meanwhile: its newer receipt stays.
            changes.update({key: changes.get(key, message) for key, message in chosen.items()})
            raise
        await queue.settle([changes.pop(key, chosen[key]).receipt for key in chosen])

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

    def _changed(self, message: Message) -> list[ProviderMachineId]:
        """Return the machines of a notice that must be read."""
        if message.notice is None or message.notice.ended is not None:
            return []
        machines = message.notice.machines
        return [machine for machine in machines if self._needs_reading(machine)]

    def _needs_reading(self, provider_id: ProviderMachineId) -> bool:
        """Return True if the machine may exist, or if a late notice may explain why it disappeared."""
        state = self._journal.ledger.state
        known = state.by_provider_id.get(provider_id)
        if known is None:
            return False
        machine = state.machines[known]
        return machine.occupies or is_unexplained(machine)
