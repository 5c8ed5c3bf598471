"""Which headers an intermediary passes on, and which concern one connection only (RFC 9110, section 7.6.1)."""

from typing import Final

from multidict import CIMultiDict, MultiMapping

_HOP_BY_HOP = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authentication-info",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)

_MADE_AGAIN: Final = frozenset({"content-length", "expect"})
"""Of a request: its body has arrived, so its length is known, and the leader has no reason to wait for it."""

_FOR_ALL = frozenset({"host", "content-length"})
"""Fields that Connection must not name, because they are not of one connection."""


def request_headers(headers: MultiMapping[str]) -> CIMultiDict[str]:
    """Return the headers to pass on with a request, in lower case.

    aiohttp's client takes equal names in different case for one name, and would drop the first of them.
    """
    return _passed(headers, _HOP_BY_HOP | _MADE_AGAIN)


def answer_headers(headers: MultiMapping[str]) -> CIMultiDict[str]:
    """Return the headers to pass on with an answer."""
    return _passed(headers, _HOP_BY_HOP)


def closes(headers: MultiMapping[str]) -> bool:
    """Return whether the sender closes the connection after this message (RFC 9112, section 9.6)."""
    return "close" in _connection_options(headers)


def _passed(headers: MultiMapping[str], dropped: frozenset[str]) -> CIMultiDict[str]:
    dropped = dropped | (_connection_options(headers) - _FOR_ALL)
    return CIMultiDict(
        (name.lower(), value) for name, value in headers.items() if name.lower() not in dropped
    )


def _connection_options(headers: MultiMapping[str]) -> frozenset[str]:
    given = ",".join(headers.getall("Connection", [])).lower()
    return frozenset(option.strip() for option in given.split(","))
