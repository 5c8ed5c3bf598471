"""The order of waiting requests, and the effect of a rate limit on them."""

import asyncio

import pytest

from autoscaler.github.requests.budget import Budget
from autoscaler.github.requests.exchange import Answer, Effect, Importance, Request
from autoscaler.github.requests.outcomes import LimitError
from autoscaler.github.requests.request_queue import RequestQueue
from tests.github.doubles import ManualClock

APP = "app 1 on acme"
REGISTER = Request("POST", "/jit", effect=Effect.REGISTER, importance=Importance.REGISTER)
CHECK = Request("GET", "/job")
REMOVE = Request("DELETE", "/runner", effect=Effect.WRITE, importance=Importance.REMOVE)
SYNC = Request("GET", "/deliveries", importance=Importance.SYNC)


class Crowd:
    """Requests in one queue, which records the order of their admission."""

    def __init__(self, slots: int) -> None:
        self.queue = RequestQueue(Budget(None), ManualClock(), slots)
        self.passed: list[Request] = []
        self.tasks: list[asyncio.Task[None]] = []

    async def arrive(self, *requests: Request) -> None:
        """Add requests in this order, and wait until no more of them can be admitted."""
        for request in requests:
            self.tasks.append(asyncio.create_task(self._pass(request)))
        await self.settle()

    async def _pass(self, request: Request) -> None:
        await self.queue.enter(APP, request)
        self.passed.append(request)

    async def leave(self, request: Request, answer: Answer | None = None) -> None:
        self.queue.leave(APP, request, answer)
        await self.settle()

    @staticmethod
    async def settle() -> None:
        for _ in range(5):
            await asyncio.sleep(0)


@pytest.mark.case(
    "registrations, checks and deletions go before lists",
    topic="GitHub's REST API",
    source="GitHub: using the REST API",
)
async def test_waiting_registrations_go_first_and_lists_last() -> None:
    crowd = Crowd(1)
    await crowd.arrive(CHECK, SYNC, REMOVE, CHECK, REGISTER, SYNC, REGISTER)
    order = [CHECK, REGISTER, REGISTER, CHECK, REMOVE, SYNC, SYNC]
    for done in order:
        await crowd.leave(done)
    assert crowd.passed == order
    await asyncio.gather(*crowd.tasks)


async def test_lists_leave_connections_for_more_important_requests() -> None:
    crowd = Crowd(10)
    await crowd.arrive(*[SYNC] * 20)
    assert crowd.passed == [SYNC] * 8
    await crowd.arrive(REGISTER, REGISTER, REGISTER)
    assert crowd.passed == [SYNC] * 8 + [REGISTER] * 2
    await crowd.leave(SYNC)
    assert crowd.passed[-1] is REGISTER
    for _ in range(3):
        await crowd.leave(REGISTER)
    while crowd.passed.count(SYNC) < 20:
        await crowd.leave(SYNC)
    await asyncio.gather(*crowd.tasks)


async def test_a_new_rate_limit_refuses_waiting_requests_at_once() -> None:
    crowd = Crowd(1)
    await crowd.arrive(CHECK, CHECK, REGISTER, REMOVE)
    await crowd.leave(CHECK, Answer(429, {"retry-after": "30"}))
    assert crowd.passed == [CHECK, REGISTER], "registering has limits of its own"
    await crowd.leave(REGISTER)
    outcomes = await asyncio.gather(*crowd.tasks, return_exceptions=True)
    refused = [outcome for outcome in outcomes if isinstance(outcome, LimitError)]
    assert [error.retry_after for error in refused] == [30.0, 30.0]
    with pytest.raises(LimitError):
        crowd.queue.check(APP, CHECK)


async def test_a_cancelled_request_does_not_block_the_queue() -> None:
    crowd = Crowd(1)
    await crowd.arrive(CHECK, REGISTER, CHECK)
    crowd.tasks[1].cancel()
    await crowd.settle()
    await crowd.leave(CHECK)
    assert crowd.passed == [CHECK, CHECK]


async def test_a_request_cancelled_when_admitted_frees_its_place() -> None:
    crowd = Crowd(1)
    await crowd.arrive(CHECK, REGISTER, REMOVE)
    crowd.queue.leave(APP, CHECK, None)  # admits the registration, whose task has not run yet
    crowd.tasks[1].cancel()
    await crowd.settle()
    assert crowd.passed == [CHECK, REMOVE]
