"""Connections of attackers on a real listener: which connections are closed, when, and which are served."""

import asyncio
import gc
import json
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest
import uvloop
from structlog.testing import capture_logs

from autoscaler.model.identifiers import Address
from autoscaler.server.listening.places import ANSWERS_TOGETHER
from autoscaler.server.listening.settings import ServerSettings, TlsFiles
from autoscaler.server.refusal_log import LINES
from tests.patience import PATIENCE
from tests.server.certificates import make_certificate
from tests.server.doubles import MACHINE, NONCE
from tests.server.fakes import (
    LOOPBACK,
    PING,
    Backstage,
    Caller,
    delivery_headers,
    running,
    until,
)

HEALTH = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
POLL = (
    f"POST /bootstrap/machines/{MACHINE}/poll HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {NONCE}\r\n"
    'Content-Type: application/json\r\nContent-Length: 12\r\n\r\n{"wait": 50}'
).encode()
SLOW_HEAD = b"POST /webhook HTTP/1.1\r\nHost: x\r\nX-Slow: "
SLOW_BODY = (
    b"POST /webhook HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    b"Content-Length: 10\r\n\r\n{"
)
FULL = replace(LOOPBACK, max_connections=4, head=10 * PATIENCE, keepalive=10 * PATIENCE)
"""Limits at which only a new connection closes another one during a test."""

Pair = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def connect(address: Address, sent: bytes = b"", source: str = "127.0.0.1") -> Pair:
    reader, writer = await asyncio.open_connection(
        address.host, address.port, local_addr=(source, 0)
    )
    writer.write(sent)
    return reader, writer


async def is_closed(pair: Pair) -> bool:
    """Return True if the server closes the connection without an answer."""
    async with asyncio.timeout(PATIENCE):
        try:
            return await pair[0].read() == b""
        except ConnectionResetError:
            return True


@asynccontextmanager
async def held(pairs: list[Pair]) -> AsyncIterator[None]:
    try:
        yield
    finally:
        for _, writer in pairs:
            writer.close()


@asynccontextmanager
async def served(sent: bytes) -> AsyncIterator[tuple[Caller, Pair]]:
    """A server with a short limit for heads, and a connection whose request it has answered, if `sent` is one.

    On a busy host, even a whole request may take longer than the limit. Then the limit is doubled.
    """
    limit = 1.0
    while True:
        async with running(settings=replace(LOOPBACK, head=limit)) as caller:
            reader, writer = await connect(caller.serving.address, sent)
            try:
                if sent:
                    assert b" 200 " in await reader.readuntil(b"\r\n\r\n")
                    await reader.readuntil(b"}")
            except (asyncio.IncompleteReadError, ConnectionResetError):
                writer.close()
                assert limit < PATIENCE
                limit *= 2
                continue
            yield caller, (reader, writer)
            return


def request_of(headers: int, size: int = 10) -> bytes:
    """Return a request with so many headers besides Host, and so many bytes in the first one's value."""
    lines = [b"GET /healthz HTTP/1.1", b"Host: x", b"X-0: " + b"a" * size]
    lines += [b"X-%d: y" % number for number in range(1, headers)]
    return b"\r\n".join(lines) + b"\r\n\r\n"


@pytest.mark.case(
    "many and long headers, and heads that never end",
    topic="Hostile input",
    source="CWE-770; CWE-400",
)
@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (request_of(39), b" 200 "),
        (request_of(40), b" 400 "),
        (request_of(1, 2_048), b" 200 "),
        (request_of(1, 2_049), b" 400 "),
        (b"GET /healthz?" + b"a" * 2_048 + b" HTTP/1.1\r\nHost: x\r\n\r\n", b" 400 "),
    ],
)
async def test_a_request_has_at_most_40_headers_of_2_kb(
    caller: Caller, request_: bytes, status: bytes
) -> None:
    reader, writer = await connect(caller.serving.address, request_)
    assert status in await reader.readline()
    writer.close()


@pytest.mark.case(
    "many and long headers, and heads that never end",
    topic="Hostile input",
    source="CWE-770; CWE-400",
)
@pytest.mark.parametrize("before", [b"", PING])
async def test_a_slow_request_head_is_closed_after_its_time_limit(before: bytes) -> None:
    """Sending a byte now and then does not extend the limit, in the first request or in a later one."""
    async with served(before) as (_, (reader, writer)):
        closed = asyncio.create_task(is_closed((reader, writer)))
        writer.write(SLOW_HEAD)
        while not closed.done():
            writer.write(b"a")
            await asyncio.wait({closed}, timeout=0.02)
        assert await closed
        writer.close()


