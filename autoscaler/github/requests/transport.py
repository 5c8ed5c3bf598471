"""Sends a request to GitHub over HTTP once, with limits of time and size, and counts it.

Raises NotSentError if the request was not sent, and NoAnswerError if no readable answer arrived.
Sends a request that changes something only while this process leads, and waits no longer for its answer.
Does not retry, except that aiohttp repeats a GET or DELETE once if a reused connection was closed.
gidgethub expands URL templates, and parses links and the JSON of successful answers. Errors that
gidgethub raises (HTML, unknown statuses, other charsets) become NoAnswerError.
"""

import email.utils
import json
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from urllib.parse import urljoin, urlsplit
from urllib.request import getproxies_environment, proxy_bypass

import aiohttp
import gidgethub
from gidgethub import sansio

from autoscaler.controller.ports.clock import Clock
from autoscaler.controller.ports.replicas import Leads, leads_forever
from autoscaler.controller.ports.telemetry import Telemetry
from autoscaler.github.requests.exchange import (
    BROKEN,
    Answer,
    Effect,
    NoAnswerError,
    NotSentError,
    Request,
)
from autoscaler.github.settings import GitHubSettings
from autoscaler.model.identifiers import Instant, Seconds

MAX_ANSWER = 8 * 1024 * 1024
"""Bytes of an answer. A page of 100 deliveries or runners has less than 1 MB."""

_API_VERSION = "2022-11-28"
_CONNECT_TIMEOUT = 10.0
_CHUNK = 64 * 1024
_JSON = "application/json; charset=utf-8"


class Transport:
    """Sends requests to one GitHub instance. The owner must await `close`."""

    def __init__(
        self,
        settings: GitHubSettings,
        clock: Clock,
        telemetry: Telemetry,
        wall: Callable[[], Instant] | None = None,
        leads: Leads = leads_forever,
    ) -> None:
        """`wall` is the clock that is compared with GitHub's, in Unix seconds, if it is not `clock`."""
        self._wall = wall or clock.now
        self._leads = leads
        self._settings = settings
        self._clock = clock
        self._telemetry = telemetry
        self._proxy = proxy_for(settings.api_url)
        self._session: aiohttp.ClientSession | None = None
        self._closed = False

    def url_of(self, request: Request) -> str:
        """Return the request's URL. Raises NotSentError if its origin is not that of `api_url`."""
        url = request.url or sansio.format_url(
            request.route, request.variables, base_url=self._settings.api_url
        )
        if _origin(url) != _origin(self._settings.api_url):
            # Another server would get the token.
            detail = "an answer of GitHub links to another origin than api_url's; correct api_url"
            raise NotSentError("foreign_url", detail, lasting=True)
        return url

    def redirected(self, request: Request, answer: Answer) -> Request:
        """Return the request with the URL of a 3xx answer. Raises NotSentError."""
        location = answer.headers.get("location", "")
        try:
            return request.at(urljoin(self.url_of(request), location))
        except ValueError:
            detail = "a redirect whose Location is not a URL"
            raise NotSentError("foreign_url", detail, lasting=True) from None

    async def send(self, request: Request, token: str) -> Answer:
        """Send a request once with `token`. Raises NotSentError, NoAnswerError."""
        url = self.url_of(request)
        started, before = self._clock.now(), self._wall()
        outcome = "cancelled"
        try:
            answer = await self._exchange(request, url, token)
            outcome = str(answer.status)
            ahead = clock_ahead(answer.headers.get("date"), before, self._wall())
            if ahead is not None and (answer.status < 400 or answer.genuine):
                self._telemetry.github_clock(ahead)
                answer = replace(answer, clock_ahead=ahead)
        except (NotSentError, NoAnswerError) as error:
            outcome = error.outcome
            raise
        finally:
            spent = self._clock.now() - started
            self._telemetry.github_call(request.endpoint, outcome, spent)
        return answer

    async def close(self) -> None:
        """Close all connections. Idempotent."""
        self._closed = True
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _exchange(self, request: Request, url: str, token: str) -> Answer:
        limit = self._time_limit(request)
        # Always `from None`: aiohttp's exceptions contain the request's headers with the token.
        try:
            return await self._round_trip(request, url, token, limit)
        except aiohttp.ClientConnectorCertificateError:
            detail = "GitHub's certificate is not trusted; add its CA to the system's certificates"
            raise NotSentError("certificate", detail, lasting=True) from None
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise NotSentError("not_connected", type(error).__name__) from None
        except aiohttp.ClientHttpProxyError as error:
            # The proxy refused the connection. Its message is omitted: it may be a whole page.
            raise NotSentError("not_connected", f"the proxy answered {error.status}") from None
        except TimeoutError:
            raise NoAnswerError("timeout", f"no answer in {limit:g} s") from None
        except aiohttp.ClientError as error:
            raise NoAnswerError("disconnected", type(error).__name__) from None

    def _time_limit(self, request: Request) -> Seconds:
        """Return how long the answer may take.

        Raises NotSentError if the request changes something, and this process does not lead.
        """
        if request.effect is Effect.READ:
            # The POST for an access token is one: an earlier leader's token disturbs none of the next one.
            return self._settings.timeout
        left = self._leads()
        if left <= 0:
            raise NotSentError("not_leading", "this process no longer leads the fleet")
        return min(self._settings.timeout, left)

    async def _round_trip(self, request: Request, url: str, token: str, limit: Seconds) -> Answer:
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
            timeout=aiohttp.ClientTimeout(
                total=limit,
                connect=min(_CONNECT_TIMEOUT, limit * 0.75),
                # aiohttp rounds longer times up to whole seconds.
                ceil_threshold=math.inf,
            ),
        ) as response:
            return _answer(request, response, await _read(response))

    def _open_session(self) -> aiohttp.ClientSession:
        if self._closed:
            raise NotSentError("closed", "this client is closed")
        if self._session is None:
            # Unlimited: `RequestQueue` limits them, and waiting must not count as connection time.
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0),
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._session


def proxy_for(url: str) -> str | None:
    """Return the proxy of HTTPS_PROXY, HTTP_PROXY and NO_PROXY for `url`; None for a direct connection.

    aiohttp's `trust_env` would also read ~/.netrc. If that file has an entry for GitHub's host, aiohttp
    refuses every request with a token (`ClientSession._request`: "Cannot combine AUTHORIZATION header").
    """
    proxies = getproxies_environment()
    parts = urlsplit(url)
    if proxy_bypass(parts.netloc, proxies):
        return None
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    if not proxy:
        return None
    # Without a scheme it is an HTTP proxy, as for curl.
    return proxy if "://" in proxy else f"http://{proxy}"


def clock_ahead(date: str | None, before: Instant, after: Instant) -> Seconds | None:
    """Return by how many seconds the clock that showed `before` and `after` is ahead of a Date header.

    0.0 if the answer may be of that time: the header has whole seconds. None without a readable header.
    """
    parsed = email.utils.parsedate_tz(date or "")
    if parsed is None:
        return None
    try:
        made_at = email.utils.mktime_tz(parsed)
    except (ValueError, OverflowError):
        return None
    at_least, at_most = before - (made_at + 1.0), after - made_at
    return max(at_least, 0.0) + min(at_most, 0.0)


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
            raise NoAnswerError(BROKEN, f"an answer of more than {MAX_ANSWER} bytes")
    return bytes(body)


def _answer(request: Request, response: aiohttp.ClientResponse, body: bytes) -> Answer:
    """Return the decoded answer. Raises NoAnswerError if a 2xx answer with data is unreadable."""
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
