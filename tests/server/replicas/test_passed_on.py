"""The leader takes a client's address from another replica, and from nobody else."""

import asyncio

import aiohttp
import pytest

from autoscaler.server.listening.passed_on import ADDRESS_HEADER, SECRET_HEADER
from autoscaler.server.listening.serving import Serving
from tests.server.replicas.pair import SECRET, Echo, replicas

STRANGER = "203.0.113.9"
"""An address for documentation (RFC 5737)."""


async def test_the_leader_sees_the_clients_address_and_no_header_of_the_replicas() -> None:
    async with replicas(echo := Echo()) as pair:
        # The whole of 127.0.0.0/8 is this host (RFC 1122, section 3.2.1.3).
        connector = aiohttp.TCPConnector(local_addr=("127.0.0.77", 0))
        url = f"http://{pair.follower.address}"
        async with (
            aiohttp.ClientSession(url, connector=connector) as client,
            client.get("/") as got,
        ):
            assert got.status == 200
        assert echo.last.remote == "127.0.0.77"
        assert not {SECRET_HEADER, ADDRESS_HEADER} & echo.last.headers.keys()
        assert SECRET.encode() not in b"".join(value for _, value in echo.last.raw_headers)


@pytest.mark.parametrize(
    ("secret", "address"),
    [
        ("wrong", STRANGER),
        ("", STRANGER),
        (None, STRANGER),
        (SECRET + "x", STRANGER),
        ("\udcff", STRANGER),
        (SECRET, None),
        (SECRET, "not an address"),
        (SECRET, "203.0.113.9, 10.0.0.1"),
    ],
)
async def test_forged_headers_are_removed_and_change_nothing(
    secret: str | None, address: str | None
) -> None:
    given = {SECRET_HEADER: secret, ADDRESS_HEADER: address}
    lines = [f"{name}: {value}\r\n" for name, value in given.items() if value is not None]
    async with replicas(echo := Echo()) as pair:
        assert await _send(pair.leader, lines) == 200
        assert echo.last.remote == "127.0.0.1"
        assert not {SECRET_HEADER, ADDRESS_HEADER} & echo.last.headers.keys()


async def test_headers_given_twice_prove_nothing() -> None:
    right, address = f"{SECRET_HEADER}: {SECRET}\r\n", f"{ADDRESS_HEADER}: {STRANGER}\r\n"
    async with replicas(echo := Echo()) as pair:
        for lines in ([right, right, address], [right, address, address]):
            assert await _send(pair.leader, lines) == 200
            assert echo.last.remote == "127.0.0.1"
        # The same without a header too many, in small letters.
        assert await _send(pair.leader, [right.lower(), address.lower()]) == 200
        assert echo.last.remote == STRANGER


@pytest.mark.parametrize("secret", [None, ""])
async def test_a_process_that_does_not_lead_believes_no_secret(secret: str | None) -> None:
    lines = [f"{SECRET_HEADER}: {secret or ''}\r\n", f"{ADDRESS_HEADER}: {STRANGER}\r\n"]
    async with replicas(echo := Echo(), secret=secret) as pair:
        assert await _send(pair.leader, lines) == 200
        assert echo.last.remote == "127.0.0.1"


async def _send(serving: Serving, lines: list[str]) -> int:
    """Return the status of a GET with these header lines."""
    reader, writer = await asyncio.open_connection(serving.address.host, serving.address.port)
    head = f"GET / HTTP/1.1\r\nHost: x\r\n{''.join(lines)}\r\n"
    writer.write(head.encode(errors="surrogateescape"))
    status = int((await reader.readline()).split()[1])
    writer.close()
    return status
