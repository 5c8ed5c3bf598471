"""A replica that does not lead passes requests on, and its client gets the leader's answers."""

import asyncio
import gzip
import io
import json
from collections.abc import AsyncIterator

import aiohttp
import pytest
from aiohttp import web
from structlog.testing import capture_logs

from autoscaler.server.bodies import MEBIBYTE
from autoscaler.server.machines.bootstrap import BootstrapLimits
from autoscaler.server.replicas.forwarding import OWN_PATHS, ForwardLimits
from tests.server.doubles import MACHINE, NONCE
from tests.server.fakes import AGENT, ATTESTATION, STEPS, until
from tests.server.replicas.pair import Echo, lease_of, replicas

POLL = 50


async def test_machines_get_the_leaders_answers() -> None:
    async with replicas() as pair:
        caller = pair.caller
        agent = await caller.get("/bootstrap/agent.py")
        assert (agent.status, agent.body) == (200, AGENT)
        known = await caller.get(
            "/bootstrap/agent.py", headers={"If-None-Match": agent.headers["ETag"]}
        )
        assert (known.status, known.body) == (304, b"")
        assert (await caller.post("/bootstrap/attest", json=ATTESTATION)).json["machine"] == MACHINE
        for step, body in STEPS.items():
            through, direct = [
                await one.send_step(step, body)
                for one in (caller, type(caller)(pair.direct, pair.leader, pair.behind))
            ]
            assert (through.status, through.body) == (direct.status, direct.body)
            kept = [
                {k: v for k, v in one.headers.items() if k != "Date"} for one in (through, direct)
            ]
            assert kept[0] == kept[1]
        assert (await caller.send_step("poll", {"wait": 0}, nonce="a" * 64)).status == 401


async def test_a_long_poll_is_answered_when_the_leader_answers_it() -> None:
    async with replicas() as pair:
        bootstrap = pair.behind.bootstrap
        waiting = asyncio.ensure_future(pair.caller.send_step("poll", {"wait": POLL}))
        await bootstrap.polling.wait()
        await pair.leader.stop()
        assert (await waiting).json == {"state": "ready"}


async def test_a_poll_ends_at_the_leader_when_its_machine_disconnects() -> None:
    async with replicas() as pair:
        waiting = asyncio.ensure_future(pair.caller.send_step("poll", {"wait": POLL}))
        await pair.behind.bootstrap.polling.wait()
        waiting.cancel()
        await pair.behind.bootstrap.poll_cancelled.wait()


async def test_headers_that_concern_both_ends_pass_unchanged() -> None:
    def answer(_: web.Request) -> web.Response:
        packed = web.Response(body=gzip.compress(b"page"), headers={"Content-Encoding": "gzip"})
        packed.headers.add("Set-Cookie", "one=1; Path=/")
        packed.headers.add("Set-Cookie", "two=2; Path=/")
        return packed

    echo = Echo(answer=answer)
    sent = {
        "Host": "fleet.example:8443",
        "Origin": "https://fleet.example:8443",
        "Cookie": "__Host-autoscaler=abc",
        "Authorization": "Bearer x",
        "Accept-Encoding": "gzip",
        "If-None-Match": '"tag"',
    }
    async with replicas(echo) as pair:
        async with pair.client.get("/page?a=1&b", headers=sent) as got:
            assert await got.text() == "page"
            assert got.headers["Content-Encoding"] == "gzip"
            assert got.headers.getall("Set-Cookie") == ["one=1; Path=/", "two=2; Path=/"]
            assert "Server" not in got.headers
        assert {name: echo.last.headers[name] for name in sent} == sent
        assert echo.last.raw_path == "/page?a=1&b"
        added = {name.lower() for name in echo.last.headers} - {name.lower() for name in sent}
        assert added == {"accept", "user-agent"}  # of this test's client


async def test_redirects_and_cookies_are_the_clients_affair() -> None:
    def answer(_: web.Request) -> web.Response:
        found = web.Response(status=303, headers={"Location": "/elsewhere"})
        found.set_cookie("session", "of the first client")
        return found

    echo = Echo(answer=answer)
    async with replicas(echo) as pair:
        for _ in range(2):
            async with pair.client.post("/sign-in", allow_redirects=False) as got:
                assert (got.status, got.headers["Location"]) == (303, "/elsewhere")
        assert [request.path for request in echo.seen] == ["/sign-in"] * 2
        assert "Cookie" not in echo.last.headers


