"""Settings of the listeners: addresses, certificates, and limits for unauthenticated peers.

The configuration has checked the values. `listener` reads the certificates.
"""

import ipaddress
from dataclasses import dataclass, replace
from pathlib import Path

from autoscaler.model.identifiers import Seconds

_MAX_PORT = 65_535
_MIN_CONNECTIONS = 8

RESERVED_DESCRIPTORS = 256
"""File descriptors that are not used for connections."""


@dataclass(frozen=True, slots=True)
class Address:
    """An address to listen on. Port 0 means any free port. IPv6 hosts have no brackets."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> "Address":
        """Parse `host:port` or `[ipv6]:port`.

        Raises: ValueError.
        """
        host, colon, port = text.rpartition(":")
        if not colon or not (port.isascii() and port.isdigit()) or int(port) > _MAX_PORT:
            raise ValueError(f"{text!r} is not host:port with a port from 0 to {_MAX_PORT}")
        if host.startswith("[") and host.endswith("]"):
            return cls(str(ipaddress.IPv6Address(host[1:-1])), int(port))
        if not host or ":" in host:
            raise ValueError(f"{text!r} is not host:port: write brackets around an IPv6 host")
        return cls(host, int(port))

    def __str__(self) -> str:
        """Return the text that `parse` reads."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files: the certificate with its chain, and its private key."""

    certificate: Path
    key: Path


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Settings of both listeners. Without `webhook_listen`, `listen` serves /webhook, too.

    Without `tls`, the server speaks plain HTTP. Each ready machine has one connection, so
    `max_connections` limits their number. `head` is the maximum time of a TLS handshake, and of a
    request's head from its first byte (for the first request: from the connection's start).
    `keepalive` is the maximum time between two requests. `shutdown` is the time that unfinished
    requests have when the server stops.
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
        """Return the settings with no more connections than this number of descriptors allows.

        `RESERVED_DESCRIPTORS` are kept for the store, GitHub, the providers and the log. If the webhook
        has its own listener, that listener gets at most a quarter of the others.
        """
        room = max(_MIN_CONNECTIONS, descriptors - RESERVED_DESCRIPTORS)
        hooks = 0
        if self.webhook_listen is not None:
            hooks = min(self.webhook_max_connections, room // 4)
        return replace(
            self,
            max_connections=min(self.max_connections, room - hooks),
            webhook_max_connections=hooks or self.webhook_max_connections,
        )
