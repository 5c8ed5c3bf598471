"""Chooses ports for servers that start later."""

import random
import socket

_PORTS = range(20_000, 32_000)
"""Below Linux's ephemeral ports, so that no outgoing connection takes a port before its server listens."""


def free_ports(count: int) -> list[int]:
    """Return different ports of loopback on which nothing listens now."""
    found: list[int] = []
    while len(found) < count:
        port = random.choice(_PORTS)  # noqa: S311
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        if port not in found:
            found.append(port)
    return found