async def test_each_replica_answers_its_own_health_and_deliveries() -> None:
    echo = Echo()
    async with replicas(echo) as pair:
        for path in sorted(OWN_PATHS - {"/webhook"}):
            assert (await pair.caller.get(path)).status == 200
        for path in (*OWN_PATHS, "/%77ebhook", "/metric%73"):
            assert (await pair.caller.post(path, data=b"{}")).status == 404
        assert echo.seen == []


@pytest.mark.parametrize(
    "changes", [None, {"mine": True}, {"expired": True}], ids=["none seen", "own", "expired"]
)
async def test_while_no_other_replica_leads_clients_are_asked_to_come_again(
    changes: dict[str, bool] | None,
) -> None:
    async with replicas(echo := Echo()) as pair:
        url = f"http://{pair.leader.address}"
        pair.lease = None if changes is None else lease_of(url, **changes)
        reply = await pair.caller.send_step("poll", {"wait": POLL})
        assert (reply.status, reply.json["error"]) == (503, "no_leader")
        assert (reply.headers["Retry-After"], reply.headers["Cache-Control"]) == ("2", "no-store")
        assert echo.seen == []


async def test_a_leader_that_is_gone_is_answered_as_none() -> None:
    async with replicas() as pair:
        await pair.leader.stop()
        assert pair.lease is not None
        with capture_logs() as lines:
            reply = await pair.caller.get("/")
        assert (reply.status, reply.json["error"]) == (503, "leader_unreachable")
        assert reply.headers["Retry-After"] == "2"
        assert not pair.forward.is_leader_silent(), "it may have been lost just now"
        assert f"at {pair.lease.holder.url}: [Errno" in lines[0]["cause"], "its --replica-url"


