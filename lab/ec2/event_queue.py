"""Simulates an SQS queue with EventBridge's events about the lab's instances, over AWS JSON."""

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from email.utils import formatdate
from typing import Any

from lab.ec2.query import timestamp

SERVICE = "sqs"
NAME = "events"
"""The name of the lab's queue."""

CONTENT_TYPE = "application/x-amz-json-1.0"
VISIBILITY = 30.0
"""Visibility timeout in lab seconds: a received message that was not deleted is visible again."""

MATCHED_STATES = frozenset({"shutting-down", "stopping", "stopped", "terminated"})
"""The states that the EventBridge rule in docs/ec2.md matches."""

MOST_AT_ONCE = 10
_PREFIX = "AmazonSQS."


@dataclass(slots=True)
class _Message:
    id: str
    body: str
    visible_at: float = 0.0
    receives: int = 0
    receipt: str = ""


class EventQueue:
    """The queue of an account. `now` is lab time; long polls wait in real time."""

    def __init__(self, now: Callable[[], float], account: str, region: str) -> None:
        self._now = now
        self._account = account
        self._region = region
        self._messages: dict[str, _Message] = {}
        self._sent = 0
        self._arrived = asyncio.Event()
        self.deleted = 0

    def has(self, body: bytes) -> bool:
        """Return False if a request, as JSON, names another queue, which moto may have or make."""
        asked = json.loads(body)
        named = asked.get("QueueUrl") or asked.get("QueueName")
        return named is None or str(named).rpartition("/")[2] == NAME

    def __len__(self) -> int:
        """The number of messages that are not deleted."""
        return len(self._messages)

    def send(self, body: str) -> None:
        """Put a message into the queue as it is."""
        self._sent += 1
        message = _Message(f"m-{self._sent}", body)
        self._messages[message.id] = message
        self._arrived.set()

    def emit(self, kind: str, detail: Mapping[str, object], source: str = "aws.ec2") -> None:
        """Send an event in EventBridge's form."""
        event = {
            "version": "0",
            "id": f"e-{self._sent + 1}",
            "detail-type": kind,
            "source": source,
            "account": self._account,
            "time": timestamp(self._now(), ""),
            "region": self._region,
            "resources": [],
            "detail": dict(detail),
        }
        self.send(json.dumps(event))

    def state_changed(self, instance: str, state: str) -> None:
        """Send an EC2 Instance State-change Notification, if the rule matches the state."""
        if state in MATCHED_STATES:
            detail = {"instance-id": instance, "state": state}
            self.emit("EC2 Instance State-change Notification", detail)

    def spot_interruption(self, instance: str) -> None:
        """Send an EC2 Spot Instance Interruption Warning."""
        detail = {"instance-id": instance, "instance-action": "terminate"}
        self.emit("EC2 Spot Instance Interruption Warning", detail)

    def rebalance(self, instance: str) -> None:
        """Send an EC2 Instance Rebalance Recommendation."""
        self.emit("EC2 Instance Rebalance Recommendation", {"instance-id": instance})

    def scheduled_change(self, instance: str, starts_at: float) -> None:
        """Send an AWS Health event that announces a retirement."""
        detail = {
            "service": "EC2",
            "eventTypeCode": "AWS_EC2_PERSISTENT_INSTANCE_RETIREMENT_SCHEDULED",
            "eventTypeCategory": "scheduledChange",
            "statusCode": "upcoming",
            "startTime": formatdate(starts_at, usegmt=True),
            "affectedEntities": [{"entityValue": instance}],
        }
        self.emit("AWS Health Event", detail, "aws.health")

    async def answer(self, target: str, body: bytes) -> tuple[int, str]:
        """Return the HTTP status and body for a request with this X-Amz-Target."""
        handlers: dict[str, Callable[[Mapping[str, Any]], Awaitable[dict[str, Any]]]] = {
            "ReceiveMessage": self._receive,
            "DeleteMessageBatch": self._delete,
        }
        handler = handlers.get(target.removeprefix(_PREFIX))
        if handler is None:
            error = {"__type": "UnsupportedOperation", "message": f"The lab does not do {target}"}
            return 400, json.dumps(error)
        return 200, json.dumps(await handler(json.loads(body)))

    async def _receive(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        most = min(int(asked.get("MaxNumberOfMessages", 1)), MOST_AT_ONCE)
        found = self._visible(most)
        if not found:
            self._arrived.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(float(asked.get("WaitTimeSeconds", 0))):
                    await self._arrived.wait()
            found = self._visible(most)
        return {"Messages": [self._given(message) for message in found]} if found else {}

    def _visible(self, most: int) -> list[_Message]:
        now = self._now()
        return [one for one in self._messages.values() if one.visible_at <= now][:most]

    def _given(self, message: _Message) -> dict[str, Any]:
        message.receives += 1
        message.visible_at = self._now() + VISIBILITY
        message.receipt = f"{message.id}/{message.receives}"
        return {
            "MessageId": message.id,
            "ReceiptHandle": message.receipt,
            "Body": message.body,
            "Attributes": {"ApproximateReceiveCount": str(message.receives)},
        }

    async def _delete(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        taken, refused = [], []
        for entry in asked["Entries"]:
            name = entry["ReceiptHandle"].partition("/")[0]
            known = self._messages.get(name)
            if known is not None and known.receipt != entry["ReceiptHandle"]:
                fault = {"Code": "ReceiptHandleIsInvalid", "SenderFault": True}
                refused.append({"Id": entry["Id"], **fault})
                continue
            self.deleted += self._messages.pop(name, None) is not None
            taken.append({"Id": entry["Id"]})
        return {"Successful": taken, "Failed": refused}
