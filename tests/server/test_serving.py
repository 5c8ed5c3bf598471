"""The listeners: their endpoints, TLS, limits of connections, and a prompt and clean stop."""

import asyncio
import errno
import logging
import os
import resource
import socket
import ssl
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest
import uvloop
from structlog.testing import capture_logs

from autoscaler.model.identifiers import Address
from autoscaler.server.listening.listener import ListenError
from autoscaler.server.listening.serving import Serving
from autoscaler.server.listening.settings import TlsFiles
from tests.patience import PATIENCE
from tests.server.certificates import make_certificate
from tests.server.doubles import MACHINE, NONCE
from tests.server.fakes import (
    ASSIGNMENT,
    LOOPBACK,
    PING,
    Backstage,
    Caller,
    running,
    until,
    with_webhook_alone,
)

EVERYWHERE_ELSE = ["/bootstrap/agent.py", "/healthz", "/readyz", "/metrics"]
POLL = 50
"""Seconds for which a poll waits if nothing happens, much longer than an immediate answer takes."""
HEALTH = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
HEARTBEAT = (
    f"POST /bootstrap/machines/{MACHINE}/heartbeat HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n"
    f"Authorization: Bearer {NONCE}\r\n\r\n{{}}"
).encode()


async def connect(address: Address) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection(address.host, address.port)


async def test_all_endpoints_are_on_one_listener_by_default(caller: Caller) -> None:
    assert caller.serving.webhook_address == caller.serving.address
    assert (await caller.deliver(b'{"action": "queued"}')).status == 202
    assert [(await caller.get(path)).status for path in EVERYWHERE_ELSE] == [200] * 4


async def test_the_webhook_can_have_its_own_listener() -> None:
    async with running(settings=with_webhook_alone()) as caller:
        assert caller.serving.webhook_address != caller.serving.address
        assert (await caller.deliver(b'{"action": "queued"}')).status == 404
        assert [(await caller.get(path)).status for path in EVERYWHERE_ELSE] == [200] * 4
        public = f"http://{caller.serving.webhook_address}"
        async with aiohttp.ClientSession(public) as session:
            outside = replace(caller, session=session)
            assert (await outside.deliver(b'{"action": "queued"}')).status == 202
            assert [(await outside.get(path)).status for path in EVERYWHERE_ELSE] == [404] * 4
            assert (await outside.post("/bootstrap/attest")).status == 404


async def test_without_webhooks_there_is_no_such_path() -> None:
    async with (
        Serving(LOOPBACK, None, [Backstage().health]) as serving,
        aiohttp.ClientSession(f"http://{serving.address}") as session,
    ):
        assert (await session.post("/webhook", data=b"{}")).status == 404
        assert (await session.get("/healthz")).status == 200


async def test_stopping_closes_both_listeners() -> None:
    async with running(settings=with_webhook_alone()) as caller:
        addresses = [caller.serving.address, caller.serving.webhook_address]
        for address in addresses:
            (await connect(address))[1].close()
    for address in addresses:
        with pytest.raises(ConnectionRefusedError):
            await connect(address)


