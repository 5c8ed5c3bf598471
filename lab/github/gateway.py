"""The entry to the REST API: authentication, rate limits, ETags, and the form of answers and errors.

Counts every request by route and status.

Statuses, messages and headers as GitHub's documentation of the REST API and its limits has them.
"""

import asyncio
import hashlib
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from email.utils import formatdate
from typing import Any
from urllib.parse import urlencode

from aiohttp import web

from autoscaler.controller.ports.clock import Clock
from lab.github.credentials import Caller, Credentials, CredentialsRefusedError
from lab.github.faults import AnswerFaults
from lab.github.limits import LimitHit, RateLimits
from lab.github.settings import ENTERPRISE_VERSION, LabGitHubOptions

CORE = "core"
REGISTRATION = "actions_runner_registration"
DOCUMENTATION = "https://docs.github.com/rest"
_NO_USER_AGENT = (
    "Request forbidden by administrative rules. "
    "Please make sure your request has a User-Agent header."
)
_WRITES = frozenset({"POST", "PUT", "PATCH", "DELETE"})

Handle = Callable[[web.Request, Caller], Awaitable[web.Response]]
OpenHandle = Callable[[web.Request], Awaitable[web.Response]]


class RefusedError(Exception):
    """The request is answered with an error status."""

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(f"{status} {message}")
        self.status = status
        self.message = message
        self.headers = dict(headers or {})


class NotFoundError(RefusedError):
    """404, which GitHub also answers for resources that a caller may not see."""

    def __init__(self) -> None:
        super().__init__(404, "Not Found")


