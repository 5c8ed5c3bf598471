"""Arbitrary bytes at a replica that passes requests on: the leader gets one request or none."""

import asyncio

import pytest

from autoscaler.server.listening.serving import Serving
from tests.patience import PATIENCE
from tests.server.replicas.pair import Echo, Pair, replicas


async def answered(serving: Serving, sent: bytes, *, ends: bool = False) -> bytes:
    """Return all bytes of the answers to these bytes, until the server closes. `ends`: no more bytes follow."""
    reader, writer = await asyncio.open_connection(serving.address.host, serving.address.port)
    try:
        writer.write(sent)
        if ends:
            writer.write_eof()
        async with asyncio.timeout(PATIENCE):
            return await reader.read()
    finally:
        writer.close()


async def status_of(pair: Pair, sent: bytes) -> int:
    """Return the status of the follower's first answer."""
    return int((await answered(pair.follower, sent)).split(maxsplit=2)[1])


def get(target: bytes, *lines: bytes, method: bytes = b"GET") -> bytes:
    head = [b"%s %s HTTP/1.1" % (method, target), b"Host: x", *lines]
    return b"\r\n".join(head) + b"\r\n\r\n"


TARGETS = [
    b"//evil.example/path",
    b"//evil.example:80//x",
    b"/a%2Fb/%2e%2e/c",
    b"/../../etc/passwd",
    b"/healthz/../admin",
    b"/a%00b",
    b"/%0d%0aHost:%20evil",
    b"/a;b?c=%2F&d=+&e=%25",
    b"/?",
    b"/a?b?c#d",
    b"/\xc3\xa9",
    b"/a b".replace(b" ", b"%20"),
    b"/@evil.example",
    b"/:80",
    b"/[::1]",
    b"/a\\b",
]


@pytest.mark.parametrize("target", TARGETS)
async def test_a_target_reaches_the_leader_as_it_would_without_a_replica_between(
    target: bytes,
) -> None:
    async with replicas(echo := Echo()) as pair:
        direct, through = [await answered(one, get(target)) for one in (pair.leader, pair.follower)]
        assert direct.split(maxsplit=2)[1] == through.split(maxsplit=2)[1]
        asked = [request.rel_url.raw_path_qs for request in echo.seen]
        assert asked == asked[:1] * 2 or asked == []


@pytest.mark.parametrize("scheme", [b"http", b"https", b"ftp"])
async def test_the_host_of_an_absolute_target_is_not_asked(scheme: bytes) -> None:
    async with replicas(echo := Echo()) as pair:
        assert await status_of(pair, get(scheme + b"://evil.example:1/path?q")) == 200
        assert echo.last.raw_path == "/path?q"
        assert await status_of(pair, get(scheme + b"://evil.example:1/metrics")) == 200
        assert len(echo.seen) == 1


@pytest.mark.parametrize(
    ("method", "target"),
    [
        (b"OPTIONS", b"/x"),
        (b"OPTIONS", b"*"),
        (b"TRACE", b"/x"),
        (b"PUT", b"/x"),
        (b"DELETE", b"/x"),
        (b"CONNECT", b"evil.example:443"),
        (b"PROPFIND", b"/x"),
    ],
)
async def test_only_methods_of_the_leaders_routes_pass(method: bytes, target: bytes) -> None:
    async with replicas(echo := Echo()) as pair:
        assert await status_of(pair, get(target, method=method)) in (400, 404, 405)
        assert echo.seen == []


