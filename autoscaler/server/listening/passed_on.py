"""Recognizes the requests that another replica passes on, and takes the client's address from them.

A replica that does not lead passes requests on (`server.replicas`), with two headers of its own. Anyone can
send them, so the address counts only with the secret of the lease, which is in the store. A wrong secret
changes nothing about the answer. Both headers are removed before any handler or log sees the request.
"""

import asyncio
import hmac
import ipaddress
from collections.abc import Callable
from typing import Final

from aiohttp import StreamReader, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http_parser import RawRequestMessage
from multidict import CIMultiDict, CIMultiDictProxy

SECRET_HEADER: Final = "Autoscaler-Lease-Secret"  # noqa: S105 - the name of a header
ADDRESS_HEADER: Final = "Autoscaler-Client-Address"

_OURS = frozenset({SECRET_HEADER.lower(), ADDRESS_HEADER.lower()})

PASSED_ON: Final = web.RequestKey("passed_on", bool)
"""Set to True in a request that came with one of the two headers. Such a request is not passed on again."""

Secret = Callable[[], str | None]
"""Returns the secret of the lease while this process leads, else None."""

RequestFactory = Callable[
    [
        RawRequestMessage,
        StreamReader,
        web.RequestHandler,
        AbstractStreamWriter,
        "asyncio.Task[None]",
    ],
    web.BaseRequest,
]
"""What makes aiohttp's request from its parts."""


def no_secret() -> None:
    """Return None: what `Secret` says in the one process of a store that is not shared."""


def proof_headers(secret: str, address: str) -> dict[str, str]:
    """Return the headers with which a replica passes on a request of the client at `address`."""
    return {SECRET_HEADER: secret, ADDRESS_HEADER: address}


def recognizing(make: RequestFactory, secret: Secret) -> RequestFactory:
    """Return a factory of requests that have the client's address, and none of the two headers.

    An aiohttp middleware would be too late: it runs inside of what logs and refuses.
    """

    def made(
        message: RawRequestMessage,
        payload: StreamReader,
        protocol: web.RequestHandler,
        writer: AbstractStreamWriter,
        task: "asyncio.Task[None]",
    ) -> web.BaseRequest:
        headers = message.headers
        if SECRET_HEADER not in headers and ADDRESS_HEADER not in headers:
            return make(message, payload, protocol, writer, task)
        request = make(_without_ours(message), payload, protocol, writer, task)
        request[PASSED_ON] = True
        address = _proven_address(headers, secret())
        return request if address is None else request.clone(remote=address)

    return made


def _proven_address(headers: CIMultiDictProxy[str], secret: str | None) -> str | None:
    """Return the client's address, or None without the right secret and exactly one address."""
    secrets, addresses = (headers.getall(one, []) for one in (SECRET_HEADER, ADDRESS_HEADER))
    if not secret or len(secrets) != 1 or len(addresses) != 1:
        return None
    given = secrets[0].encode(errors="surrogateescape")
    if not hmac.compare_digest(given, secret.encode()):
        return None
    try:
        ipaddress.ip_address(addresses[0])
    except ValueError:
        return None
    return addresses[0]


def _without_ours(message: RawRequestMessage) -> RawRequestMessage:
    kept = ((name, value) for name, value in message.headers.items() if name.lower() not in _OURS)
    raw = (pair for pair in message.raw_headers if pair[0].lower().decode("latin-1") not in _OURS)
    return message._replace(headers=CIMultiDictProxy(CIMultiDict(kept)), raw_headers=tuple(raw))
