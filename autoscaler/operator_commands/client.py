"""The client for a running controller's /admin endpoints.

It reads the controller's URL and token from fleet.yaml. It sends the token only to that URL: it
follows no redirect, and uses no proxy for plain HTTP.
"""

import json
import ssl
import urllib.error
import urllib.request
from http.client import HTTPException, HTTPMessage
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote, urlencode

from pydantic_core import PydanticCustomError

from autoscaler import config
from autoscaler.config.settings.scalars import parse_secure_url, parse_url
from autoscaler.model.identifiers import Seconds
from autoscaler.providers.registry import provider_kinds

PATIENCE: Seconds = 60.0
"""The controller lists the runners of every scope at GitHub before it terminates a machine."""

MAX_ANSWER_BYTES = 32 * 2**20


class OperatorRequestFailedError(Exception):
    """The controller refused, or did not answer; the text says what to do."""


class ConfigurationRefusedError(Exception):
    """The controller refused a fleet.yaml. `problems` are lines as `check` prints them."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class UnusableUrlError(Exception):
    """A URL to which the token is not sent; the text gives the reason and a fix."""


class OperatorClient:
    """Sends an operator's requests to the controller of one fleet.yaml."""

    def __init__(self, path: Path, url: str | None = None, token_file: Path | None = None) -> None:
        """`url` is the controller's URL, if it is not `server.public_url`.

        `token_file` has the token to send, if it is not of `server.admin_token_file`.
        Raises ConfigurationError, also if fleet.yaml has no token, and UnusableUrlError.
        """
        configuration = config.load(path, provider_kinds(), files=False)
        server = configuration.settings.server
        self._url = (
            server.public_url if url is None else _checked_url(url, insecure=server.insecure)
        )
        token = _token(configuration, token_file).token.get_secret_value()
        self._authorization = f"Bearer {token.decode('ascii')}"
        self._opener = urllib.request.build_opener(
            _NoRedirect(), _proxies(), urllib.request.HTTPSHandler(context=_trust(configuration))
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
            with self._opener.open(request, timeout=PATIENCE) as answer:
                return _object(answer.read(MAX_ANSWER_BYTES))
        except urllib.error.HTTPError as error:
            with error:
                raise OperatorRequestFailedError(self._refusal(error)) from None
        except (OSError, HTTPException, ValueError) as error:
            reason = getattr(error, "reason", error)
            raise OperatorRequestFailedError(
                f"{self._url} does not answer: {reason}; is the controller running there? --url "
                "sets another URL"
            ) from None

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


def _token(configuration: config.Configuration, file: Path | None) -> config.OperatorToken:
    """Return the token to send: the last one that may operate, else the last one.

    Raises ConfigurationError.
    """
    named = config.read_operator_tokens(file) if file is not None else None
    tokens = named or config.read_admin_tokens(configuration)
    if not tokens:
        raise _problem(
            configuration,
            ("server", "admin_token_file"),
            "is not set, so the controller has no /admin endpoints",
            "name a file with a token, and restart the controller: see docs/operations.md",
        )
    return next((one for one in reversed(tokens) if one.operator.may_operate), tokens[-1])


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


def _object(body: bytes) -> dict[str, Any]:
    """Return the JSON object of an answer.

    Raises: ValueError.
    """
    reply = json.loads(body)
    if not isinstance(reply, dict):
        raise ValueError("the answer is not a JSON object")  # noqa: TRY004
    return reply


def _checked_url(url: str, *, insecure: bool) -> str:
    """Return the URL if it is encrypted or fleet.yaml allows plain HTTP. Raises UnusableUrlError."""
    try:
        return parse_url(url) if insecure else parse_secure_url(url)
    except PydanticCustomError as error:
        reply = error.context or {}
        raise UnusableUrlError(f"{error.message()}; fix: {reply.get('fix')}") from None


def _proxies() -> urllib.request.ProxyHandler:
    """Return the environment's proxies for https only: an http proxy would see the token."""
    return urllib.request.ProxyHandler(
        {scheme: url for scheme, url in urllib.request.getproxies().items() if scheme == "https"}
    )


def _trust(configuration: config.Configuration) -> ssl.SSLContext:
    """Trust the system's CAs, or `server.tls.ca_file` if it is set. Raises ConfigurationError."""
    tls = configuration.settings.server.tls
    if tls is None or tls.ca_file is None:
        return ssl.create_default_context()
    try:
        return ssl.create_default_context(cafile=configuration.file(tls.ca_file))
    except OSError as error:
        what = f"cannot be used: {error.strerror or error}"
        fix = "name a PEM file with the CA certificate"
        raise _problem(configuration, ("server", "tls", "ca_file"), what, fix) from None


def _problem(
    configuration: config.Configuration, path: tuple[str, ...], what: str, fix: str
) -> config.ConfigurationError:
    problem = configuration.document.problem(path, what, fix)
    return config.ConfigurationError([problem])
