"""Bad input on /webhook, byte by byte over a real socket, with the real signature, parser and store.

Whatever is refused with 4xx leaves nothing behind: the file of the store is looked into.
"""

import asyncio
import gzip
import hashlib
import hmac
import json
import shutil
import sqlite3
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import pytest_asyncio

from autoscaler.github.webhook import MAX_BODY, parse_workflow_job, verify_signature
from autoscaler.server.bodies import MEBIBYTE
from autoscaler.server.serving import Serving
from autoscaler.server.webhook import WebhookEndpoint, WebhookLimits
from autoscaler.store.sqlite import SqliteStore
from tests.server.doubles import CountingTelemetry, StillClock
from tests.server.fakes import LOOPBACK

SECRETS = (b"the live webhook secret", b"the one before it")
BODY_TIMEOUT = 0.2

JOB = {
    "action": "queued",
    "workflow_job": {
        "id": 29679449,
        "run_id": 940463255,
        "run_attempt": 1,
        "status": "queued",
        "name": "linux-gpu / test",
        "labels": ["self-hosted", "gpu"],
        "created_at": "2027-01-15T07:59:30Z",
    },
    "repository": {"full_name": "acme/widgets"},
}
BODY = json.dumps(JOB).encode()

Headers = tuple[tuple[bytes, bytes], ...]


def signature(body: bytes, secret: bytes = SECRETS[0], algorithm: str = "sha256") -> bytes:
    return f"{algorithm}={hmac.new(secret, body, algorithm).hexdigest()}".encode()


def headers(body: bytes, **changes: bytes | None) -> Headers:
    """As GitHub sends them; None leaves one out."""
    names = {"type": "Content-Type", "signature": "X-Hub-Signature-256"}
    names |= {"delivery": "X-GitHub-Delivery", "event": "X-GitHub-Event"}
    values: dict[str, bytes | None] = {
        "type": b"application/json",
        "signature": signature(body),
        "delivery": b"0b989ba4-242f-11e5-81e1-c7b6966d2516",
        "event": b"workflow_job",
    }
    given = values | changes
    return tuple((names[key].encode(), value) for key, value in given.items() if value is not None)


@dataclass
class Front:
    """A running server, and the file behind it."""

    serving: Serving
    path: Path
    telemetry: CountingTelemetry

    async def send(self, body: bytes, given: Headers, *, length: int | None = None) -> int:
        """The status that a POST of these very bytes is answered with."""
        size = len(body) if length is None else length
        lines = [b"POST /webhook HTTP/1.1", b"Host: x", b"Connection: close"]
        lines += [b"Content-Length: %d" % size, *(b"%s: %s" % pair for pair in given)]
        return await self.send_bytes(b"\r\n".join(lines) + b"\r\n\r\n" + body)

    async def send_bytes(self, sent: bytes) -> int:
        """The status that these bytes are answered with."""
        address = self.serving.address
        reader, writer = await asyncio.open_connection(address.host, address.port)
        try:
            writer.write(sent)
            async with asyncio.timeout(10):
                return int((await reader.readline()).split()[1])
        finally:
            writer.close()

    def stored(self) -> list[str]:
        """The ids in the file, read past the process that writes it."""
        with closing(sqlite3.connect(self.path)) as connection:
            return [row[0] for row in connection.execute("SELECT id FROM inbox ORDER BY seq")]