async def test_a_connection_may_be_idle_for_longer_than_a_request_head_may_take() -> None:
    """A slow head that begins later is closed first."""
    async with served(PING) as (caller, (reader, writer)):
        later = await connect(caller.serving.address, SLOW_HEAD)
        assert await is_closed(later)
        later[1].close()
        writer.write(PING)
        assert b" 200 " in await reader.readuntil(b" 200 ")
        writer.close()


@pytest.mark.parametrize(
    "sent",
    [
        HEALTH,
        HEALTH + SLOW_HEAD,
        b"GET /bootstrap/agent.py HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n",
        PING.replace(b"sha256=", b"sha256=0"),
    ],
)
async def test_unauthenticated_answers_close_the_connection(caller: Caller, sent: bytes) -> None:
    """Also if more bytes follow the request."""
    reader, writer = await connect(caller.serving.address, sent)
    async with asyncio.timeout(PATIENCE):
        answer = await reader.read()
    assert b"connection: close" in answer.lower()
    writer.close()


@pytest.mark.parametrize(("behind", "stays"), [(30, False), (1, True)])
async def test_a_connection_with_bytes_after_its_request_is_closed(
    caller: Caller, behind: int, stays: bool
) -> None:
    """Such bytes do not count as a request head, and an idle connection has no limit on them."""
    lines = [b"POST /webhook HTTP/1.1", *(b"X-%d: " % n + b"a" * 2_000 for n in range(behind))]
    reader, writer = await connect(caller.serving.address, PING + b"\r\n".join(lines))
    answer = await reader.readuntil(b"\r\n\r\n")
    assert b" 200 " in answer
    assert (b"connection: close" in answer.lower()) is not stays
    if not stays:
        assert not await is_closed((reader, writer)), "the rest of the answer"
    writer.close()


async def test_a_connection_stays_after_deliveries_of_any_size(caller: Caller) -> None:
    reader, writer = await connect(caller.serving.address)
    for number in range(2):
        body = json.dumps({"zen": "x" * 200_000, "number": number}).encode()
        head = "".join(
            f"{name}: {text}\r\n" for name, text in delivery_headers(body, event="ping").items()
        )
        size = f"Host: x\r\nContent-Length: {len(body)}\r\n"
        writer.write(f"POST /webhook HTTP/1.1\r\n{size}{head}\r\n".encode() + body)
        answer = await reader.readuntil(b"}")
        assert b" 200 " in answer
        assert b"connection: close" not in answer.lower()
    writer.close()


@pytest.mark.parametrize("complete", [True, False])
async def test_a_request_refused_before_its_body_frees_its_connection_place(complete: bool) -> None:
    """Both while its body is missing and afterwards."""
    refused = SLOW_BODY.replace(b"application/json", b"text/plain")
    async with running(settings=replace(LOOPBACK, head=0.5)) as caller:
        pair = await connect(caller.serving.address, refused)
        assert b" 415 " in await pair[0].readline()
        if complete:
            pair[1].write(b"456789012" + SLOW_HEAD)
        assert not await is_closed(pair), "the rest of the answer"
        pair[1].close()


async def test_a_connection_that_does_not_read_its_answer_can_be_closed_for_a_new_one() -> None:
    size = 8_000_000
    async with running(Backstage(exposed=[b"x" * size]), FULL) as caller:
        address = caller.serving.address
        scrape = HEALTH.replace(b"healthz", b"metrics")
        unread = [await connect(address, scrape) for _ in range(3)]
        unread.append(await connect(address, scrape, source="127.0.0.2"))
        async with held(unread):
            for reader, _ in unread:
                assert b" 200 " in await reader.readline()
            assert (await caller.get("/healthz")).status == 200
            with suppress(ConnectionResetError):
                assert len(await unread[0][0].read()) < size


class JumpingLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock a test can put forward."""

    ahead = 0.0

    def time(self) -> float:
        return super().time() + self.ahead


@pytest.mark.parametrize("with_tls", [True, False])
def test_a_peer_has_the_time_of_a_head_to_read_its_last_answer(
    with_tls: bool, tmp_path: Path
) -> None:
    """Before, the end of a TLS connection cut off what a slow peer had not read after 2 s."""
    size, files = 16_000_000, make_certificate(tmp_path) if with_tls else None

    async def read_late(after: float, loop: JumpingLoop) -> int:
        context = ssl.create_default_context(cafile=str(files.certificate)) if files else None
        async with Backstage(exposed=[b"x" * size]).serving(replace(FULL, tls=files)) as serving:
            host, port = serving.address.host, serving.address.port
            pair = await asyncio.open_connection(host, port, ssl=context)
            async with held([pair]):
                pair[1].write(HEALTH.replace(b"healthz", b"metrics"))
                assert b" 200 " in await pair[0].readline()
                for _ in range(100):
                    await asyncio.sleep(
                        0
                    )  # The server has written what fits, and ended the connection.
                loop.ahead += after
                for _ in range(100):
                    await asyncio.sleep(0)
                with suppress(ConnectionResetError, ssl.SSLError):
                    return len(await pair[0].read())
                return 0

    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, JumpingLoop)
        assert runner.run(read_late(0.9 * FULL.head, loop)) > size
        assert runner.run(read_late(2 * FULL.head, loop)) < size


async def strangers_who_read_no_answer(files: TlsFiles | None) -> None:
    """Of the peer that leaves most unread, the oldest connections are closed, and nobody else's."""
    size = 16_000_000  # more than the buffers of the kernel hold
    fitting = ANSWERS_TOGETHER // size
    tls, context = replace(FULL, max_connections=100, tls=files), None
    if files is not None:
        context = ssl.create_default_context(cafile=str(files.certificate))
    scrape = HEALTH.replace(b"healthz", b"metrics")
    async with Backstage(exposed=[b"x" * size]).serving(tls) as serving:
        pairs: list[Pair] = []
        async with held(pairs):
            for source in ("127.0.0.2", *["127.0.0.1"] * (fitting + 3)):
                host, port = serving.address.host, serving.address.port
                pair = await asyncio.open_connection(
                    host, port, ssl=context, local_addr=(source, 0)
                )
                pairs.append(pair)
                pair[1].write(scrape)
                assert b" 200 " in await pair[0].readline()
            async with asyncio.timeout(PATIENCE):
                assert len(await pairs[0][0].read()) > size
                cut_off = [await _is_cut_off(pair, size) for pair in pairs[1:]]
            assert cut_off == [True] * 4 + [False] * (fitting - 1)


async def _is_cut_off(pair: Pair, size: int) -> bool:
    try:
        return len(await pair[0].read()) < size
    except (ConnectionResetError, ssl.SSLError):
        return True


@pytest.mark.parametrize("loop", [uvloop.new_event_loop, asyncio.SelectorEventLoop])
@pytest.mark.parametrize("with_tls", [True, False])
@pytest.mark.case(
    "connections that read no answer fill the memory",
    topic="Hostile input",
    source="CWE-400",
)
def test_unread_answers_are_bounded_over_all_connections(
    loop: Callable[[], asyncio.AbstractEventLoop], with_tls: bool, tmp_path: Path
) -> None:
    files = make_certificate(tmp_path) if with_tls else None
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(strangers_who_read_no_answer(files))


@pytest.mark.case(
    "connections that never send a request, or never begin a TLS handshake, fill the listener",
    topic="Hostile input",
    source="CWE-400",
)
@pytest.mark.parametrize("sent", [b"", SLOW_HEAD, SLOW_BODY])
async def test_the_oldest_incomplete_connection_is_closed_for_a_new_one(sent: bytes) -> None:
    async with running(settings=FULL) as caller:
        address = caller.serving.address
        slow = [await connect(address, sent) for _ in range(3)]
        slow.append(await connect(address, sent, source="127.0.0.2"))
        async with held(slow):
            assert (await caller.get("/healthz")).status == 200
            assert await is_closed(slow[0])
            assert not any(reader.at_eof() for reader, _ in slow[1:])


@pytest.mark.case(
    "connections that never send a request, or never begin a TLS handshake, fill the listener",
    topic="Hostile input",
    source="CWE-400",
)
async def test_a_connection_in_use_is_not_closed_for_a_new_one() -> None:
    """Machines' polls of an hour are older than the connections of attackers."""
    async with running(settings=FULL) as caller:
        polls = [asyncio.create_task(caller.send_step("poll", {"wait": 50})) for _ in range(3)]
        await until(lambda: caller.behind.bootstrap.asked == 3)
        address = caller.serving.address
        strangers = [await connect(address, source="127.0.0.2") for _ in range(8)]
        async with held(strangers):
            assert await is_closed(strangers[0])
            assert not any(poll.done() for poll in polls)
            for poll in polls:
                poll.cancel()


@pytest.mark.case(
    "one address takes every connection, or the process runs out of descriptors",
    topic="Hostile input",
    source="CWE-770",
)
async def test_one_address_never_takes_the_last_quarter_of_connections() -> None:
    async with running(settings=FULL) as caller:
        address = caller.serving.address
        mine = [await connect(address, POLL) for _ in range(3)]
        await until(lambda: caller.behind.bootstrap.asked == 3)
        async with held(mine):
            refused = await connect(address, HEALTH)
            assert await is_closed(refused)
            refused[1].close()
            other = await connect(address, HEALTH, source="127.0.0.2")
            assert b" 200 " in await other[0].readline()
            other[1].close()


