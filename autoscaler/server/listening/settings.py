"""Settings of the listeners: addresses, certificates, and limits for unauthenticated peers.

The configuration has checked the values. `listener` reads the certificates.
"""

from dataclasses import dataclass, replace
from pathlib import Path

from autoscaler.model.identifiers import Address, Seconds

_MIN_CONNECTIONS = 8

RESERVED_DESCRIPTORS = 256
"""File descriptors that are not used for connections."""


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

    def within(self, descriptors: int, *, forwards: bool = False) -> "ServerSettings":
        """Return the settings with no more connections than this number of descriptors allows.

        `RESERVED_DESCRIPTORS` are kept for the store, GitHub, the providers and the log. If the webhook
        has its own listener, that listener gets at most a quarter of the others. With `forwards`, each
        connection may need a second one, to the replica that leads.
        """
        each = 2 if forwards else 1
        room = max(_MIN_CONNECTIONS, (descriptors - RESERVED_DESCRIPTORS) // each)
        hooks = 0
        if self.webhook_listen is not None:
            hooks = min(self.webhook_max_connections, room // 4)
        return replace(
            self,
            max_connections=min(self.max_connections, room - hooks),
            webhook_max_connections=hooks or self.webhook_max_connections,
        )
