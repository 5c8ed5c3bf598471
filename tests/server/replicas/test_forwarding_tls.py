"""A replica passes requests on only to a leader with the certificate of `server.public_url`."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from structlog.testing import capture_logs

from autoscaler.server.listening.serving import Serving
from autoscaler.server.listening.settings import TlsFiles
from autoscaler.server.replicas.forwarding import ForwardEndpoint, ForwardLimits
from tests.server.certificates import make_certificate
from tests.server.fakes import LOOPBACK
from tests.server.replicas.pair import Echo, lease_of

HOST = "fleet.internal.example"
"""The host of `server.public_url`. The leader's own URL has an IP address."""


@asynccontextmanager
async def leader(files: TlsFiles | None) -> AsyncIterator[tuple[Echo, str]]:
    echo = Echo()
    async with Serving(replace(LOOPBACK, tls=files), None, [echo]) as serving:
        yield echo, f"{'http' if files is None else 'https'}://{serving.address}"


async def ask(
    url: str, ca: Path | None, name: str | None, limits: ForwardLimits | None = None
) -> tuple[int, Any]:
    """Return the answer of a replica that trusts this CA and knows this leader."""
    trust = None if ca is None else ssl.create_default_context(cafile=ca)
    forward = ForwardEndpoint(lambda: lease_of(url), trust, name, 8, limits)
    async with (
        Serving(LOOPBACK, None, [forward]) as serving,
        aiohttp.ClientSession(f"http://{serving.address}") as client,
        client.post("/bootstrap/attest", data=b"{}") as got,
    ):
        return got.status, await got.json()


async def test_the_certificate_of_the_public_host_is_accepted_at_an_address(tmp_path: Path) -> None:
    files = make_certificate(tmp_path, host=HOST)
    async with leader(files) as (_, url):
        assert await ask(url, files.certificate, HOST) == (200, {})


@pytest.mark.parametrize("certified", ["other.example", None], ids=["other host", "address"])
async def test_a_certificate_of_another_name_is_refused_before_anything_is_sent(
    tmp_path: Path, certified: str | None
) -> None:
    files = make_certificate(tmp_path, host=certified)
    async with leader(files) as (echo, url):
        with capture_logs() as lines:
            status, answer = await ask(url, files.certificate, HOST)
        assert (status, answer["error"], echo.seen) == (503, "leader_unreachable", [])
        assert "ertificate" in lines[0]["cause"]  # the log says why, and the answer does not
        assert f" at {url}: " in lines[0]["cause"]
        assert "SSLContext" not in lines[0]["cause"]
        assert "ertificate" not in str(answer)


async def test_a_certificate_of_another_authority_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = make_certificate(tmp_path / "other", host=HOST)
    async with leader(make_certificate(tmp_path, host=HOST)) as (echo, url):
        assert (await ask(url, other.certificate, HOST))[0] == 503
        assert echo.seen == []


async def test_no_request_goes_over_plain_http_to_a_leader_if_this_replica_has_tls(
    tmp_path: Path,
) -> None:
    files = make_certificate(tmp_path, host=HOST)
    async with leader(None) as (echo, url):
        assert (await ask(url, files.certificate, HOST))[0] == 503
        assert (await ask(url, None, None))[0] == 200
        assert len(echo.seen) == 1


async def test_a_leader_that_begins_no_tls_is_answered_as_none(tmp_path: Path) -> None:
    files = make_certificate(tmp_path, host=HOST)
    async with await asyncio.start_server(_say_nothing, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        limits = ForwardLimits(connect=0.05)
        status, answer = await ask(f"https://{host}:{port}", files.certificate, HOST, limits)
        assert (status, answer["error"]) == (503, "leader_unreachable")


async def _say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()
    writer.close()
