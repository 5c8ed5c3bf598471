"""Sends an App's signed webhooks, without retries, and applies delivery faults.

Headers and limits: GitHub's documentation on webhook deliveries and on validating them.
"""

import asyncio
import hmac
import random
import uuid
from collections import Counter
from collections.abc import Mapping
from functools import partial

import aiohttp

from autoscaler.controller.ports.clock import Clock
from lab.github.deliveries import Delivery, DeliveryLog, Message
from lab.github.settings import (
    ENTERPRISE_VERSION,
    DeliveryFaults,
    LabApp,
    LabGitHubOptions,
)
from lab.github.timers import Timers

RESPONSE_KEPT = 2000
_ENTERPRISE = {
    "X-GitHub-Enterprise-Host": "127.0.0.1",
    "X-GitHub-Enterprise-Version": ENTERPRISE_VERSION,
}


class Webhook:
    """One App's webhook. `faults` and `url` may be changed at any time.

    `outcomes` counts ok, failed, redelivered, and faults: broken, dropped, duplicated, held.
    """

    def __init__(
        self, app: LabApp, hook_id: int, clock: Clock, timers: Timers, options: LabGitHubOptions
    ) -> None:
        self.app_id = app.id
        self.hook_id = hook_id
        self.url = app.webhook_url
        self.faults: DeliveryFaults = options.faults
        self.log = DeliveryLog()
        self.outcomes: Counter[str] = Counter()
        # An Enterprise Server names itself; github.com does not.
        self._enterprise = dict(_ENTERPRISE) if options.base_path else {}
        self._secret = app.webhook_secret.encode()
        self._clock = clock
        self._timers = timers
        self._timeout = aiohttp.ClientTimeout(total=options.delivery_timeout)
        self._concurrency = options.delivery_concurrency
        self._random = random.Random(f"{options.seed} webhook {app.id}")  # noqa: S311 - faults
        self._queue: asyncio.Queue[Delivery] = asyncio.Queue()
        self._senders: list[asyncio.Task[None]] = []
        self._session: aiohttp.ClientSession | None = None

    def point(self, url: str, secret: str) -> None:
        """Deliver to this URL, signed with this secret, from now on."""
        self.url, self._secret = url, secret.encode()

    def start(self) -> None:
        """Start sending."""
        connector = aiohttp.TCPConnector(limit=self._concurrency)
        self._session = aiohttp.ClientSession(connector=connector, timeout=self._timeout)
        self._senders = [
            asyncio.create_task(self._send_all(self._session)) for _ in range(self._concurrency)
        ]

    async def close(self) -> None:
        """Stop sending; unsent events stay pending. Raises the error of a failed sender."""
        for sender in self._senders:
            sender.cancel()
        ends = await asyncio.gather(*self._senders, return_exceptions=True)
        self._senders = []
        if self._session is not None:
            await self._session.close()
        for end in ends:
            if isinstance(end, Exception):
                raise end

    async def sent(self) -> None:
        """Return once every queued event has been attempted."""
        await self._queue.join()

    def deliver(
        self,
        event: str,
        action: str | None,
        parts: tuple[bytes, ...],
        about: tuple[int, int] | None,
    ) -> None:
        """Deliver an event once. `about` is its (installation ID, repository ID).

        Does nothing without a URL, like an inactive webhook.
        """
        if self.url is None:
            return
        installation, repository = about if about is not None else (None, None)
        message = Message(str(uuid.uuid4()), event, action, installation, repository, parts)
        if self._random.random() < self.faults.drop:
            self.outcomes["dropped"] += 1
            return
        if self._random.random() < self.faults.fail:
            self.outcomes["broken"] += 1
            delivery = self.log.add(message, self._clock.now(), redelivery=False)
            self._ended(delivery, 502, "failed to connect to host")
            return
        if self._random.random() < self.faults.reorder:
            self.outcomes["held"] += 1
            later = self._clock.now() + self._random.random() * self.faults.hold
            self._timers.at(later, partial(self._enqueue, message))
        else:
            self._enqueue(message)
        if self._random.random() < self.faults.duplicate:
            self.outcomes["duplicated"] += 1
            self._enqueue(message)

    def headers(self, message: Message, body: bytes) -> dict[str, str]:
        """Return the headers to send with this body."""
        return {
            **self._enterprise,
            "Accept": "*/*",
            "Content-Type": "application/json",
            "User-Agent": "GitHub-Hookshot/lab0001",
            "X-GitHub-Delivery": message.guid,
            "X-GitHub-Event": message.event,
            "X-GitHub-Hook-ID": str(self.hook_id),
            "X-GitHub-Hook-Installation-Target-ID": str(self.app_id),
            "X-GitHub-Hook-Installation-Target-Type": "integration",
            "X-Hub-Signature": f"sha1={hmac.digest(self._secret, body, 'sha1').hex()}",
            "X-Hub-Signature-256": f"sha256={hmac.digest(self._secret, body, 'sha256').hex()}",
        }

    def redeliver(self, delivery: Delivery) -> None:
        """Deliver a message again: a new entry in the log with the same GUID."""
        self.outcomes["redelivered"] += 1
        self._enqueue(delivery.message, redelivery=True)

    def _enqueue(self, message: Message, *, redelivery: bool = False) -> None:
        entry = self.log.add(message, self._clock.now(), redelivery=redelivery)
        self._queue.put_nowait(entry)

    async def _send_all(self, session: aiohttp.ClientSession) -> None:
        while True:
            delivery = await self._queue.get()
            try:
                await self._send(session, delivery)
            finally:
                self._queue.task_done()

    async def _send(self, session: aiohttp.ClientSession, delivery: Delivery) -> None:
        body = delivery.message.body()
        headers = self.headers(delivery.message, body)
        if self.url is None:
            self._ended(delivery, 0, "not configured")
            return
        try:
            async with session.post(
                self.url, data=body, headers=headers, allow_redirects=False
            ) as answer:
                text = await answer.content.read(RESPONSE_KEPT)
                self._answered(delivery, answer.status, answer.headers, text)
        except TimeoutError:
            self._ended(delivery, 504, "timed out")
        except aiohttp.ClientError:
            self._ended(delivery, 502, "failed to connect to host")

    def _answered(
        self, delivery: Delivery, status: int, headers: Mapping[str, str], text: bytes
    ) -> None:
        delivery.response_headers = dict(headers)
        delivery.response = text.decode("utf-8", "replace")
        good = 200 <= status < 300
        self._ended(delivery, status, "OK" if good else f"Invalid HTTP Response: {status}")

    def _ended(self, delivery: Delivery, code: int, status: str) -> None:
        delivery.status_code = code
        delivery.status = status
        delivery.duration = max(self._clock.now() - delivery.delivered_at, 0.0)
        self.outcomes["ok" if delivery.succeeded else "failed"] += 1
