"""What the listeners are to be: addresses, certificates, and the bounds on what strangers may use.

Values only; the configuration has checked them, and reading the certificates is `listener`'s work.
"""

import ipaddress
from dataclasses import dataclass, replace
from pathlib import Path

from autoscaler.model.identifiers import Seconds

_MAX_PORT = 65_535
_FEWEST = 8

RESERVED_DESCRIPTORS = 256
"""File descriptors that connections never take."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen. Port 0 asks the system for a free one; IPv6 hosts stand without brackets."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> "Address":
        """Read `host:port` or `[ipv6]:port`. Raises ValueError."""
        host, colon, port = text.rpartition(":")
        if not colon or not (port.isascii() and port.isdigit()) or int(port) > _MAX_PORT:
            raise ValueError(f"{text!r} is not host:port with a port from 0 to {_MAX_PORT}")
        if host.startswith("[") and host.endswith("]"):
            return cls(str(ipaddress.IPv6Address(host[1:-1])), int(port))
        if not host or ":" in host:
            raise ValueError(f"{text!r} is not host:port; an IPv6 host stands in brackets")
        return cls(host, int(port))

    def __str__(self) -> str:
        """As `parse` reads it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files: the certificate with its chain, and its private key."""

    certificate: Path
    key: Path


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Both listeners. Without `webhook_listen`, /webhook stands on `listen`; without `tls`, plain HTTP.

    A machine holds one connection while it parks, so `max_connections` bounds the ready fleet.
    `head` is how long a TLS handshake may take, and a request's head from its first byte on (from
    the connection's opening, for its first request); `keepalive` is how long a connection may idle
    between two requests. `shutdown` is how long requests under way may take once the server stops.
    """

    listen: Address
    webhook_listen: Address | None = None
    tls: TlsFiles | None = None
    webhook_tls: TlsFiles | None = None
    max_connections: int = 10_000
    webhook_max_connections: int = 1_024
    head: Seconds = 10.0
    keepalive: Seconds = 75.0
    shutdown: Seconds = 5.0

    def within(self, descriptors: int) -> "ServerSettings":
        """Return the settings with no more connections than a process with so many descriptors has
        for both listeners.

        `RESERVED_DESCRIPTORS` are left to the store, GitHub, the providers and the log. A quarter
        of the others, at most, is the webhook's where it has a listener of its own.
        """
        room = max(_FEWEST, descriptors - RESERVED_DESCRIPTORS)
        hooks = 0
        if self.webhook_listen is not None:
            hooks = min(self.webhook_max_connections, room // 4)
        return replace(
            self,
            max_connections=min(self.max_connections, room - hooks),
            webhook_max_connections=hooks or self.webhook_max_connections,
        )