class LimitedError(RefusedError):
    """A rate limit was reached: 403 with an empty bucket, or 429 with the time to wait."""

    def __init__(self, hit: LimitHit, caller: Caller) -> None:
        if hit.primary:
            who = f"installation ID {caller.installation.id}" if caller.installation else "App"
            super().__init__(403, f"API rate limit exceeded for {who}.")
            return
        super().__init__(
            429,
            "You have exceeded a secondary rate limit. Please wait a few minutes before you try again.",
            {"retry-after": str(hit.retry_after)},
        )


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a list, as the request asks for it. `number` counts from 1."""

    number: int
    size: int

    def cut(self, items: Sequence[Any]) -> Sequence[Any]:
        """Return the items of this page."""
        return items[(self.number - 1) * self.size : self.number * self.size]


def whole_number(text: str | None, otherwise: int) -> int:
    """Return a number from a path or query; `otherwise` if it is missing or no number, as GitHub does."""
    if text is None or not text.isascii() or not text.isdigit() or len(text) > 18:
        return otherwise
    return int(text)


ANONYMOUS_AN_HOUR = 60
LONGEST_PAGE = 100


class Gateway:
    """Wraps handlers. `calls` counts requests by (`METHOD /route`, status).

    `anonymous` counts the requests without credentials. GitHub allows 60 of them an hour for one IP address
    ("Rate limits for the REST API"); /rate_limit is free. `origin` is the server's URL; the API's URL also has
    the base path. No page of a list is longer than `longest_page`. Without `filters_names`, the parameter
    `name` of a list of runners is ignored.
    """

    def __init__(
        self,
        credentials: Credentials,
        limits: RateLimits,
        clock: Clock,
        faults: AnswerFaults,
        options: LabGitHubOptions,
    ) -> None:
        self.origin = ""
        self.base_path = options.base_path
        self.limits = limits
        self.faults = faults
        self.calls: Counter[tuple[str, int]] = Counter()
        self.anonymous = 0
        self.longest_page = LONGEST_PAGE
        self.filters_names = True
        self._credentials = credentials
        self._clock = clock
        self._latency = options.latency

    def for_app(self, method: str, path: str, handle: Handle) -> web.RouteDef:
        """Wrap a route that needs an App's JWT."""
        return self._route(method, path, handle, self._credentials.app, CORE)

    def for_installation(
        self, method: str, path: str, handle: Handle, resource: str | None = CORE
    ) -> web.RouteDef:
        """Wrap a route that needs an installation token. `resource` is its bucket; None costs nothing."""
        return self._route(method, path, handle, self._credentials.installation, resource)

    def for_anyone(self, method: str, path: str, handle: OpenHandle) -> web.RouteDef:
        """Wrap a route without credentials and limits."""

        async def serve(request: web.Request) -> web.Response:
            self.anonymous += "Authorization" not in request.headers
            try:
                return await handle(request)
            except RefusedError as refused:
                return self._refusal(refused)

        return self._counted(method, path, serve)

    def page_of(self, request: web.Request) -> Page:
        """Return the page that `page` and `per_page` (default 30) ask for."""
        size = whole_number(request.query.get("per_page"), 30)
        number = whole_number(request.query.get("page"), 1)
        return Page(max(number, 1), min(max(size, 1), self.longest_page))

    def paged(
        self, request: web.Request, page: Page, total: int, body: Mapping[str, Any]
    ) -> web.Response:
        """Return the answer with one page of a list, its `total` count and its links."""
        headers = self.page_links(request, page, total)
        return web.json_response({"total_count": total, **body}, headers=headers)

    def page_links(self, request: web.Request, page: Page, total: int) -> dict[str, str]:
        """Return GitHub's Link header if there is more than one page."""
        last = max((total + page.size - 1) // page.size, 1)
        links = []
        if page.number > 1:
            links += [("prev", min(page.number - 1, last)), ("first", 1)]
        if page.number < last:
            links += [("next", page.number + 1), ("last", last)]
        header = ", ".join(
            f'<{self.link(request, page=number, per_page=page.size)}>; rel="{rel}"'
            for rel, number in links
        )
        return {"Link": header} if header else {}

    def link(self, request: web.Request, **query: object) -> str:
        """Return this request's URL with some parameters of its query replaced."""
        return f"{self.origin}{request.path}?{urlencode({**request.query, **query})}"

    def charge_registration(self, caller: Caller, organization: str) -> None:
        """Count one registration against the organization's limit per 5 minutes. Raises LimitedError."""
        hit = self.limits.register(organization, self._clock.now())
        if hit is not None:
            raise LimitedError(hit, caller)

    def _route(
        self,
        method: str,
        path: str,
        handle: Handle,
        authenticate: Callable[[str], Caller],
        resource: str | None,
    ) -> web.RouteDef:
        name = f"{method} {path}"

        async def serve(request: web.Request) -> web.Response:
            caller: Caller | None = None
            entered: str | None = None
            if "Authorization" not in request.headers:
                if resource is None:
                    left = max(0, ANONYMOUS_AN_HOUR - self.anonymous)
                    return web.json_response(
                        {"rate": {"limit": ANONYMOUS_AN_HOUR, "remaining": left}}
                    )
                self.anonymous += 1
            try:
                caller = authenticate(_bearer(request))
                self._enter(caller)
                entered = caller.key
                self._charge(caller, name, resource, write=method in _WRITES)
                response = self._if_changed(
                    request, await handle(request, caller), resource, caller
                )
            except CredentialsRefusedError as refused:
                response = self._refusal(RefusedError(401, str(refused)))
            except RefusedError as refused:
                response = self._refusal(refused)
            finally:
                if entered is not None:
                    self.limits.leave(entered)
            if caller is not None and resource is not None:
                self._show_limit(response, caller, resource)
            return response

        return self._counted(method, path, serve)

    def _counted(self, method: str, path: str, handle: OpenHandle) -> web.RouteDef:
        """Wrap a route: apply faults to its answers and count them."""
        name = f"{method} {path}"

        async def serve(request: web.Request) -> web.StreamResponse:
            await asyncio.sleep(self._latency)
            if "User-Agent" not in request.headers:
                return self._refusal(RefusedError(403, _NO_USER_AGENT))
            response, status = await self.faults.serve(name, request, handle)
            now = self._credentials.wall()
            response.headers.setdefault("Date", formatdate(now, usegmt=True))
            if self.base_path:
                response.headers.setdefault("X-GitHub-Enterprise-Version", ENTERPRISE_VERSION)
            self.calls[name, status] += 1
            return response

        return web.route(method, self.base_path + path, serve)

    def _if_changed(
        self, request: web.Request, response: web.Response, resource: str | None, caller: Caller
    ) -> web.Response:
        """Return the answer with its ETag, or a free 304 if the caller already has it."""
        if (
            request.method != "GET"
            or response.status != 200
            or not isinstance(response.body, bytes)
        ):
            return response
        etag = f'W/"{hashlib.sha256(response.body).hexdigest()}"'
        if request.headers.get("If-None-Match") == etag:
            if resource is not None:
                self.limits.give_back(caller.key, resource, self._clock.now())
            response = web.Response(status=304)
        response.headers["ETag"] = etag
        return response

    def _enter(self, caller: Caller) -> None:
        hit = self.limits.enter(caller.key)
        if hit is not None:
            raise LimitedError(hit, caller)

    def _charge(self, caller: Caller, name: str, resource: str | None, *, write: bool) -> None:
        if resource is None:
            return
        hit = self.limits.charge(caller.key, name, resource, self._clock.now(), write=write)
        if hit is not None:
            raise LimitedError(hit, caller)

    def _show_limit(self, response: web.Response, caller: Caller, resource: str) -> None:
        bucket = self.limits.hourly(caller.key, resource, self._clock.now())
        if bucket is not None:
            response.headers["x-ratelimit-limit"] = str(bucket.limit)
            response.headers["x-ratelimit-remaining"] = str(bucket.remaining)
            response.headers["x-ratelimit-used"] = str(bucket.used)
            response.headers["x-ratelimit-reset"] = str(int(bucket.reset))
            response.headers["x-ratelimit-resource"] = resource

    @staticmethod
    def _refusal(refused: RefusedError) -> web.Response:
        body = {
            "message": refused.message,
            "documentation_url": DOCUMENTATION,
            "status": str(refused.status),
        }
        return web.json_response(body, status=refused.status, headers=refused.headers)


def _bearer(request: web.Request) -> str:
    scheme, _, secret = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() not in {"bearer", "token"} or not secret:
        raise CredentialsRefusedError("Requires authentication")
    return secret.strip()


async def json_object(request: web.Request) -> dict[str, Any]:
    """Return a request's body. Raises RefusedError: 400 if it is no JSON, 422 if it is no object."""
    try:
        body = json.loads(await request.read())
    except (ValueError, RecursionError):
        raise RefusedError(400, "Problems parsing JSON") from None
    if not isinstance(body, dict):
        raise RefusedError(422, "Invalid request.\n\nFor 'links/0/schema', the body is no object.")
    return body