async def test_without_file_descriptors_the_server_logs_it_and_accepts_later(
    caller: Caller,
) -> None:
    """EMFILE concerns the process, not one connection: the next accept would fail too."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    address = caller.serving.address
    with socket.create_connection((address.host, address.port)) as waiting:
        waiting.sendall(HEALTH)
        lowest_free = os.dup(waiting.fileno())
        os.close(lowest_free)
        with capture_logs() as logs:
            resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, hard))
            try:
                await until(lambda: bool(logs))
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        reader, writer = await asyncio.open_connection(sock=waiting.dup())
        assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
        writer.close()
    assert [(line["event"], line["reason"]) for line in logs] == [
        ("connections_not_accepted", os.strerror(errno.EMFILE))
    ]


async def test_an_address_in_use_is_named_and_nothing_is_left_listening() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        main = Address(*free.getsockname())
        free.close()
        busy = Address(*taken.getsockname())
        serving = Backstage().serving(replace(LOOPBACK, listen=main, webhook_listen=busy))
        with pytest.raises(ListenError, match=rf"cannot listen on {busy}: .*ss -ltnp shows"):
            await serving.start()
        with pytest.raises(ConnectionRefusedError):
            await connect(main)


async def test_stopping_a_server_that_does_not_run_does_nothing() -> None:
    serving = Backstage().serving()
    await serving.stop()
    await serving.start()
    address = serving.address
    await serving.stop()
    await serving.stop()
    with pytest.raises(ConnectionRefusedError):
        await connect(address)


# --- TLS ---------------------------------------------------------------------------------------


async def test_tls_uses_the_configured_certificate(tmp_path: Path) -> None:
    files = make_certificate(tmp_path)
    async with running(settings=replace(LOOPBACK, tls=files)) as caller:
        trusting = ssl.create_default_context(cafile=files.certificate)
        async with aiohttp.ClientSession() as session:
            url = f"https://{caller.serving.address}/healthz"
            async with session.get(url, ssl=trusting) as answer:
                assert answer.status == 200
            with pytest.raises(aiohttp.ClientConnectorCertificateError):
                await session.get(url)
        with pytest.raises(aiohttp.ClientError):
            await caller.get("/healthz")


def client_hello(version: bytes) -> bytes:
    """The first record of a client that speaks `version` at most (RFC 5246, 7.4.1.2)."""
    suites = bytes.fromhex("0006 c009 c023 c02b")
    p256_with_sha256 = bytes.fromhex("000d 0004 0002 0403 000a 0004 0002 0017")
    extensions = len(p256_with_sha256).to_bytes(2) + p256_with_sha256
    attest = version + bytes(32) + b"\x00" + suites + b"\x01\x00" + extensions
    handshake = b"\x01" + len(attest).to_bytes(3) + attest
    return b"\x16\x03\x01" + len(handshake).to_bytes(2) + handshake


@pytest.mark.parametrize(("version", "answered"), [(b"\x03\x03", True), (b"\x03\x02", False)])
async def test_only_tls_1_2_and_later(tmp_path: Path, version: bytes, answered: bool) -> None:
    settings = replace(LOOPBACK, tls=make_certificate(tmp_path))
    async with running(settings=settings) as caller:
        reader, writer = await connect(caller.serving.address)
        writer.write(client_hello(version))
        first = await reader.read(1)
        writer.close()
        assert (first == b"\x16") is answered


def _missing(files: TlsFiles, _: Path) -> TlsFiles:
    return replace(files, certificate=files.certificate.with_name("absent.pem"))


def _foreign_key(files: TlsFiles, folder: Path) -> TlsFiles:
    other = folder / "other"
    other.mkdir()
    return replace(files, key=make_certificate(other).key)


def _encrypted_key(_: TlsFiles, folder: Path) -> TlsFiles:
    return make_certificate(folder, password=b"secret")


@pytest.mark.parametrize("spoil", [_missing, _foreign_key, _encrypted_key])
async def test_a_certificate_that_cannot_be_used_is_named(
    tmp_path: Path, spoil: Callable[[TlsFiles, Path], TlsFiles]
) -> None:
    files = spoil(make_certificate(tmp_path), tmp_path)
    serving = Backstage().serving(replace(LOOPBACK, tls=files))
    with pytest.raises(ListenError) as raised:
        await serving.start()
    assert str(files.certificate) in str(raised.value)
    assert str(files.key) in str(raised.value)


async def shown_by(address: Address) -> bytes:
    """Return the certificate that a new connection gets."""
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    _, writer = await asyncio.open_connection(address.host, address.port, ssl=trusting)
    shown: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    return shown


def der(files: TlsFiles) -> bytes:
    return ssl.PEM_cert_to_DER_cert(files.certificate.read_text())


async def test_a_renewed_certificate_is_used_for_the_next_connection(tmp_path: Path) -> None:
    files = make_certificate(tmp_path)
    first = der(files)
    async with running(settings=replace(LOOPBACK, tls=files)) as caller:
        with capture_logs() as logs:
            assert await shown_by(caller.serving.address) == first
        assert logs == []
        make_certificate(tmp_path)
        assert der(files) != first
        with capture_logs() as logs:
            assert await shown_by(caller.serving.address) == der(files)
            assert await shown_by(caller.serving.address) == der(files)
        assert [(one["event"], one["certificate"]) for one in logs] == [
            ("certificate_reloaded", str(files.certificate))
        ]


@pytest.mark.parametrize("how", ["cut", "foreign key", "missing", "unreadable", "fifo"])
async def test_a_bad_renewal_is_logged_once_and_the_old_certificate_stays(
    tmp_path: Path, how: str
) -> None:
    files = make_certificate(tmp_path)
    first = der(files)
    async with running(settings=replace(LOOPBACK, tls=files)) as caller:
        if how == "cut":
            files.certificate.write_text("-----BEGIN CERTIFICATE-----")
        elif how == "foreign key":
            (tmp_path / "other").mkdir()
            files.key.write_bytes(make_certificate(tmp_path / "other").key.read_bytes())
        elif how == "missing":
            files.certificate.unlink()
        elif how == "fifo":
            files.key.unlink()
            os.mkfifo(files.key)
        else:
            files.key.unlink()
            files.key.mkdir()
        with capture_logs() as logs:
            for _ in range(3):
                assert await shown_by(caller.serving.address) == first
        (reported,) = logs
        assert reported["event"] == "certificate_not_reloaded"
        assert str(files.certificate) in reported["error"]
        if how == "unreadable":
            files.key.rmdir()
        if how == "fifo":
            files.key.unlink()
        make_certificate(tmp_path)
        assert await shown_by(caller.serving.address) == der(files)


# --- the end -----------------------------------------------------------------------------------


async def test_ready_machines_are_answered_at_once_when_the_server_stops() -> None:
    behind = Backstage()
    async with running(behind, replace(LOOPBACK, shutdown=PATIENCE)) as caller:
        polls = [asyncio.create_task(caller.send_step("poll", {"wait": POLL})) for _ in range(20)]
        await until(lambda: behind.bootstrap.asked == 20)
        async with asyncio.timeout(POLL / 2):
            await caller.serving.stop()
            replies = await asyncio.gather(*polls)
        assert {(reply.status, reply.body) for reply in replies} == {(200, b'{"state":"ready"}')}
        assert {reply.headers["Connection"] for reply in replies} == {"close"}
        assert behind.telemetry.steps == {("poll", "ok"): 20}


async def test_requests_in_flight_are_answered_before_the_stop() -> None:
    behind = Backstage()
    async with running(behind) as caller:
        behind.inbox.open.clear()
        behind.bootstrap.go_on.clear()
        delivery = asyncio.create_task(caller.deliver(b'{"action": "queued"}'))
        heartbeat = asyncio.create_task(caller.send_step("heartbeat"))
        await until(lambda: behind.inbox.asked == 1 and behind.bootstrap.asked == 1)
        stopping = asyncio.create_task(caller.serving.stop())
        await asyncio.sleep(0.02)
        behind.inbox.open.set()
        behind.bootstrap.go_on.set()
        assert (await delivery).status == 202
        assert (await heartbeat).status == 204
        await stopping


@pytest.mark.parametrize("early", [0, 10, len(HEARTBEAT) - 1])
async def test_a_request_on_its_way_is_answered_before_the_stop(early: int) -> None:
    """GitHub repeats no delivery. Round trips lie between its connection, its request's head and its body."""
    async with running() as caller:
        reader, writer = await connect(caller.serving.address)
        writer.write(HEARTBEAT[:early])
        await until(lambda: len(caller.serving._main._places) == 1)
        await asyncio.sleep(0.01)
        stopping = asyncio.create_task(caller.serving.stop())
        await asyncio.sleep(0)  # it has begun
        writer.write(HEARTBEAT[early:])
        answer = await reader.readline()
        writer.close()
        await stopping
        assert answer == b"HTTP/1.1 204 No Content\r\n"