async def test_an_upgrade_is_not_passed_on() -> None:
    lines = (b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c", b"HTTP2-Settings: AAMAAABk")
    async with replicas(echo := Echo()) as pair:
        assert await status_of(pair, get(b"/x", *lines)) == 200
        assert not {"Upgrade", "Connection", "HTTP2-Settings"} & echo.last.headers.keys()


async def test_headers_of_one_connection_are_dropped_and_others_stay() -> None:
    dropped = (
        b"Connection: keep-alive, X-Only, Host, Content-Length",
        b"X-Only: here",
        b"Keep-Alive: timeout=5",
        b"Proxy-Connection: keep-alive",
        b"Proxy-Authorization: Basic eDp5",
        b"TE: trailers",
        b"Trailer: X-Later",
        b"X-Twice: a",
        b"x-twice: b",
        b"X-TWICE: a",
    )
    async with replicas(echo := Echo()) as pair:
        assert await status_of(pair, get(b"/x", *dropped)) == 200
        assert sorted((name.lower(), value) for name, value in echo.last.headers.items()) == [
            ("host", "x"),
            ("x-twice", "a"),
            ("x-twice", "a"),
            ("x-twice", "b"),
        ]


SMUGGLED = b"GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.mark.parametrize(
    "lines",
    [
        (b"Content-Length: 4", b"Transfer-Encoding: chunked"),
        (b"Transfer-Encoding: chunked", b"Content-Length: 4"),
        (b"Content-Length: 0", b"Content-Length: %d" % len(SMUGGLED)),
        (b"Content-Length: 0, %d" % len(SMUGGLED),),
        (b"Transfer-Encoding: chunked, identity",),
        (b"Transfer-Encoding: xchunked",),
        (b"Transfer-Encoding : chunked",),
        (b"Transfer-Encoding:\x0bchunked",),
        (b"Transfer-Encoding: chunked", b"Transfer-Encoding: identity"),
        (b"Content-Length: +3",),
        (b"Content-Length: 0x3",),
        (b" Content-Length: 3",),
        (b"X: y\r\n Content-Length: 3",),
        (b"Connection: Content-Length", b"Content-Length: 3"),
    ],
)
async def test_a_body_of_doubtful_length_smuggles_no_request(lines: tuple[bytes, ...]) -> None:
    """CWE-444. Whatever the follower takes for the body is sent with one length."""
    async with replicas(echo := Echo()) as pair:
        sent = get(b"/x", *lines, method=b"POST") + b"0\r\n\r\n" + SMUGGLED
        await answered(pair.follower, sent)
        await answered(pair.follower, get(b"/after"))
        for request in echo.seen:
            assert len(request.headers.getall("Content-Length", [])) <= 1
            assert "Transfer-Encoding" not in request.headers
        paths = [request.path for request in echo.seen]
        # A follower that takes the rest for a second request passes it on as one, which is no smuggling.
        assert paths in (["/after"], ["/x", "/after"], ["/x", "/smuggled", "/after"])


async def test_a_body_that_breaks_off_is_not_passed_on() -> None:
    async with replicas(echo := Echo()) as pair:
        for lines in ((b"Content-Length: 100",), (b"Transfer-Encoding: chunked",)):
            await answered(
                pair.follower, get(b"/x", *lines, method=b"POST") + b"5\r\nab", ends=True
            )
        assert echo.seen == []


async def test_a_get_passes_no_body_on() -> None:
    async with replicas(echo := Echo()) as pair:
        await answered(pair.follower, get(b"/x", b"Content-Length: 37") + SMUGGLED)
        assert [request.path for request in echo.seen] == ["/x"]
        assert echo.bodies == [b""]


async def test_a_client_that_waits_for_100_continue_gets_it_from_the_follower() -> None:
    async with replicas(echo := Echo()) as pair:
        sent = get(
            b"/x",
            b"Content-Length: 2",
            b"Expect: 100-continue",
            b"Connection: close",
            method=b"POST",
        )
        got = await answered(pair.follower, sent + b"{}")
        assert got.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n")
        assert "Expect" not in echo.last.headers
        assert echo.bodies == [b"{}"]


async def test_bytes_that_are_not_text_are_no_failure() -> None:
    async with replicas(Echo()) as pair:
        assert await status_of(pair, get(b"/x", b"X-Name: \xff\xfe\x80")) == 200
        assert await status_of(pair, get(b"/x", b"X-Name: \xed\xa0\x80")) == 200


async def test_an_answer_to_http_1_0_has_no_chunks() -> None:
    async with replicas(Echo()) as pair:
        got = await answered(pair.follower, b"GET /x HTTP/1.0\r\n\r\n")
        assert got.startswith(b"HTTP/1.0 200 OK\r\n")
        assert b"Transfer-Encoding" not in got
        assert got.endswith(b"\r\n\r\n{}")
