"""The wire: sends one request once, with bounds on time and size, and counts it.

It decides whether a request left and whether an answer can be read. It never repeats one (but
aiohttp itself sends a GET or DELETE anew, once, when a kept connection turns out to be closed)
and never judges a status. URL templates, headers, links and JSON of good answers are gidgethub's;
what gidgethub chokes on (HTML, unknown statuses, odd charsets) is caught here.
"""

import json
from typing import Any
from urllib.parse import urljoin, urlsplit

import aiohttp
import gidgethub
from gidgethub import sansio

from autoscaler.controller.ports.clock import Clock
from autoscaler.controller.ports.telemetry import Telemetry
from autoscaler.github.exchange import BROKEN, Answer, Effect, NoAnswerError, NotSentError, Request
from autoscaler.github.proxy import proxy_for
from autoscaler.github.settings import GitHubSettings

MAX_ANSWER = 8 * 1024 * 1024
"""Bytes. A page of 100 deliveries or runners is well under 1 MB."""

_API_VERSION = "2022-11-28"
_CONNECT_TIMEOUT = 10.0
_CHUNK = 64 * 1024
_JSON = "application/json; charset=utf-8"


class Transport:
    """Sends requests to one GitHub. `close` must be awaited in the end."""

    def __init__(self, settings: GitHubSettings, clock: Clock, telemetry: Telemetry) -> None:
        self._settings = settings
        self._clock = clock
        self._telemetry = telemetry
        self._proxy = proxy_for(settings.api_url)
        self._session: aiohttp.ClientSession | None = None
        self._closed = False

    def url_of(self, request: Request) -> str:
        """Where the request goes. Raises NotSentError for another origin than the API's."""
        url = request.url or sansio.format_url(
            request.route, request.variables, base_url=self._settings.api_url
        )
        if _origin(url) != _origin(self._settings.api_url):
            # The token would go to whoever stands there.
            detail = "an answer pointed away from api_url's origin"
            raise NotSentError("foreign_url", detail, lasting=True)
        return url

    def redirected(self, request: Request, answer: Answer) -> Request:
        """The same request where a 3xx answer says that it belongs. Raises NotSentError."""
        location = answer.headers.get("location", "")
        try:
            return request.at(urljoin(self.url_of(request), location))
        except ValueError:
            raise NotSentError("foreign_url", "a Location that is no URL", lasting=True) from None

    async def send(self, request: Request, token: str) -> Answer:
        """Send it once, as the holder of `token`. Raises NotSentError, NoAnswerError."""
        url = self.url_of(request)
        started = self._clock.now()
        outcome = "cancelled"
        try:
            answer = await self._exchange(request, url, token)
            outcome = str(answer.status)
        except (NotSentError, NoAnswerError) as error:
            outcome = error.outcome
            raise
        finally:
            spent = self._clock.now() - started
            self._telemetry.github_call(request.endpoint, outcome, spent)
        return answer

    async def close(self) -> None:
        """Release connections. Idempotent."""
        self._closed = True
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _exchange(self, request: Request, url: str, token: str) -> Answer:
        # `from None` throughout: aiohttp's exceptions carry the request's headers, token included.
        try:
            return await self._round_trip(request, url, token)
        except aiohttp.ClientConnectorCertificateError:
            raise NotSentError("certificate", "not trusted", lasting=True) from None
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise NotSentError("not_connected", type(error).__name__) from None
        except aiohttp.ClientHttpProxyError as error:
            # The proxy refused to connect to GitHub; its words may be a whole page.
            raise NotSentError("not_connected", f"the proxy answered {error.status}") from None
        except TimeoutError:
            raise NoAnswerError("timeout", f"none in {self._settings.timeout:g} s") from None
        except aiohttp.ClientError as error:
            raise NoAnswerError("disconnected", type(error).__name__) from None

    async def _round_trip(self, request: Request, url: str, token: str) -> Answer:
        headers = sansio.create_headers(self._settings.requester)
        headers["authorization"] = f"Bearer {token}"
        headers["x-github-api-version"] = _API_VERSION
        if request.etag is not None:
            headers["if-none-match"] = request.etag
        body = None
        if request.body is not None:
            body = json.dumps(request.body).encode()
            headers["content-type"] = _JSON
        async with self._open_session().request(
            # Redirects are not followed here: aiohttp would turn a POST into a GET.
            request.method,
            url,
            headers=headers,
            data=body,
            allow_redirects=False,
            proxy=self._proxy,
        ) as response:
            return _answer(request, response, await _read(response))

    def _open_session(self) -> aiohttp.ClientSession:
        if self._closed:
            raise NotSentError("closed", "this client is closed")
        if self._session is None:
            # No limit there: the gate has one, and waiting must not count as time spent connecting.
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0),
                timeout=aiohttp.ClientTimeout(
                    total=self._settings.timeout,
                    connect=min(_CONNECT_TIMEOUT, self._settings.timeout * 0.75),
                ),
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._session


def _origin(url: str) -> tuple[str, str, int | None]:
    try:
        parts = urlsplit(url)
        port = parts.port or {"https": 443, "http": 80}.get(parts.scheme)
    except ValueError:
        return "", "", None
    return parts.scheme, parts.hostname or "", port


async def _read(response: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for chunk in response.content.iter_chunked(_CHUNK):
        body += chunk
        if len(body) > MAX_ANSWER:
            raise NoAnswerError(BROKEN, f"an answer over {MAX_ANSWER} bytes")
    return bytes(body)


def _answer(request: Request, response: aiohttp.ClientResponse, body: bytes) -> Answer:
    """The answer, decoded. Raises NoAnswerError where a question's good answer cannot be read."""
    status, headers = response.status, response.headers
    if not 200 <= status < 300 or request.effect is Effect.WRITE:
        return Answer(status, headers, _lenient_json(body))
    try:
        data, _, next_url = sansio.decipher_response(status, headers, body)
    except (ValueError, LookupError, RecursionError, gidgethub.GitHubException):
        raise NoAnswerError(BROKEN, f"status {status} with an unreadable body") from None
    if isinstance(data, str):
        raise NoAnswerError(BROKEN, f"status {status} with a body that is not JSON")
    return Answer(status, headers, data, next_url)


def _lenient_json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None