async def test_a_connection_without_a_request_does_not_delay_the_stop_for_long() -> None:
    async with running() as caller:
        reader, writer = await connect(caller.serving.address)
        await until(lambda: len(caller.serving._main._places) == 1)
        async with asyncio.timeout(PATIENCE):
            await caller.serving.stop()
        assert await reader.read() == b""
        writer.close()


async def test_an_assignment_made_while_stopping_is_still_sent() -> None:
    behind = Backstage()
    async with running(behind) as caller:
        behind.bootstrap.go_on.clear()
        behind.bootstrap.assignment = ASSIGNMENT
        poll = asyncio.create_task(caller.send_step("poll", {"wait": 50}))
        await until(lambda: behind.bootstrap.asked == 1)
        behind.bootstrap.go_on.set()
        await asyncio.sleep(0)
        await caller.serving.stop()
        assert (await poll).json["state"] == "assigned"


async def test_a_request_that_never_ends_does_not_delay_the_stop() -> None:
    behind = Backstage()
    async with running(behind, replace(LOOPBACK, shutdown=0.1)) as caller:
        behind.inbox.open.clear()
        delivery = asyncio.create_task(caller.deliver(b'{"action": "queued"}'))
        await until(lambda: behind.inbox.asked == 1)
        async with asyncio.timeout(PATIENCE):
            await caller.serving.stop()
        with pytest.raises(aiohttp.ClientError):
            await delivery
        assert behind.inbox.kept == {}


