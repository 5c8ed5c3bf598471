"""A steady stream of signed deliveries from a process of its own, each counted from when it was due.

It does not wait for an answer before it sends the next: a server that falls behind is seen to.
"""

import asyncio
import hashlib
import hmac
import itertools
import json
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from functools import cache

import aiohttp

BODY_BYTES = 12_000
PADDINGS = 64
"""Different ones: made once, so that the load takes little of the host's time."""

FIRST_JOB = 10**12
"""Job ids that no laboratory gives."""


@cache
def padding(number: int) -> str:
    """A JSON object of fields that bring a body to its size and compress no better than real ones.

    A body of GitHub's has about 1 KB in a frame with the store's dictionary, and a quarter of its
    size without: so these have 1.4 KB of chance among addresses.
    """
    chance = random.Random(number)
    url = "https://api.github.com/repos/acme/widgets/"
    fields = {f"field_{n}_url": f"{url}{chance.randbytes(12).hex()}" for n in range(120)}
    size = sum(len(name) + len(text) + 8 for name, text in fields.items())
    return json.dumps({"fields": fields, "rest": url * max(0, (BODY_BYTES - size) // len(url))})


@dataclass(frozen=True, slots=True)
class Stream:
    """Where to send what: `rate` deliveries a second for `seconds`, of jobs with this label.

    Every job is queued by one delivery and ended by the next.
    """

    url: str
    secret: bytes = field(repr=False)
    repository: str
    label: str
    rate: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Answers:
    """Milliseconds from the moment when each was due to its answer, in order of size."""

    waits_ms: list[float]
    statuses: Counter[int]

    def quantile(self, percent: float) -> float:
        """Such as 99."""
        place = min(int(len(self.waits_ms) * percent / 100), len(self.waits_ms) - 1)
        return round(self.waits_ms[place], 1)


def send(stream: Stream) -> Answers:
    """Send it all; for a process of its own."""
    return asyncio.run(_send(stream))


async def _send(stream: Stream) -> Answers:
    waits: list[float] = []
    statuses: Counter[int] = Counter()
    connector = aiohttp.TCPConnector(limit=256)

    async def one(session: aiohttp.ClientSession, number: int, due: float) -> None:
        body, headers = _delivery(stream, number)
        async with session.post(stream.url, data=body, headers=headers) as answer:
            statuses[answer.status] += 1
        waits.append(1000.0 * (time.perf_counter() - due))

    async with aiohttp.ClientSession(connector=connector) as session, asyncio.TaskGroup() as group:
        began = time.perf_counter()
        for number in itertools.count():
            due = began + number / stream.rate
            if due - began >= stream.seconds:
                break
            await asyncio.sleep(due - time.perf_counter())
            group.create_task(one(session, number, due))
    return Answers(sorted(waits), statuses)


def _delivery(stream: Stream, number: int) -> tuple[bytes, dict[str, str]]:
    action = "completed" if number % 2 else "queued"
    job = {
        "id": FIRST_JOB + number // 2,
        "run_id": FIRST_JOB + number // 2,
        "run_attempt": 1,
        "status": action,
        "conclusion": "cancelled" if number % 2 else None,
        "labels": [stream.label],
        "created_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    event = {
        "action": action,
        "workflow_job": job,
        "repository": {"full_name": stream.repository},
    }
    body = f"{json.dumps(event)[:-1]}, {padding(number % PADDINGS)[1:]}".encode()
    signature = hmac.new(stream.secret, body, hashlib.sha256).hexdigest()
    headers = {
        "Content-Type": "application/json",
        "X-GitHub-Delivery": f"{number:08x}-0000-11ef-8000-000000000000",
        "X-GitHub-Event": "workflow_job",
        "X-Hub-Signature-256": f"sha256={signature}",
    }
    return body, headers
