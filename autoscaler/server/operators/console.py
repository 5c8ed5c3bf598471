"""The console at `/`: sign-in, sessions and the headers of its pages. See docs/console.md.

It only reads. Before the sign-in it serves the form and the static files, and shows nothing of the fleet but
its name.
"""

import asyncio
import math
import re
from collections.abc import Awaitable, Callable
from functools import partial
from urllib.parse import parse_qs

from aiohttp import web

from autoscaler.console.assets import Asset
from autoscaler.console.pages import Pages
from autoscaler.controller.operators.fleet_queries import FleetQueries
from autoscaler.controller.ports.store import StoreError
from autoscaler.model.identifiers import Seconds
from autoscaler.model.operators import Operator
from autoscaler.server import bodies
from autoscaler.server.bodies import Bodies, BodyRefusedError
from autoscaler.server.operators.compression import MIN_BYTES, accepts_gzip
from autoscaler.server.operators.console_pages import ConsolePages, MissingPageError
from autoscaler.server.operators.filters import MalformedRequestError, UnknownNameError
from autoscaler.server.operators.live import Live
from autoscaler.server.operators.sessions import LIFETIME, Sessions
from autoscaler.server.refusal_log import RefusalLog
from autoscaler.server.tokens import BearerTokens, WrongTokens

_MAX_FORM_BYTES = 8192
"""A token of 1,024 characters takes three times as many bytes in a form, and the wanted path some."""

_WANTED = re.compile(
    r"/(?:[A-Za-z0-9_.~%-][A-Za-z0-9_.~%/-]{0,400})?(?:\?[A-Za-z0-9_.~%=&+-]{0,600})?"
)
"""A path of the console to go to after the sign-in. It begins with one slash, so it is on this host."""

_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    # With no-referrer, browsers would send `Origin: null` with the forms.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}

_FOR_EVER = "public, max-age=31536000, immutable"

_Page = Callable[[web.Request, Operator], Awaitable[str]]


