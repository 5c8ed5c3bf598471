"""Finds out whether a call's request may have reached AWS, or was certainly not sent. Refuses to send one late.

Runs in the worker process.
Sources: botocore's `endpoint.py` emits `before-send` right before the HTTP request, after the
credentials were resolved and the request was signed; its `httpsession.py` turns urllib3's
`NewConnectionError` into EndpointConnectionError. urllib3's `connection.py` forgets on `close` that
it had reached a proxy, so a connection lost after the request shows as a ProxyError, too.
"""

import math
import ssl
import threading
import time
from typing import Any

from botocore.exceptions import (
    ConnectTimeoutError,
    EndpointConnectionError,
    ProxyConnectionError,
    SSLError,
)
from urllib3.exceptions import ConnectTimeoutError as NoConnectionInTimeError
from urllib3.exceptions import NewConnectionError, ProxyError

from autoscaler.controller.ports.replicas import LEADER_CLOCK

_TUNNEL_REFUSED = "Tunnel connection failed"
"""The beginning of http.client's error text if a proxy refuses CONNECT."""


class NotLeading(Exception):  # noqa: N818 - its name is the code of the answer
    """The call came too late: the controller may no longer lead the fleet. Nothing was sent."""


class SentRequests:
    """Remembers for each thread whether the request of its call was sent, and until when it may be."""

    def __init__(self) -> None:
        self._of_this_thread = threading.local()

    def watch(self, client: Any) -> Any:
        """Observe the requests of this client; return the client."""
        client.meta.events.register("before-send", self._note_sent)
        return client

    def begin(self, until: float = math.inf) -> None:
        """Start a call in this thread: its request has not been sent.

        It may be sent before the moment `until` of LEADER_CLOCK. This process or the controller may be stopped
        for any time after the controller has sent the call.
        """
        self._of_this_thread.sent = False
        self._of_this_thread.until = until

    def may_have_arrived(self, error: Exception) -> bool:
        """Return whether AWS may have carried out the thread's call, which failed with `error`.

        False if there were no credentials or no connection.
        """
        return self._of_this_thread.sent and not _was_never_connected(error)

    def _note_sent(self, **_: object) -> None:
        if time.clock_gettime(LEADER_CLOCK) >= self._of_this_thread.until:
            raise NotLeading("not sent, because the controller may no longer lead the fleet")
        self._of_this_thread.sent = True


def _was_never_connected(error: Exception) -> bool:
    if isinstance(error, EndpointConnectionError | ConnectTimeoutError):
        return True
    cause = getattr(error, "kwargs", {}).get("error")
    if isinstance(error, SSLError):
        # Other TLS errors can also come while the answer is read.
        return any(isinstance(one, ssl.SSLCertVerificationError) for one in _chain(cause))
    if isinstance(error, ProxyConnectionError) and isinstance(cause, ProxyError):
        original = cause.original_error
        return isinstance(original, NewConnectionError | NoConnectionInTimeError) or str(
            original
        ).startswith(_TUNNEL_REFUSED)
    return False


def _chain(error: Any) -> list[Any]:
    """Return the error, its arguments and its cause."""
    return [error, *getattr(error, "args", ()), getattr(error, "__cause__", None)]
