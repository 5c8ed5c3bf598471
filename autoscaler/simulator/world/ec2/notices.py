"""An account's queue of EC2 notices (EventBridge and SQS). Notices may be lost, late or repeated."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from autoscaler.controller.ports.capabilities import Message, Notice
from autoscaler.controller.ports.provider import OutcomeUnknownError
from autoscaler.model.events import ListedMachine
from autoscaler.model.identifiers import Instant, ProviderMachineId, Seconds
from autoscaler.model.machines.interruptions import NoticeKind
from autoscaler.simulator.world.ec2.provider import SimulatedProvider
from autoscaler.simulator.world.fault_schedule import FaultSchedule
from autoscaler.simulator.world.processes import count_call
from autoscaler.simulator.world.schedule import FaultKind

AT_MOST = 10
ON_THE_WAY: Seconds = 1.5
AGAIN_AFTER: Seconds = 20.0
HIDDEN_FOR: Seconds = 60.0
"""SQS visibility timeout: how long a received message stays hidden if it is not deleted."""


@dataclass(eq=False, slots=True)
class _Waiting:
    """A message in the queue, shown from a moment on."""

    message: Message
    shown_from: Instant


class SimulatedNotices:
    """Implements the NoticeQueue port.

    `processed_at` has by machine when the first notice of its end was deleted from the queue.
    """

    def __init__(
        self, provider: SimulatedProvider, fault_schedule: FaultSchedule, now: Callable[[], Instant]
    ) -> None:
        self._provider = provider
        self._fault_schedule = fault_schedule
        self._now = now
        self.processed_at: dict[ProviderMachineId, Instant] = {}
        self._waiting: dict[str, _Waiting] = {}
        self._came = asyncio.Event()
        self._said = 0

    def send_event(self, kind: NoticeKind, machine: ProviderMachineId, means_at: Instant) -> None:
        """Send an event to EventBridge."""
        hit = self._fault_schedule.hit
        if hit(FaultKind.NOTICE_LOST):
            return
        late = hit(FaultKind.NOTICE_LATE)
        after = ON_THE_WAY if late is None else float(late.target)
        if hit(FaultKind.NOTICE_POISONED):
            self._send(None, after)
            return
        notice = Notice(kind, (machine,), means_at, "sent by the world")
        self._send(notice, after)
        if hit(FaultKind.NOTICE_REPEATED):
            self._send(notice, after + AGAIN_AFTER)

    async def receive(self, wait: Seconds) -> tuple[Message, ...]:
        """Return up to ten visible messages, or none after the wait."""
        await self._request()
        until = self._now() + wait
        while not (shown := self._shown()) and self._now() < until:
            self._came.clear()
            try:
                async with asyncio.timeout(until - self._now()):
                    await self._came.wait()
            except TimeoutError:
                break
        for waiting in shown:
            waiting.shown_from = self._now() + HIDDEN_FOR
        await count_call()
        return tuple(waiting.message for waiting in shown)

    async def settle(self, receipts: Sequence[str]) -> None:
        """Delete processed messages."""
        await self._request()
        for receipt in receipts:
            done = self._waiting.pop(receipt, None)
            notice = done.message.notice if done is not None else None
            if notice is not None and notice.kind is not NoticeKind.STATE_CHANGE:
                for machine in notice.machines:
                    self.processed_at.setdefault(machine, self._now())
        await count_call()

    async def shown(self, machines: Sequence[ProviderMachineId]) -> tuple[ListedMachine, ...]:
        """Return how the provider shows these machines."""
        await self._request()
        return self._provider.show(machines)

    async def _request(self) -> None:
        await count_call()
        if self._fault_schedule.hit(FaultKind.QUEUE_FAILS):
            raise OutcomeUnknownError("the connection broke")

    def _send(self, notice: Notice | None, after: Seconds) -> None:
        self._said += 1
        number, poison = f"n-{self._said}", "" if notice is not None else "no JSON"
        message = Message(number, number, notice, poison)
        asyncio.get_running_loop().call_later(after, self._arrive, message)

    def _arrive(self, message: Message) -> None:
        self._waiting[message.receipt] = _Waiting(message, self._now())
        self._came.set()

    def _shown(self) -> list[_Waiting]:
        now = self._now()
        return [one for one in self._waiting.values() if one.shown_from <= now][:AT_MOST]
