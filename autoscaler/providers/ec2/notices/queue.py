"""Implements `NoticeQueue` for the SQS queue with EventBridge's events about EC2.

Marks a message as poison if it is unreadable, or was received so often that processing it must have
failed each time. Deletes a message only in `settle`.
"""

from collections.abc import Callable, Sequence

from autoscaler.controller.ports.capabilities import Message
from autoscaler.controller.ports.provider import ProviderError, provider_errors
from autoscaler.model.events import ListedMachine
from autoscaler.model.identifiers import ProviderMachineId, Seconds
from autoscaler.model.machines.failures import FailureClass
from autoscaler.model.machines.interruptions import NoticeKind
from autoscaler.providers.ec2.instance_types import Prices
from autoscaler.providers.ec2.listing import list_instances, listed_machine
from autoscaler.providers.ec2.notices.events import PoisonError, parse_notice
from autoscaler.providers.ec2.settings import Ec2Settings
from autoscaler.providers.ec2.worker.rows import MessageRow
from autoscaler.providers.ec2.worker.throttle import MeteredApi

AT_ONCE = 10
"""The most messages that SQS returns in one answer, or deletes in one request."""

MOST_RECEIVES = 5
"""A message that is received more often is poison."""

_EXCERPT = 200


@provider_errors
class Ec2NoticeQueue:
    """One queue, read through the provider's own worker."""

    def __init__(
        self,
        settings: Ec2Settings,
        api: MeteredApi,
        url: str,
        prices: Callable[[], Prices] | None = None,
    ) -> None:
        """`prices` returns the current prices; default: those of the settings."""
        self._prices = prices or (lambda: settings.price_list)
        self._settings = settings
        self._api = api
        self._url = url

    async def receive(self, wait: Seconds) -> tuple[Message, ...]:
        """See `NoticeQueue`."""
        arguments = {"url": self._url, "wait": int(min(max(wait, 0), 20)), "most": AT_ONCE}
        rows = await self._api.call("ReceiveMessage", arguments)
        return tuple(self._message(MessageRow(*row)) for row in rows)

    async def settle(self, receipts: Sequence[str]) -> None:
        """See `NoticeQueue`."""
        arguments = {"url": self._url, "receipts": list(receipts)}
        refused = await self._api.call("DeleteMessageBatch", arguments)
        if refused:
            code, message = refused[0]
            raise ProviderError(FailureClass.UNKNOWN, code, message)

    async def shown(self, machines: Sequence[ProviderMachineId]) -> tuple[ListedMachine, ...]:
        """See `NoticeQueue`. Leaves out machines of other fleets."""
        found: list[ListedMachine] = []
        async for rows in list_instances(self._api, "instance-id", list(machines)):
            of_this_fleet = (row for row in rows if row.fleet == self._settings.fleet)
            prices = self._prices()
            found += [listed_machine(self._settings, row, prices) for row in of_this_fleet]
        return tuple(found)

    def _message(self, row: MessageRow) -> Message:
        excerpt = "".join(c if c.isprintable() else " " for c in row.body[:_EXCERPT])
        if row.receives > MOST_RECEIVES:
            poison = f"received {row.receives} times"
            return Message(row.id, row.receipt, poison=poison, excerpt=excerpt)
        try:
            notice = parse_notice(row.body)
        except PoisonError as error:
            return Message(row.id, row.receipt, poison=str(error), excerpt=excerpt)
        if notice is not None and notice.kind is NoticeKind.REBALANCE_RECOMMENDATION:
            notice = notice if self._settings.section.rebalance_recommendations else None
        return Message(row.id, row.receipt, notice)
