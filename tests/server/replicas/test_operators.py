"""Operators at a replica that does not lead: the console, its live updates, /admin, and their limits."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import aiohttp
from structlog.testing import capture_logs

from autoscaler.console.assets import read_assets
from autoscaler.server.listening.passed_on import ADDRESS_HEADER, SECRET_HEADER
from autoscaler.server.operators.admin import AdminEndpoint
from autoscaler.server.operators.console import ConsoleEndpoint
from autoscaler.server.tokens import MOST_WRONG, WrongTokens
from tests.console.serving import OPERATOR, READER, Tokens, pages
from tests.ledger.builders import World
from tests.server.asked_world import AskedWorld
from tests.server.replicas.pair import SECRET, Pair, replicas
from tests.server.test_admin_endpoint import Word


@dataclass
class Operated:
    """A pair whose leader serves operators."""

    pair: Pair
    world: AskedWorld
    word: Word

    async def status(self, path: str, token: str, client: aiohttp.ClientSession) -> int:
        headers = {"Authorization": f"Bearer {token}"}
        async with client.get(path, headers=headers) as got:
            return got.status


@asynccontextmanager
async def operated() -> AsyncIterator[Operated]:
    world, word, tokens = AskedWorld(World()), Word(), Tokens()
    tried = WrongTokens(asyncio.get_running_loop().time)
    admin = AdminEndpoint(word, word, world, word, tokens, tried)
    console = ConsoleEndpoint(world, pages(), read_assets(), tokens, tried, secure=False)
    console._live._every = 0.01
    async with replicas(admin, console) as pair:
        yield Operated(pair, world, word)


async def test_a_browser_signs_in_reads_pages_and_gets_live_updates() -> None:
    async with operated() as one:
        client = one.pair.client
        async with client.get("/") as asked:
            assert 'name="token"' in await asked.text()
        async with client.post(
            "/sign-in",
            data={"token": READER, "next": "/jobs"},
            headers={"Origin": f"http://{one.pair.follower.address}"},
            allow_redirects=False,
        ) as signed:
            assert (signed.status, signed.headers["Location"]) == (303, "/jobs")
            cookie = {"Cookie": signed.headers["Set-Cookie"].partition(";")[0]}
        async with client.get("/jobs", headers=cookie | {"Accept-Encoding": "gzip"}) as page:
            assert page.headers["Content-Encoding"] == "gzip"
            assert "on-call" in await page.text()
        async with client.get("/events", headers=cookie) as events:
            assert await events.content.readline() == b"retry: 5000\n"
            await events.content.readline()
            one.world.changed += 1
            assert await events.content.readline() == b"event: changed\n"
            # The leader stops in the middle of the stream.
            await one.pair.leader.stop()
            await events.content.read()


async def test_a_form_of_another_site_is_refused_as_at_the_leader() -> None:
    async with (
        operated() as one,
        one.pair.client.post(
            "/sign-in", data={"token": READER}, headers={"Origin": "https://evil.example"}
        ) as got,
    ):
        assert got.status == 403


async def test_requests_of_operators_are_carried_out_once_and_plans_pass_whole() -> None:
    async with operated() as one:
        headers = {"Authorization": f"Bearer {OPERATOR}"}
        path = "/admin/machines/i-1/terminate"
        async with one.pair.client.post(path, json={"force": True}, headers=headers) as got:
            assert (got.status, await got.json()) == (200, {"machine": "x-i-1"})
        assert one.word.taken == [("i-1", True)]
        content = b"fleet: ci\n" * 50_000
        async with one.pair.client.post("/admin/plan", data=content, headers=headers) as got:
            assert (got.status, one.word.sent) == (200, content)


async def test_wrong_tokens_count_for_the_client_and_the_log_has_its_address_and_no_secret() -> (
    None
):
    async with operated() as one:
        url = f"http://{one.pair.follower.address}"
        connector = aiohttp.TCPConnector(local_addr=("127.0.0.77", 0))
        with capture_logs() as lines:
            async with aiohttp.ClientSession(url, connector=connector) as guesser:
                for guess in range(MOST_WRONG):
                    token = f"guess-{guess}"
                    assert await one.status("/admin/unverified", token, guesser) == 401
                assert await one.status("/admin/unverified", "one more", guesser) == 429
            # Another client of the same replica may still mistype.
            assert await one.status("/admin/unverified", "a slip", one.pair.client) == 401
        peers = [line["peer"] for line in lines if line["event"] == "admin_refused"]
        assert peers == ["127.0.0.77"] * (MOST_WRONG + 1) + ["127.0.0.1"]
        assert SECRET not in str(lines)


async def test_a_request_that_was_passed_on_is_not_passed_on_again() -> None:
    """Two replicas that take one another for the leader would send it for ever. A stranger can forge it."""
    async with operated() as one:
        for given in ({SECRET_HEADER: SECRET}, {ADDRESS_HEADER: "10.0.0.1"}):
            with capture_logs() as lines:
                async with one.pair.client.get("/", headers=given) as got:
                    assert (got.status, got.headers["Retry-After"]) == (503, "2")
                    assert (await got.json())["error"] == "no_leader"
            assert "the same --replica-url" in lines[0]["cause"]