async def strangers_before_tls(files: TlsFiles, settings: ServerSettings) -> None:
    """TCP connections without a TLS handshake fill the listener, and a machine is still served."""
    async with Backstage().serving(replace(settings, tls=files)) as serving:
        silent = [await connect(serving.address) for _ in range(3)]
        silent.append(await connect(serving.address, source="127.0.0.2"))
        async with held(silent):
            connector = aiohttp.TCPConnector(
                ssl=ssl.create_default_context(cafile=files.certificate)
            )
            async with aiohttp.ClientSession(connector=connector) as session:
                async with session.get(f"https://{serving.address}/healthz") as answer:
                    assert answer.status == 200
                assert await is_closed(silent[0])
                assert not any(reader.at_eof() for reader, _ in silent[2:])


@pytest.mark.case(
    "connections that never send a request, or never begin a TLS handshake, fill the listener",
    topic="Hostile input",
    source="CWE-400",
)
async def test_tls_handshakes_count_as_connections_and_can_be_closed(tmp_path: Path) -> None:
    await strangers_before_tls(make_certificate(tmp_path), FULL)


def test_tls_handshakes_count_as_connections_and_can_be_closed_on_uvloop(tmp_path: Path) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(strangers_before_tls(make_certificate(tmp_path), FULL))


async def test_a_failed_tls_handshake_frees_its_place(tmp_path: Path) -> None:
    files = make_certificate(tmp_path)
    async with Backstage().serving(replace(FULL, tls=files)) as serving:
        for _ in range(20):
            plain = await connect(serving.address, HEALTH)
            async with asyncio.timeout(PATIENCE):
                await plain[0].read()
            plain[1].close()
        await strangers_before_tls(files, FULL)


async def test_many_refused_connections_write_few_log_lines() -> None:
    async with running(settings=FULL) as caller:
        mine = [await connect(caller.serving.address, POLL) for _ in range(3)]
        await until(lambda: caller.behind.bootstrap.asked == 3)
        async with held(mine):
            with capture_logs() as lines:
                for _ in range(2 * LINES):
                    refused = await connect(caller.serving.address)
                    assert await is_closed(refused)
                    refused[1].close()
        assert len(lines) == LINES
        assert {(line["event"], line["peer"]) for line in lines} == {
            ("connections_refused", "127.0.0.1")
        }


@pytest.mark.parametrize(
    "sent",
    [
        HEALTH,
        b"GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n",
        b"PUT /healthz HTTP/1.1\r\nHost: x\r\n\r\n",
        b"no http at all\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: secret\r\n\r\n",
    ],
)
async def test_no_answer_names_the_software_or_repeats_the_request(
    caller: Caller, sent: bytes
) -> None:
    reader, writer = await connect(caller.serving.address, sent)
    answer = await reader.readuntil(b"\r\n\r\n")
    answer += await reader.readexactly(int(answer.lower().split(b"content-length: ")[1].split()[0]))
    assert answer.startswith(b"HTTP/1.")
    assert isinstance(json.loads(answer.partition(b"\r\n\r\n")[2]), dict)
    assert b"\r\nserver:" not in answer.lower()
    assert b"aiohttp" not in answer.lower()
    assert b"secret" not in answer
    writer.close()


async def test_bytes_that_are_not_http_are_answered_with_json(caller: Caller) -> None:
    reader, writer = await connect(caller.serving.address, b"no http at all\r\n\r\n")
    answer = await reader.read()
    assert answer.startswith(b"HTTP/1.0 400 ")
    assert answer.endswith(b'\r\n\r\n{"error":"bad_request"}')
    writer.close()


@pytest.mark.parametrize("sent", [PING, POLL, SLOW_HEAD, SLOW_BODY, b""])
def test_a_closed_connection_leaves_no_cycles(sent: bytes) -> None:
    """A frozen object that is in a cycle when it is dropped would stay in memory for an hour."""

    async def story() -> int:
        async with running(settings=FULL) as caller:
            for count in (2, 20):
                gc.collect()
                gc.disable()
                for _ in range(count):
                    _, writer = await connect(caller.serving.address, sent)
                    await asyncio.sleep(0.02)
                    writer.close()
                    await writer.wait_closed()
                    await asyncio.sleep(0.02)
            kinds = Counter(type(one).__name__ for one in gc.get_objects())
            gc.collect()
            kinds.subtract(type(one).__name__ for one in gc.get_objects())
            return kinds["Connection"] + kinds["Place"]

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            assert runner.run(story()) == 0
        finally:
            gc.enable()
