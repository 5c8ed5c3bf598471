"""The health check of DNS: whether this machine finds the addresses of the hosts that its runner needs."""

from __future__ import annotations

import socket
import urllib.parse

from autoscaler.agent.actions import BadSettings
from autoscaler.agent.boot.http_client import proxy_for
from autoscaler.agent.limits import MOST_SETTINGS
from autoscaler.agent.verdicts import Check, verdict

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

RESOLV_CONF = "/etc/resolv.conf"
"""The name servers that the resolver asks (resolv.conf(5))."""

RESOLVED_CONF = "/run/systemd/resolve/resolv.conf"
"""The name servers behind systemd-resolved (systemd-resolved.service(8))."""

RESOLVED = "127.0.0.53"
"""The address at which systemd-resolved answers."""


def check_dns(urls: Iterable[str], root: str) -> Check:
    """Return the check of the names in these URLs. A machine behind a proxy needs only the proxy's name.

    `root`: where the files of the resolver are. The resolver's own limits of time apply (resolv.conf(5)).
    """
    found: list[str] = []
    problems: list[str] = []
    # A dictionary, because all URLs may need the same proxy.
    for name in dict.fromkeys(name for url in urls if (name := name_to_resolve(url))):
        try:
            socket.getaddrinfo(name, None)
        # UnicodeError: a label of the name is longer than 63 characters.
        except (OSError, UnicodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "not a valid name"
            problems.append(f"{name} does not resolve: {why}")
        else:
            found.append(name)
    if problems:
        problems.append(f"asked {name_servers(root)}")
    return verdict("dns", problems, ", ".join(found) or "no name is needed")


def name_to_resolve(url: str) -> str:
    """Return the host to which a request to this URL connects, or an empty text if none is possible."""
    try:
        parts = urllib.parse.urlsplit(url)
        host, port = parts.hostname or "", parts.port or 443
        proxy = proxy_for(host, port) if parts.scheme == "https" else None
    except (ValueError, BadSettings):
        return ""
    if parts.scheme not in ("http", "https"):
        return ""
    return proxy[0] if proxy else host


def name_servers(root: str) -> str:
    """Return the name servers that this machine asks, for people. Windows keeps them in no file."""
    servers = _nameservers(root + RESOLV_CONF)
    if RESOLVED in servers:
        servers += [f"behind it {one}" for one in _nameservers(root + RESOLVED_CONF)]
    if not servers:
        return "an unknown name server"
    return ("name server " if len(servers) == 1 else "name servers ") + ", ".join(servers)


def _nameservers(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            lines = [line.split() for line in file.read(MOST_SETTINGS).splitlines()]
    except OSError:
        return []
    return [words[1] for words in lines if len(words) > 1 and words[0] == "nameserver"]