async def test_a_leader_that_closes_without_an_answer_is_answered_as_none() -> None:
    async with await asyncio.start_server(_hang_up, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        async with replicas() as pair:
            pair.lease = lease_of(f"http://{host}:{port}")
            reply = await pair.caller.send_step("heartbeat")
            assert (reply.status, reply.json["error"]) == (503, "leader_unreachable")


async def _hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.close()


@pytest.mark.parametrize("changes", [{"epoch": 8}, {"epoch": 8, "mine": True}, {"expired": True}])
async def test_a_silent_leader_is_answered_as_none_once_the_lease_is_over(
    changes: dict[str, object],
) -> None:
    """A suspended host closes no connection."""
    async with replicas(limits=ForwardLimits(recheck=0.01)) as pair:
        waiting = asyncio.ensure_future(pair.caller.send_step("poll", {"wait": POLL}))
        await pair.behind.bootstrap.polling.wait()
        pair.lease = lease_of(f"http://{pair.leader.address}", **changes)
        assert (await waiting).status == 503
        await pair.behind.bootstrap.poll_cancelled.wait()


async def test_a_poll_goes_on_while_this_replica_does_not_reach_the_store() -> None:
    looks = 0
    async with replicas(limits=ForwardLimits(recheck=0.001)) as pair:

        def look() -> None:
            nonlocal looks
            looks += 1

        waiting = asyncio.ensure_future(pair.caller.send_step("poll", {"wait": POLL}))
        await pair.behind.bootstrap.polling.wait()
        pair.forward._leader = look
        await until(lambda: looks > 3)
        await pair.leader.stop()
        assert (await waiting).json == {"state": "ready"}


async def test_a_leader_that_is_silent_for_too_long_is_answered_as_none() -> None:
    async with replicas(limits=ForwardLimits(silence=0.05)) as pair:
        reply = await pair.caller.send_step("poll", {"wait": POLL})
        assert (reply.status, reply.json["error"]) == (503, "leader_unreachable")


async def test_a_replica_that_stops_ends_what_it_passed_on() -> None:
    async with replicas() as pair:
        waiting = asyncio.ensure_future(pair.caller.send_step("poll", {"wait": POLL}))
        await pair.behind.bootstrap.polling.wait()
        await pair.follower.stop()
        assert (await waiting).status == 503


class Stream:
    """Answers in two pieces, with the length of the whole answer or without it."""

    def __init__(self, length: int | None) -> None:
        self.length = length
        self.go_on = asyncio.Event()
        self.request: web.Request | None = None

    def add_to(self, app: web.Application, _patience: float, /) -> None:
        app.router.add_get("/events", self._handle)

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        self.request = request
        answer = web.StreamResponse()
        answer.content_length = self.length
        await answer.prepare(request)
        await answer.write(b"first")
        await self.go_on.wait()
        await answer.write(b"second")
        return answer

    def break_off(self) -> None:
        assert self.request is not None
        assert self.request.transport is not None
        self.request.transport.abort()


@pytest.mark.parametrize("length", [None, 11])
async def test_each_piece_of_an_answer_arrives_at_once(length: int | None) -> None:
    stream = Stream(length)
    async with replicas(stream) as pair, pair.client.get("/events") as got:
        assert await got.content.readany() == b"first"
        stream.go_on.set()
        assert await got.content.read() == b"second"
        assert got.content_length == length


@pytest.mark.parametrize("length", [None, 11])
async def test_an_answer_that_breaks_off_is_broken_for_the_client(length: int | None) -> None:
    stream = Stream(length)
    async with replicas(stream) as pair, pair.client.get("/events") as got:
        assert await got.content.readany() == b"first"
        stream.break_off()
        with pytest.raises(aiohttp.ClientError):
            await got.content.read()


async def test_a_body_at_the_limit_passes_and_a_larger_one_is_refused_before_it_is_sent() -> None:
    async with replicas(echo := Echo()) as pair:
        most = BootstrapLimits().body
        for path, limit in (("/bootstrap/attest", most), ("/admin/plan", MEBIBYTE)):
            for data in (io.BytesIO(b"x" * limit), _in_pieces(b"x" * limit)):
                assert (await pair.caller.post(path, data=data)).status == 200
                assert len(echo.bodies[-1]) == limit
            before = len(echo.seen)
            for data in (io.BytesIO(b"x" * (limit + 1)), _in_pieces(b"x" * (limit + 1))):
                reply = await pair.caller.post(path, data=data)
                assert (reply.status, reply.json) == (413, {"error": "too_large"})
            assert len(echo.seen) == before


async def _in_pieces(body: bytes) -> AsyncIterator[bytes]:
    for at in range(0, len(body), 16_384):
        yield body[at : at + 16_384]


async def test_further_requests_than_the_limit_are_refused() -> None:
    async with replicas(most=1) as pair:
        waiting = asyncio.ensure_future(pair.caller.send_step("poll", {"wait": POLL}))
        await pair.behind.bootstrap.polling.wait()
        reply = await pair.caller.send_step("heartbeat")
        assert (reply.status, reply.json["error"]) == (503, "busy")
        waiting.cancel()
        await pair.behind.bootstrap.poll_cancelled.wait()
        assert (await pair.caller.send_step("heartbeat")).status == 204


async def test_a_long_answer_passes_whole() -> None:
    body = json.dumps(list(range(400_000))).encode()
    echo = Echo(answer=lambda _: web.Response(body=body))
    async with replicas(echo) as pair:
        reply = await pair.caller.get("/admin/machines")
        assert reply.body == body
        assert reply.headers["Content-Length"] == str(len(body))
        async with pair.client.head("/admin/machines") as got:
            assert got.headers["Content-Length"] == str(len(body))
            assert await got.read() == b""


async def test_a_connection_stays_open_if_the_leader_would_keep_it() -> None:
    async with replicas() as pair:
        for step, closes in (("stage", False), ("heartbeat", True)):
            async with pair.client.post(
                f"/bootstrap/machines/{MACHINE}/{step}",
                json=STEPS[step],
                headers={"Authorization": f"Bearer {NONCE}"},
            ) as got:
                assert (got.headers.get("Connection") == "close") is closes


async def test_bytes_that_a_client_may_not_have_read_count_as_at_the_leader() -> None:
    """Places bounds the memory of all unread answers."""
    async with replicas(Echo(answer=lambda _: web.Response(body=b"x" * 5000))) as pair:
        async with pair.client.post("/") as got:
            assert len(await got.read()) == 5000
        unread = [one._main._places._all.unread for one in (pair.leader, pair.follower)]
        assert unread == [5000, 5000]