# --- bounds ------------------------------------------------------------------------------------


async def test_connections_beyond_the_limit_are_closed_and_it_recovers() -> None:
    async with running(
        settings=replace(LOOPBACK, max_connections=2, keepalive=2 * PATIENCE)
    ) as caller:
        held = [await connect(caller.serving.address) for _ in range(2)]
        for reader, writer in held:
            writer.write(HEALTH)
            assert b" 200 " in await reader.readline()
        reader, writer = await connect(caller.serving.address)
        async with asyncio.timeout(PATIENCE):
            assert await reader.read() == b""
        writer.close()
        held[0][1].close()
        assert await _gets_in(caller)
        held[1][1].close()


async def _gets_in(caller: Caller) -> bool:
    """Return True if a connection is accepted after the server sees the other one close."""
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                return (await caller.get("/healthz")).status == 200
            except aiohttp.ClientError:
                await asyncio.sleep(0.005)


@pytest.mark.parametrize("sent", [b"", b"POST /webhook HTTP/1.1\r\nHost: x\r\nX-Slow: "])
async def test_a_peer_that_sends_no_request_is_closed(sent: bytes) -> None:
    async with running(settings=replace(LOOPBACK, keepalive=0.3)) as caller:
        reader, writer = await connect(caller.serving.address)
        writer.write(sent)
        async with asyncio.timeout(PATIENCE):
            assert await reader.read() == b""
        writer.close()


async def test_an_idle_connection_is_closed_after_its_answer() -> None:
    async with running(settings=replace(LOOPBACK, keepalive=0.3)) as caller:
        reader, writer = await connect(caller.serving.address)
        writer.write(PING)
        async with asyncio.timeout(PATIENCE):
            answer = await reader.read()
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert b"Connection: close" not in answer
        writer.close()


async def test_connections_between_heartbeats_are_closed() -> None:
    async with running(settings=replace(LOOPBACK, keepalive=2 * PATIENCE)) as caller:
        reader, writer = await connect(caller.serving.address)
        writer.write(HEARTBEAT)
        async with asyncio.timeout(PATIENCE):
            answer = await reader.read()
        assert answer.startswith(b"HTTP/1.1 204 ")
        assert b"Connection: close" in answer
        writer.close()


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\nX-Long: " + b"a" * 9_000 + b"\r\n\r\n",
        b"GET /" + b"a" * 9_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\n" + b"A: b\r\n" * 200 + b"\r\n",
        b"\x16\x03\x01 no http bearer-of-a-secret \r\n\r\n",
        b"POST /webhook HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"POST /webhook HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
    ],
)
async def test_malformed_or_unbounded_http_is_refused_without_a_log_line(
    caller: Caller, caplog: pytest.LogCaptureFixture, sent: bytes
) -> None:
    with caplog.at_level(logging.DEBUG, logger="autoscaler.server.http"):
        reader, writer = await connect(caller.serving.address)
        writer.write(sent)
        assert (await reader.readline()).startswith((b"HTTP/1.0 400 ", b"HTTP/1.1 400 "))
        writer.close()
    assert [r for r in caplog.records if r.name == "autoscaler.server.http"] == []


def test_serving_works_on_uvloop(tmp_path: Path) -> None:
    async def scene() -> None:
        files = make_certificate(tmp_path)
        settings = replace(with_webhook_alone(), tls=files)
        behind = Backstage()
        async with behind.serving(settings) as serving:
            trusting = ssl.create_default_context(cafile=files.certificate)
            connector = aiohttp.TCPConnector(ssl=trusting)
            base = f"https://{serving.address}"
            async with aiohttp.ClientSession(base, connector=connector) as session:
                machine = Caller(session, serving, behind)
                poll = asyncio.create_task(machine.send_step("poll", {"wait": POLL}))
                await behind.bootstrap.polling.wait()
                async with aiohttp.ClientSession(f"http://{serving.webhook_address}") as outside:
                    github = Caller(outside, serving, behind)
                    assert (await github.deliver(b'{"action": "queued"}')).status == 202
                async with asyncio.timeout(POLL / 2):
                    await serving.stop()
                    assert (await poll).json == {"state": "ready"}

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(scene())
