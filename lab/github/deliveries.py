"""The log of an App's webhook deliveries: newest first, paged by cursor, kept for three lab days."""

import bisect
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lab.github.shapes import timestamp

RETENTION = 3 * 86_400.0
FIRST_DELIVERY = 200_000_000_001


@dataclass(frozen=True, slots=True)
class Message:
    """One webhook event, which stays the same in every delivery.

    `parts` joined make the body; the longest of them is shared by all events of a repository.
    """

    guid: str
    event: str
    action: str | None
    installation_id: int | None
    repository_id: int | None
    parts: tuple[bytes, ...] = field(repr=False)

    def body(self) -> bytes:
        """The body: JSON."""
        return b"".join(self.parts)


@dataclass(slots=True, eq=False)
class Delivery:
    """One attempt to deliver a message. `status_code` is 0 until it ended; `duration` is lab seconds."""

    id: int
    message: Message
    delivered_at: float
    redelivery: bool
    status: str = "pending"
    status_code: int = 0
    duration: float = 0.0
    response_headers: dict[str, str] = field(default_factory=dict, repr=False)
    response: str = field(default="", repr=False)

    @property
    def succeeded(self) -> bool:
        """True if the answer had a 2xx status."""
        return 200 <= self.status_code < 300

    def shape(self) -> dict[str, Any]:
        """Return the delivery as the list of deliveries shows it."""
        message = self.message
        return {
            "id": self.id,
            "guid": message.guid,
            "delivered_at": timestamp(self.delivered_at),
            "redelivery": self.redelivery,
            "duration": round(self.duration, 2),
            "status": self.status,
            "status_code": self.status_code,
            "event": message.event,
            "action": message.action,
            "installation_id": message.installation_id,
            "repository_id": message.repository_id,
            "throttled_at": None,
        }

    def details(self, url: str | None, headers: Mapping[str, str]) -> dict[str, Any]:
        """Return one delivery as GitHub shows it, with its request headers and its response."""
        return {
            **self.shape(),
            "url": url or "",
            "request": {"headers": dict(headers), "payload": json.loads(self.message.body())},
            "response": {"headers": self.response_headers, "payload": self.response},
        }


class DeliveryLog:
    """One App's deliveries, oldest first in `entries`."""

    def __init__(self) -> None:
        self.entries: list[Delivery] = []

    def add(self, message: Message, now: float, *, redelivery: bool) -> Delivery:
        """Add an entry for an attempt that begins now."""
        delivery = Delivery(FIRST_DELIVERY + len(self.entries), message, now, redelivery)
        self.entries.append(delivery)
        return delivery

    def find(self, number: int, now: float) -> Delivery | None:
        """Return the delivery with this ID, or None if it is not kept (any more)."""
        index = number - FIRST_DELIVERY
        if not 0 <= index < len(self.entries):
            return None
        delivery = self.entries[index]
        return delivery if delivery.delivered_at > now - RETENTION else None

    def page(
        self, before: int | None, size: int, now: float, succeeded: bool | None
    ) -> tuple[list[Delivery], int | None]:
        """Return up to `size` entries older than the id `before`, and the next page's cursor."""
        oldest = bisect.bisect_right(
            self.entries, now - RETENTION, key=lambda entry: entry.delivered_at
        )
        index = len(self.entries) if before is None else before - FIRST_DELIVERY
        index = min(index, len(self.entries))
        found: list[Delivery] = []
        while index > oldest:
            index -= 1
            entry = self.entries[index]
            if succeeded is None or entry.succeeded is succeeded:
                found.append(entry)
                if len(found) == size:
                    return found, entry.id if index > oldest else None
        return found, None