@pytest.fixture(scope="module")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made once: bringing a new file up to date takes longer than most of these tests."""

    async def make(path: Path) -> None:
        await (await SqliteStore.open(path)).close()

    path = tmp_path_factory.mktemp("empty") / "state.db"
    asyncio.run(make(path))
    return path


@pytest_asyncio.fixture
async def front(tmp_path: Path, empty_store: Path) -> AsyncIterator[Front]:
    path, telemetry = tmp_path / "state.db", CountingTelemetry()
    shutil.copy(empty_store, path)
    async with AsyncExitStack() as stack:
        store = await SqliteStore.open(path)
        stack.push_async_callback(store.close)
        endpoint = WebhookEndpoint(
            lambda body, header: verify_signature(body, header, SECRETS),
            parse_workflow_job,
            store.accept,
            StillClock(),
            telemetry,
            WebhookLimits(body_timeout=BODY_TIMEOUT),
        )
        serving = Serving(replace(LOOPBACK, shutdown=0.2), endpoint, [])
        await stack.enter_async_context(serving)
        yield Front(serving, path, telemetry)


@pytest.mark.parametrize("secret", SECRETS)
async def test_what_either_live_secret_signed_is_kept(front: Front, secret: bytes) -> None:
    """So that the tests below can fail: this server keeps what is good."""
    assert await front.send(BODY, headers(BODY, signature=signature(BODY, secret))) == 202
    assert front.stored() == ["0b989ba4-242f-11e5-81e1-c7b6966d2516"]


async def test_a_signed_body_sent_again_under_an_id_does_not_keep_that_id_s_own_out(
    front: Front,
) -> None:
    """The signature covers the body alone: an id can be pre-empted, its delivery cannot."""
    captured = json.dumps(JOB | {"action": "completed"}).encode()
    assert await front.send(captured, headers(captured)) == 202
    assert await front.send(BODY, headers(BODY)) == 202
    assert await front.send(BODY, headers(BODY)) == 200
    assert len(front.stored()) == 2


SIGNED_BY_NOBODY: dict[str, bytes | None] = {
    "unsigned": None,
    "empty": b"",
    "another body's": signature(BODY + b" "),
    "another secret's": signature(BODY, b"a secret of somebody else"),
    "an empty secret's": signature(BODY, b""),
    "sha1 under its own name": signature(BODY, algorithm="sha1"),
    "sha1 named sha256": b"sha256=" + signature(BODY, algorithm="sha1")[5:],
    "sha512": signature(BODY, algorithm="sha512"),
    "a plain hash": b"sha256=" + hashlib.sha256(BODY).hexdigest().encode(),
    "without its algorithm": signature(BODY)[7:],
    "in capitals": signature(BODY).upper(),
    "cut short": signature(BODY)[:-1],
    "one digit more": signature(BODY) + b"0",
    "two in one header": signature(BODY) + b", " + signature(BODY),
    "non-ASCII, Latin-1": b"sha256=" + b"\xe9" * 64,
    "non-ASCII, UTF-8": b"sha256=" + "\uff11".encode() * 64,
    "very long": b"sha256=" + b"0" * 7_000,
}


@pytest.mark.parametrize("kind", SIGNED_BY_NOBODY)
async def test_a_body_whose_signature_is_wrong_is_answered_401(front: Front, kind: str) -> None:
    given = headers(BODY, signature=SIGNED_BY_NOBODY[kind])
    assert await front.send(BODY, given) == 401
    assert front.stored() == []


async def test_the_old_sha1_header_beside_none_is_answered_401(front: Front) -> None:
    old = ((b"X-Hub-Signature", signature(BODY, algorithm="sha1")),)
    assert await front.send(BODY, headers(BODY, signature=None) + old) == 401
    assert front.stored() == []


@pytest.mark.parametrize("position", range(0, len(BODY), 29))
async def test_one_bit_of_the_body_changed_is_answered_401(front: Front, position: int) -> None:
    changed = bytearray(BODY)
    changed[position] ^= 1
    assert await front.send(bytes(changed), headers(BODY)) == 401
    assert front.stored() == []


DEEP = 100_000
MALFORMED = {
    "empty": b"",
    "not JSON": b"{",
    "no object": b"[]",
    "two objects": BODY + BODY,
    "cut off": BODY[:-2],
    "not UTF-8": BODY.replace(b"linux-gpu", b"\xff\xfe"),
    "UTF-16": json.dumps(JOB).encode("utf-16"),
    "a byte order mark": b"\xef\xbb\xbf" + BODY,
    "a lone surrogate": BODY.replace(b'"gpu"', b'"\\ud800"'),
    "a control character in a label": BODY.replace(b'"gpu"', b'"g\\u0000pu"'),
    "deeply nested lists": b"[" * DEEP + b"]" * DEEP,
    "deeply nested objects": b'{"action":"queued","x":' + b'{"x":' * DEEP + b"1" + b"}" * DEEP,
    "deep in a field that is read": BODY.replace(b'["self-hosted"', b"[" * DEEP + b'"self-hosted"'),
    "an id that is text": BODY.replace(b"29679449", b'"29679449"'),
    "an id of 65 bits": BODY.replace(b"29679449", b"18446744073709551616"),
    "a number of 4,000 digits": BODY.replace(b"29679449", b"9" * 4_000),
    "an id that is no number": BODY.replace(b"29679449", b"NaN"),
    "a path as repository": BODY.replace(b"acme/widgets", b"acme/../../secrets"),
    "a thousand labels": BODY.replace(b'"gpu"', b'"gpu",' * 999 + b'"gpu"'),
    "no time": BODY.replace(b"2027-01-15T07:59:30Z", b"2027-99-99T07:59:30Z"),
    "a job missing": b'{"action": "queued", "repository": {"full_name": "acme/widgets"}}',
}


@pytest.mark.parametrize("kind", MALFORMED)
async def test_a_malformed_body_is_answered_400_though_it_is_signed(
    front: Front, kind: str
) -> None:
    body = MALFORMED[kind]
    assert await front.send(body, headers(body)) == 400
    assert front.stored() == []


@pytest.mark.parametrize("kind", MALFORMED)
async def test_a_malformed_body_that_is_not_signed_is_not_even_parsed(
    front: Front, kind: str
) -> None:
    body = MALFORMED[kind]
    assert await front.send(body, headers(body, signature=None)) == 401
    assert front.stored() == []
    assert front.telemetry.deliveries == {"bad_signature": 1}


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"delivery": None}, 400),
        ({"delivery": b""}, 400),
        ({"delivery": b"../../etc/passwd"}, 400),
        ({"delivery": b"a" * 65}, 400),
        ({"delivery": "é".encode()}, 400),
        ({"event": None}, 400),
        ({"event": b"Workflow Job"}, 400),
        ({"event": b"workflow_job\xff"}, 400),
        ({"type": None}, 415),
        ({"type": b"text/json"}, 415),
        ({"type": b"application/x-www-form-urlencoded"}, 415),
        ({"type": b"application/json; charset=utf-16"}, 202),  # only the bytes count
        ({"type": b"\xff\xfe"}, 415),
    ],
)
async def test_headers_that_are_wrong_are_refused(
    front: Front, changes: dict[str, bytes | None], status: int
) -> None:
    assert await front.send(BODY, headers(BODY, **changes)) == status
    assert len(front.stored()) == (status == 202)


@pytest.mark.parametrize("name", [b"X-Hub-Signature-256", b"X-GitHub-Delivery", b"X-GitHub-Event"])
@pytest.mark.parametrize("same", [True, False])
async def test_a_header_given_twice_means_nothing(front: Front, name: bytes, same: bool) -> None:
    given = headers(BODY)
    value = dict(given)[name]
    again = ((name, value if same else value[:-1] + b"0"),)
    assert await front.send(BODY, given + again) in {400, 401}
    assert await front.send(BODY, again + given) in {400, 401}
    assert front.stored() == []


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
    """Two lengths, or a length and chunks: whoever stands before us may see another body."""
    assert await front.send(BODY, (*headers(BODY), (name, value))) in {400, 415}
    assert front.stored() == []


@pytest.mark.parametrize("encoding", [b"gzip", b"deflate", b"br", b"zstd", b"identity, gzip", b"x"])
async def test_an_encoded_body_is_refused_unread(front: Front, encoding: bytes) -> None:
    """Nothing is ever decompressed, so no bomb goes off."""
    bomb = gzip.compress(b" " * (4 * MEBIBYTE))
    given = (*headers(bomb), (b"Content-Encoding", encoding))
    assert await front.send(bomb, given) == 415
    assert front.stored() == []


async def test_a_body_of_a_byte_too_many_is_refused_and_one_of_the_limit_is_not(
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


async def test_an_endless_chunked_body_is_cut_off_at_the_limit(front: Front) -> None:
    given = b"".join(b"%s: %s\r\n" % pair for pair in headers(BODY))
    head = b"POST /webhook HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n" + given
    chunk = b"10000\r\n" + b" " * 65_536 + b"\r\n"
    assert await front.send_bytes(head + b"\r\n" + chunk * 20) == 413
    assert front.stored() == []


async def test_a_body_shorter_than_its_length_is_waited_for_and_given_up(front: Front) -> None:
    assert await front.send(BODY[:-1], headers(BODY), length=len(BODY)) == 408
    assert front.stored() == []


async def test_a_body_that_trickles_is_given_up_after_its_time(front: Front) -> None:
    """A byte now and then keeps no connection: the time is for the whole body."""
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


async def test_idle_connections_that_declare_large_bodies_shed_no_real_delivery(
    front: Front,
) -> None:
    """64 times 1 MiB is all that may be held; what is only declared holds nothing."""
    address = front.serving.address
    head = b"".join(b"%s: %s\r\n" % pair for pair in headers(BODY))
    idle = []
    for _ in range(64):
        _, writer = await asyncio.open_connection(address.host, address.port)
        length = b"Content-Length: %d\r\n" % MEBIBYTE
        writer.write(b"POST /webhook HTTP/1.1\r\nHost: x\r\n" + length + head + b"\r\n{")
        idle.append(writer)
    assert await front.send(BODY, headers(BODY, signature=None)) == 401  # those before are read
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