class ConsoleEndpoint:
    """The routes of the console. `secure`: browsers reach it over TLS, so its cookie is sent over TLS only."""

    def __init__(
        self,
        queries: FleetQueries,
        pages: Pages,
        assets: tuple[Asset, ...],
        tokens: Callable[[], BearerTokens[Operator]],
        wrong_tokens: WrongTokens,
        *,
        secure: bool,
    ) -> None:
        self._pages = pages
        self._assets = assets
        self._content = ConsolePages(queries, pages)
        self._sessions = Sessions(tokens, lambda: asyncio.get_running_loop().time())
        self._wrong_tokens = wrong_tokens
        self._live = Live(queries.changes)
        self._bodies = Bodies(_MAX_FORM_BYTES)
        self._refusals = RefusalLog()
        self._secure = secure
        # A cookie with this prefix is refused unless it has Secure and Path=/, and comes from this host.
        self._cookie = "__Host-autoscaler" if secure else "autoscaler"

    def add_to(self, app: web.Application, _patience: Seconds, /) -> None:
        """Add the routes to a listener. When it stops, streams of events end."""
        for path, page in self._content.routes().items():
            app.router.add_get(path, partial(self._answer, page))
        app.router.add_get("/find", self._find)
        app.router.add_get("/events", self._events)
        app.router.add_post("/sign-in", self._sign_in)
        app.router.add_post("/sign-out", self._sign_out)
        for asset in self._assets:
            app.router.add_get(asset.address, partial(_send, asset))
        app.on_shutdown.append(self._live.close)
        app.on_cleanup.append(self._content.close)

    async def _answer(self, page: _Page, request: web.Request) -> web.Response:
        operator = self._operator(request)
        if operator is None:
            return self._ask(request)
        try:
            return await self._compressed(request, await page(request, operator))
        except MalformedRequestError as error:
            return self._problem(400, "This address cannot be used", f"{error}.", operator)
        except MissingPageError as error:
            return self._problem(404, "Not found", str(error), operator)
        except UnknownNameError as error:
            return self._problem(404, "Not found", f"{error}.", operator)
        except StoreError:
            text = "The store does not answer. The controller's log has the reason."
            return self._problem(503, "The history cannot be read", text, operator)

    async def _compressed(self, request: web.Request, page: str) -> web.Response:
        """Return the answer with a page, as gzip if its client accepts that and it is not short."""
        if len(page) < MIN_BYTES or not accepts_gzip(request.headers.get("Accept-Encoding", "")):
            return _html(page)
        body = await self._content.compressed(page)
        answer = web.Response(body=body, content_type="text/html", charset="utf-8")
        answer.headers["Content-Encoding"] = "gzip"
        return _with_headers(answer)

    async def _find(self, request: web.Request) -> web.Response:
        operator = self._operator(request)
        if operator is None:
            return self._ask(request)
        found = self._content.find(request.query.get("q", "")[:512])
        if found is None:
            text = "No job, machine, runner or SKU in the controller's memory has this name."
            return self._problem(404, "Nothing found", text, operator)
        return _to(found)

    async def _events(self, request: web.Request) -> web.StreamResponse:
        if self._operator(request) is None:
            return _with_headers(web.Response(status=401))
        return await self._live.stream(
            request, _HEADERS, lambda: self._operator(request) is not None
        )

    def _operator(self, request: web.Request) -> Operator | None:
        return self._sessions.operator(request.cookies.get(self._cookie, ""))

    def _ask(self, request: web.Request) -> web.Response:
        """Return the form for the token."""
        if request.headers.get("Sec-Fetch-Site") == "cross-site":
            # The browser sends no SameSite=Strict cookie when it follows a link of another site. It sends the
            # cookie when this page, which is of this site, loads the address again.
            return _html(self._pages.reload())
        wanted = request.path_qs
        return _html(self._pages.sign_in("", wanted if _WANTED.fullmatch(wanted) else "/"))

    async def _sign_in(self, request: web.Request) -> web.Response:
        if not _is_same_origin(request):
            return self._refuse(request, "origin", 403, "The form was sent by another site.", "/")
        try:
            form = await self._form(request)
        except BodyRefusedError as error:
            return self._refuse(
                request, error.reason, bodies.REFUSED[error.reason], "The form is not usable.", "/"
            )
        token, wanted = form.get("token", "").strip(), form.get("next", "/")
        wanted = wanted if _WANTED.fullmatch(wanted) else "/"
        cookie = self._sessions.open(token)
        if cookie is None:
            wait = self._wrong_tokens.note(request.remote, token)
            if wait > 0.0:
                return self._too_many_tokens(request, wait, wanted)
            return self._refuse(request, "token", 403, "This token is not valid.", wanted)
        answer = _to(wanted)
        self._set_cookie(answer, cookie, LIFETIME)
        return answer

    def _too_many_tokens(
        self, request: web.Request, retry_after: Seconds, wanted: str
    ) -> web.Response:
        seconds = max(1, math.ceil(retry_after))
        problem = (
            "This token is not valid, and too many wrong tokens came from this address. "
            f"Try again in {seconds} s."
        )
        answer = self._refuse(request, "too_many_tokens", 429, problem, wanted)
        answer.headers["Retry-After"] = str(seconds)
        return answer

    async def _sign_out(self, request: web.Request) -> web.Response:
        if not _is_same_origin(request):
            return self._refuse(request, "origin", 403, "The form was sent by another site.", "/")
        self._sessions.close(request.cookies.get(self._cookie, ""))
        answer = _to("/")
        self._set_cookie(answer, "", 0.0)
        return answer

    async def _form(self, request: web.Request) -> dict[str, str]:
        """Return the fields of a form, each once. Raises BodyRefusedError."""
        async with self._bodies.read(request) as body:
            try:
                fields = parse_qs(body.decode("ascii"), max_num_fields=4, keep_blank_values=True)
            except ValueError as error:
                raise BodyRefusedError("broken") from error
        return {name: values[0] for name, values in fields.items() if len(values) == 1}

    def _set_cookie(self, answer: web.Response, value: str, lasts: Seconds) -> None:
        answer.set_cookie(
            self._cookie,
            value,
            max_age=round(lasts),
            path="/",
            secure=self._secure,
            httponly=True,
            samesite="Strict",
        )

    def _refuse(
        self, request: web.Request, reason: str, status: int, problem: str, wanted: str
    ) -> web.Response:
        self._refusals.note("sign_in_refused", reason, reason=reason, peer=request.remote)
        return _html(self._pages.sign_in(problem, wanted), status)

    def _problem(self, status: int, title: str, text: str, operator: Operator) -> web.Response:
        frame = self._content.frame(operator)
        return _html(self._pages.message(title, text, frame), status)


def _is_same_origin(request: web.Request) -> bool:
    """Return True unless another site sent the form (RFC 6454; W3C: Fetch Metadata).

    Every current browser sends `Sec-Fetch-Site` over TLS and to this host, and `Origin` with each POST.
    """
    site = request.headers.get("Sec-Fetch-Site")
    if site is not None:
        return site == "same-origin"
    host = request.headers.get("Host", "")
    # Compared as text: parsing raises ValueError for some of what a stranger can send.
    return request.headers.get("Origin") in (f"http://{host}", f"https://{host}")


def _html(text: str, status: int = 200) -> web.Response:
    return _with_headers(web.Response(status=status, text=text, content_type="text/html"))


def _to(address: str) -> web.Response:
    return _with_headers(web.Response(status=303, headers={"Location": address}))


def _with_headers(answer: web.Response) -> web.Response:
    answer.headers.update(_HEADERS)
    answer.headers["Cache-Control"] = "no-store"
    answer.headers["Vary"] = "Accept-Encoding"
    return answer


async def _send(asset: Asset, _: web.Request) -> web.Response:
    answer = web.Response(body=asset.body, content_type=asset.content_type)
    answer.headers.update(_HEADERS)
    answer.headers["Cache-Control"] = _FOR_EVER
    return answer
