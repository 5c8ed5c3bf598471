"""A burst of deliveries on a host that is busy with other programs. In virtual time."""

import asyncio
import json
from collections import Counter
from dataclasses import dataclass, field

import pytest
from multidict import CIMultiDict

from autoscaler.controller.ports.store import Delivery
from autoscaler.model.deliveries import DeliveryAnswer
from autoscaler.server.webhook import WebhookEndpoint, WebhookLimits
from autoscaler.simulator.world.virtual_time import VirtualLoop
from tests.controller.virtual_time import on_virtual_time
from tests.server.doubles import CountingTelemetry, StillClock
from tests.server.fakes import delivery_headers, verify

BURST = 1_000
PER_SECOND = 50.0
LIMITS = WebhookLimits()


@dataclass
class SlowStore:
    """Stores all that waits in one write, as `GroupCommit` does. A write takes so many seconds."""

    seconds: float
    kept: int = 0
    waiting: list[asyncio.Future[bool]] = field(default_factory=list)
    writer: asyncio.Task[None] | None = None

    def accept(self, _: Delivery) -> asyncio.Future[bool]:
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.waiting.append(answer)
        if self.writer is None or self.writer.done():
            self.writer = asyncio.create_task(self.write())
        return answer

    async def write(self) -> None:
        while self.waiting:
            group, self.waiting = self.waiting, []
            await asyncio.sleep(self.seconds)
            self.kept += len(group)
            for answer in group:
                answer.set_result(True)


def lose(seconds: float) -> None:
    """Let the host run other programs: the clock goes on, and the loop does nothing."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    loop._time += seconds


async def burst(store: SlowStore, stalls: float) -> Counter[DeliveryAnswer]:
    """Send a burst. The process gets no processor for so many seconds, ten times."""
    endpoint = WebhookEndpoint(verify, store.accept, StillClock(), CountingTelemetry(), LIMITS)
    answers: list[asyncio.Task[DeliveryAnswer]] = []
    for number in range(BURST):
        if number % (BURST // 10) == BURST // 20:
            lose(stalls)
        body = json.dumps({"action": "queued", "number": number}).encode()
        headers = CIMultiDict(delivery_headers(body, str(number)))
        answers.append(asyncio.create_task(endpoint.process_delivery(headers, body, None)))
        await asyncio.sleep(1.0 / PER_SECOND)
    return Counter(await asyncio.gather(*answers))


@pytest.mark.parametrize(
    ("seconds", "stalls"), [(0.2, 0.0), (3.0, 0.0), (0.2, 8.0), (4.5, 3.0), (4.5, 30.0)]
)
@on_virtual_time
async def test_a_busy_host_accepts_a_burst_of_a_thousand(seconds: float, stalls: float) -> None:
    """At a load of ten, each write and each pass of the loop takes ten times as long."""
    store = SlowStore(seconds)
    assert await burst(store, stalls) == {DeliveryAnswer.ACCEPTED: BURST}
    assert store.kept == BURST


@on_virtual_time
async def test_deliveries_are_refused_while_a_disk_hangs() -> None:
    store = SlowStore(600.0)
    answers = await burst(store, 0.0)
    assert set(answers) == {DeliveryAnswer.ACCEPTED, DeliveryAnswer.STORE_STALLED}
    # Those that arrived before the store was found to hang.
    assert answers[DeliveryAnswer.ACCEPTED] <= PER_SECOND * (LIMITS.store_stalled + LIMITS.recheck)
