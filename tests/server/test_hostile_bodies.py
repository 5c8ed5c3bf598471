"""Bodies that are too large, too slow, encoded, or of two lengths at once, on /webhook.

A real socket and a real store, as in `test_hostile_deliveries`: nothing is left behind.
"""

import asyncio
import gzip

import pytest

from autoscaler.github.webhook import MAX_BODY
from autoscaler.server.bodies import MEBIBYTE
from tests.server.fronts import BODY, BODY_TIMEOUT, Front, headers


@pytest.mark.case(
    "two lengths, or a length and chunks",
    topic="Hostile input",
    source="RFC 9112, 6.3",
)
@pytest.mark.parametrize(
    ("name", "value"),
    [
        (b"Content-Length", b"3"),
        (b"Host", b"y"),
        (b"Content-Type", b"text/plain"),
        (b"Transfer-Encoding", b"chunked"),
        (b"Transfer-Encoding", b"gzip, chunked"),
    ],
)
async def test_headers_that_contradict_each_other_are_refused(
    front: Front, name: bytes, value: bytes
) -> None:
    """With two lengths, or a length and chunks, a proxy in front of the server may see another body."""
    assert await front.send(BODY, (*headers(BODY), (name, value))) in {400, 415}
    assert front.stored() == []


@pytest.mark.case(
    "encoded bodies, which may be compression bombs",
    topic="Hostile input",
    source="RFC 9110, 8.4",
)
@pytest.mark.parametrize("encoding", [b"gzip", b"deflate", b"br", b"zstd", b"identity, gzip", b"x"])
async def test_a_body_with_a_content_encoding_is_refused(front: Front, encoding: bytes) -> None:
    """The server never decompresses a body, so a decompression bomb has no effect."""
    bomb = gzip.compress(b" " * (4 * MEBIBYTE))
    given = (*headers(bomb), (b"Content-Encoding", encoding))
    assert await front.send(bomb, given) == 415
    assert front.stored() == []


@pytest.mark.case(
    "oversized bodies",
    topic="Hostile input",
    source="GitHub: payload cap",
)
async def test_only_a_body_above_the_limit_is_refused(
    front: Front,
) -> None:
    largest = BODY[:-1] + b" " * (MAX_BODY - len(BODY)) + b"}"
    assert await front.send(largest + b" ", headers(largest + b" ")) == 413
    assert front.stored() == []
    assert await front.send(largest, headers(largest)) == 202


@pytest.mark.parametrize("declared", [2**31, 2**64, 10**30])
async def test_a_huge_declared_length_is_refused_without_waiting_for_it(
    front: Front, declared: int
) -> None:
    assert await front.send(b"{", headers(BODY), length=declared) in {400, 413}
    assert front.stored() == []


@pytest.mark.parametrize("declared", [b"-1", b"+5", b"0x10", b"1e3", b"5, 5", b" ", b"\xd9\xa3"])
async def test_a_length_that_is_no_number_is_refused(front: Front, declared: bytes) -> None:
    head = b"POST /webhook HTTP/1.1\r\nHost: x\r\nContent-Length: " + declared
    assert await front.send_bytes(head + b"\r\n\r\n" + BODY) == 400
    assert front.stored() == []


@pytest.mark.case(
    "oversized bodies",
    topic="Hostile input",
    source="GitHub: payload cap",
)
async def test_an_endless_chunked_body_is_cut_off_at_the_limit(front: Front) -> None:
    given = b"".join(b"%s: %s\r\n" % pair for pair in headers(BODY))
    head = b"POST /webhook HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n" + given
    chunk = b"10000\r\n" + b" " * 65_536 + b"\r\n"
    assert await front.send_bytes(head + b"\r\n" + chunk * 20) == 413
    assert front.stored() == []


async def test_a_body_shorter_than_its_length_times_out(front: Front) -> None:
    assert await front.send(BODY[:-1], headers(BODY), length=len(BODY)) == 408
    assert front.stored() == []


@pytest.mark.case(
    "slow bodies, and idle connections that declare large ones",
    topic="Hostile input",
    source="CWE-400",
)
async def test_a_slow_body_times_out(front: Front) -> None:
    """The limit applies to the whole body, so sending a byte now and then does not help."""
    address = front.serving.address
    reader, writer = await asyncio.open_connection(address.host, address.port)
    given = b"".join(b"%s: %s\r\n" % pair for pair in headers(BODY))
    writer.write(b"POST /webhook HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n" % len(BODY))
    writer.write(given + b"\r\n")
    answer = asyncio.create_task(reader.readline())
    sent = 0
    while not answer.done():
        writer.write(BODY[sent : sent + 1])
        sent += 1
        await asyncio.sleep(BODY_TIMEOUT / 10)
    assert b" 408 " in await answer
    assert sent < len(BODY)
    writer.close()
    assert front.stored() == []


@pytest.mark.case(
    "slow bodies, and idle connections that declare large ones",
    topic="Hostile input",
    source="CWE-400",
)
async def test_idle_connections_that_declare_large_bodies_do_not_block_real_deliveries(
    front: Front,
) -> None:
    """The budget is 64 MiB, and only received bytes use it, not declared ones."""
    address = front.serving.address
    head = b"".join(b"%s: %s\r\n" % pair for pair in headers(BODY))
    idle = []
    for _ in range(64):
        _, writer = await asyncio.open_connection(address.host, address.port)
        length = b"Content-Length: %d\r\n" % MEBIBYTE
        writer.write(b"POST /webhook HTTP/1.1\r\nHost: x\r\n" + length + head + b"\r\n{")
        idle.append(writer)
    assert (
        await front.send(BODY, headers(BODY, signature=None)) == 401
    )  # the requests before this one are read
    assert await front.send(BODY, headers(BODY)) == 202
    assert len(front.stored()) == 1
    for writer in idle:
        writer.close()
    assert "shed" not in front.telemetry.deliveries


async def test_bytes_that_are_no_http_are_answered_400(front: Front) -> None:
    assert await front.send_bytes(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n") == 400
    long_line = b"POST /webhook?" + b"a" * 20_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n"
    assert await front.send_bytes(long_line) == 400
    many = b"".join(b"X-%d: y\r\n" % n for n in range(3_000))
    assert await front.send_bytes(b"POST /webhook HTTP/1.1\r\nHost: x\r\n" + many + b"\r\n") == 400
    assert front.stored() == []
