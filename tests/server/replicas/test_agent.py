"""The agent's own client, at a replica that does not lead: every failure on the way asks it to try again."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from aiohttp import web

from autoscaler.agent.actions import TryAgain
from autoscaler.agent.boot.bootstrap_client import Assignment, Controller
from autoscaler.agent.boot.http_client import Link
from autoscaler.agent.clock import Clock
from tests.server.doubles import NONCE
from tests.server.fakes import ASSIGNMENT, JIT_CONFIG
from tests.server.replicas.pair import Echo, Pair, replicas


@contextmanager
def agent_of(pair: Pair) -> Iterator[Controller]:
    link = Link(f"http://{pair.follower.address}")
    agent = Controller(link, "us-east-1", lambda: "cHJvb2Y=", Clock(1.0))
    agent._nonce = NONCE
    yield agent
    link.close()


async def test_an_agent_attests_and_takes_its_registration_through_a_follower() -> None:
    async with replicas() as pair:
        with agent_of(pair) as agent:
            assert (await asyncio.to_thread(agent.attest))["disk_gb"] == 10
            pair.behind.bootstrap.assignment = ASSIGNMENT
            expected = Assignment(ASSIGNMENT.runner, JIT_CONFIG, ASSIGNMENT.job)
            assert await asyncio.to_thread(agent.poll, 50.0) == expected


async def test_while_no_replica_leads_an_agent_tries_again_after_the_time_that_the_answer_names() -> (
    None
):
    async with replicas() as pair:
        pair.lease = None
        with agent_of(pair) as agent, pytest.raises(TryAgain, match="503 no_leader") as again:
            await asyncio.to_thread(agent.attest)
        assert again.value.retry_after == 2.0


def _cut(request: web.Request) -> web.StreamResponse:
    """Close the connection of the answer."""
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def test_an_answer_that_is_lost_on_the_way_is_asked_for_again() -> None:
    async with replicas(Echo(answer=_cut)) as pair:
        with agent_of(pair) as agent, pytest.raises(TryAgain):
            await asyncio.to_thread(agent.attest)


class HalfAnAnswer:
    """Answers each request with the first half of an answer."""

    def add_to(self, app: web.Application, _patience: float, /) -> None:
        app.router.add_post("/{path:.*}", self._handle)

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Length": "100"})
        await answer.prepare(request)
        await answer.write(b'{"machine": "m-1", "health_ch')
        assert request.transport is not None
        request.transport.close()
        return answer


async def test_half_an_answer_is_no_answer_for_an_agent() -> None:
    async with replicas(HalfAnAnswer()) as pair:
        with agent_of(pair) as agent, pytest.raises(TryAgain):
            await asyncio.to_thread(agent.attest)
