"""HTTP connections: to the controller, to the metadata service, to GitHub for a health check."""

from __future__ import annotations

import binascii
import collections
import http.client
import os
import urllib.parse

from autoscaler.agent.actions import BadSettings, TryAgain
from autoscaler.agent.limits import MOST_BODY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

Answer = collections.namedtuple("Answer", ("status", "body", "retry_after", "date"))


def proxy_for(host: str, port: int) -> tuple[str, int, dict[str, str]] | None:
    """Return host, port and credential headers of the proxy for an https origin, or None.

    Reads HTTPS_PROXY and NO_PROXY as curl(1) and actions/runner do: a name in NO_PROXY matches itself
    and its subdomains; `*` matches everything. Raises BadSettings.
    """
    url = os.environ.get("HTTPS_PROXY") or os.environ.get("https_proxy")
    if not url:
        return None
    for name in (os.environ.get("NO_PROXY") or os.environ.get("no_proxy") or "").split(","):
        name, of_port = _name_and_port(name.strip().lower())
        matches = name == "*" or host == name or host.endswith("." + name)
        if name and matches and of_port in ("", str(port)):
            return None
    parts = urllib.parse.urlsplit(url if "://" in url else "http://" + url)
    try:
        place = (parts.hostname or "", parts.port or 80)
    except ValueError:
        place = ("", 0)
    if parts.scheme != "http" or not place[0]:
        raise BadSettings("HTTPS_PROXY must be an http URL")
    headers = {}
    if parts.username is not None:
        words = (urllib.parse.unquote(one or "") for one in (parts.username, parts.password))
        encoded = binascii.b2a_base64(":".join(words).encode(), newline=False)
        headers["Proxy-Authorization"] = "Basic " + encoded.decode()
    return (*place, headers)


def _name_and_port(text: str) -> tuple[str, str]:
    """Return the name and the port (or "") of one entry of NO_PROXY; an IPv6 address may be in brackets."""
    if text.count(":") > 1:
        name, _, of_port = text.lstrip("[").partition("]")
        return name, of_port.lstrip(":")
    name, _, of_port = text.lstrip(".").partition(":")
    return name, of_port


class Link:
    """A persistent connection to one HTTP origin. `ca` is PEM text, the only CA that is then trusted.

    https uses the proxy of the environment, plain http (the metadata service) never.
    """

    def __init__(self, url: str, ca: str | None = None) -> None:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise BadSettings("not an http or https URL")
        self._secure = parts.scheme == "https"
        self._address = (parts.hostname, parts.port)
        self._prefix = parts.path.rstrip("/")
        self._ca = ca
        self._context: Any = None
        self._connection: http.client.HTTPConnection | None = None

    def ask(
        self,
        method: str,
        path: str,
        headers: dict[str, str],
        body: bytes | None = None,
        timeout: float = 10.0,
    ) -> Answer:
        """Send one request. `timeout` is in real seconds. Raises TryAgain if there is no answer."""
        reused = self._connection is not None
        try:
            try:
                return self._ask(method, path, headers, body, timeout)
            except (http.client.RemoteDisconnected, ConnectionError):
                # The server may have closed a persistent connection meanwhile: try a new one.
                self.close()
                if not reused:
                    raise
                return self._ask(method, path, headers, body, timeout)
        except (OSError, http.client.HTTPException, ValueError, BadSettings) as error:
            self.close()
            if isinstance(error, BadSettings):
                raise TryAgain(str(error)) from error
            raise TryAgain(f"{self._address[0]}: {type(error).__name__}") from error

    def close(self) -> None:
        """Close the connection. Idempotent."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _ask(
        self, method: str, path: str, headers: dict[str, str], body: bytes | None, timeout: float
    ) -> Answer:
        connection = self._connection or self._open(timeout)
        self._connection = connection
        connection.timeout = timeout
        if connection.sock is not None:
            connection.sock.settimeout(timeout)
        connection.request(method, self._prefix + path, body, headers)
        response = connection.getresponse()
        text = response.read(MOST_BODY + 1)
        if len(text) > MOST_BODY or response.will_close:
            self.close()
        if len(text) > MOST_BODY:
            raise ValueError("answer too long")
        return Answer(
            response.status,
            text,
            _seconds(response.headers.get("Retry-After")),
            response.headers.get("Date"),
        )

    def _open(self, timeout: float) -> http.client.HTTPConnection:
        host, port = self._address
        if not self._secure:
            return http.client.HTTPConnection(host, port, timeout=timeout)
        if self._context is None:
            import ssl  # not needed on loopback

            self._context = ssl.create_default_context(cadata=self._ca)
        proxy = proxy_for(host, port or 443)
        if proxy is None:
            return http.client.HTTPSConnection(host, port, timeout=timeout, context=self._context)
        through, at, headers = proxy
        made = http.client.HTTPSConnection(through, at, timeout=timeout, context=self._context)
        made.set_tunnel(host, port or 443, headers)
        return made


def _seconds(text: str | None) -> float | None:
    """Parse a Retry-After in seconds, at most five minutes; None if there is no valid one."""
    try:
        return min(300.0, max(0.0, float(text))) if text is not None else None
    except ValueError:
        return None
