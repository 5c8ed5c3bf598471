"""The client for a running controller's /admin endpoints.

It sends the token only to the URL of its endpoint: it follows no redirect, and uses no proxy for plain HTTP.
"""

import json
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from http import HTTPStatus
from http.client import HTTPException, HTTPMessage
from typing import IO, Any
from urllib.parse import quote, urlencode

from autoscaler.model.identifiers import Seconds
from autoscaler.operator_commands.endpoint import Endpoint
from autoscaler.operator_commands.waiting import interruptible, waiting_for

PATIENCE: Seconds = 60.0
"""The controller lists the runners of every scope at GitHub before it terminates a machine."""

UNTIL_LED: Seconds = 60.0
"""For how long a request is sent again while no replica leads: a takeover takes some 20 seconds."""

MAX_ANSWER_BYTES = 32 * 2**20


class OperatorRequestFailedError(Exception):
    """The controller refused, or did not answer; the text says what to do."""


class ConfigurationRefusedError(Exception):
    """The controller refused a fleet.yaml. `problems` are lines as `check` prints them."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class OperatorClient:
    """Sends an operator's requests to one controller."""

    def __init__(
        self,
        endpoint: Endpoint,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[Seconds], None] = time.sleep,
    ) -> None:
        self._now = now
        self._sleep = sleep
        self._url = endpoint.url
        token = endpoint.token.token.get_secret_value()
        self._authorization = f"Bearer {token.decode('ascii')}"
        self._opener = urllib.request.build_opener(
            _NoRedirect(), _proxies(), urllib.request.HTTPSHandler(context=endpoint.trust)
        )

    def unverified(self) -> dict[str, Any]:
        """Return `unverified` machines, their `total` number, and the `providers_not_listed` yet.

        Raises OperatorRequestFailedError.
        """
        reply = self._send("GET", "/admin/unverified")
        found, total, not_listed = (
            reply.get(key) for key in ("unverified", "total", "providers_not_listed")
        )
        if not (
            isinstance(found, list) and isinstance(total, int) and isinstance(not_listed, list)
        ):
            raise OperatorRequestFailedError(f"{self._url} is not a controller of this version")
        return reply

    def act(self, path: str, **body: object) -> dict[str, Any]:
        """Send a request that changes something; return the answer.

        Raises OperatorRequestFailedError, and ConfigurationRefusedError for a refused fleet.yaml.
        """
        return self._send("POST", path, json.dumps(body).encode())

    def plan_against(self, content: bytes) -> dict[str, Any]:
        """Return what a changed fleet.yaml would do.

        Raises OperatorRequestFailedError, ConfigurationRefusedError.
        """
        return self._send("POST", "/admin/plan", content)

    def ask(self, path: str, **query: object) -> dict[str, Any]:
        """Return the answer to a question; it omits parameters that are None.

        Raises OperatorRequestFailedError.
        """
        given = {key: str(value) for key, value in query.items() if value is not None}
        return self._send("GET", f"{path}?{urlencode(given)}" if given else path)

    @staticmethod
    def quoted(name: str) -> str:
        """Return a name as one part of a path."""
        return quote(name, safe="")

    def _send(self, method: str, path: str, data: bytes | None = None) -> dict[str, Any]:
        request = urllib.request.Request(  # noqa: S310 - the URL is http or https
            self._url + path,
            data,
            {"Authorization": self._authorization, "Content-Type": "application/json"},
            method=method,
        )
        try:
            return self._leaders_answer(request)
        except urllib.error.HTTPError as error:
            with error:
                raise OperatorRequestFailedError(self._refusal(error)) from None
        except (OSError, HTTPException, ValueError) as error:
            reason = getattr(error, "reason", error)
            raise OperatorRequestFailedError(
                f"{self._url} does not answer: {reason}; {_advice(reason)}"
            ) from None

    def _leaders_answer(self, request: urllib.request.Request) -> dict[str, Any]:
        """Return the answer. Sends the request again while the controller answers that no replica leads.

        That may repeat a request whose answer was lost: the controller then answers what it did already.
        Raises: OSError, HTTPException, ValueError.
        """
        until = self._now() + UNTIL_LED
        said = False
        with ExitStack() as lines:
            lines.enter_context(waiting_for(f"{self._url}, at most {PATIENCE:.0f} s"))
            while True:
                try:
                    return interruptible(partial(self._answer, request))
                except urllib.error.HTTPError as error:
                    pause = _pause(error)
                    if pause is None or self._now() + pause > until:
                        raise
                    error.close()
                if not said:
                    lines.close()
                    what = f"a replica of {self._url} to lead, at most {UNTIL_LED:.0f} s"
                    lines.enter_context(waiting_for(what))
                    said = True
                self._sleep(pause)

    def _answer(self, request: urllib.request.Request) -> dict[str, Any]:
        """Return the JSON object that answers a request. Raises: OSError, HTTPException, ValueError."""
        with self._opener.open(request, timeout=PATIENCE) as answer:
            return _object(answer.read(MAX_ANSWER_BYTES))

    def _refusal(self, error: urllib.error.HTTPError) -> str:
        try:
            reply = _object(error.read(MAX_ANSWER_BYTES))
        except (OSError, HTTPException, ValueError):
            reply = {}
        if isinstance(problems := reply.get("problems"), list):
            raise ConfigurationRefusedError([str(one) for one in problems])
        if isinstance(reply.get("reason"), str):
            return str(reply["reason"])
        if error.code == 400:
            return "the controller could not read the request: is a name or a label in it too long?"
        if error.code == 401:
            return (
                "the controller refuses the token: it is not in the file that the controller's "
                "server.admin_token_file names"
            )
        if error.code == 429:
            return (
                "the controller refuses the token, and too many wrong tokens came from this address; "
                f"try again in {error.headers.get('Retry-After', '60')} s"
            )
        if error.code == 404:
            return (
                "the controller has no /admin endpoints: it was started without "
                "server.admin_token_file"
            )
        return f"{self._url} answered {error.code} {reply.get('error', '')}".rstrip()


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows no redirect, so that only the controller gets the token."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: HTTPMessage,
        newurl: str,
    ) -> None:
        """Return None, so that the redirect itself is the answer."""


def _pause(error: urllib.error.HTTPError) -> Seconds | None:
    """Return after how many seconds the same request can succeed, or None if the answer does not say so."""
    after = error.headers.get("Retry-After", "")
    if error.code != HTTPStatus.SERVICE_UNAVAILABLE or not (after.isascii() and after.isdigit()):
        return None
    return max(1.0, float(after))


def _advice(reason: object) -> str:
    if isinstance(reason, ssl.SSLCertVerificationError):
        return "name the CA of its certificate in server.tls.ca_file of fleet.yaml, or in SSL_CERT_FILE"
    return "is the controller running there? --url sets another URL"


def _object(body: bytes) -> dict[str, Any]:
    """Return the JSON object of an answer.

    Raises: ValueError.
    """
    reply = json.loads(body)
    if not isinstance(reply, dict):
        raise ValueError("the answer is not a JSON object")  # noqa: TRY004
    return reply


def _proxies() -> urllib.request.ProxyHandler:
    """Return the environment's proxies for https only: an http proxy would see the token."""
    return urllib.request.ProxyHandler(
        {scheme: url for scheme, url in urllib.request.getproxies().items() if scheme == "https"}
    )
