"""Serves the page that creates a GitHub App from a manifest: one page on loopback, until the App exists.

The browser must post the manifest, so that a link cannot do it. GitHub then sends the browser back to this page
with a code (docs.github.com, "Registering a GitHub App from a manifest"). The page's path is random: the page
shows the state, with which another user of this host could bring the code of an App of theirs.
"""

import asyncio
import hmac
import secrets
from collections.abc import Callable, Coroutine
from html import escape
from typing import Any
from urllib.parse import urlsplit

from aiohttp import web

from autoscaler.setup.manifest import AppPlan

MAX_REQUESTS = 100
"""Requests that are answered. An owner's browser needs about five."""

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>autoscaler init</title></head>
<body style="font-family: sans-serif; max-width: 40em; margin: 3em auto; line-height: 1.5">{body}</body></html>
"""
_FORM = """<h1>Create the GitHub App {name}</h1>
<p>{owner} will own it. GitHub asks for a name and for your confirmation. If GitHub says that the name is taken,
change it there.</p>
<p>Permissions: {permissions}.</p>
<form action="{action}" method="post">
<input type="hidden" name="manifest" value="{manifest}">
<button>Continue to GitHub</button></form>
"""

Exchange = Callable[[str], Coroutine[Any, Any, str]]
"""Turns a code into an App, keeps its key, and returns the address where the owner installs it."""


class PageError(Exception):
    """The page cannot be served; the text says why and what to do."""


class AppPage:
    """The page for one plan. `url` is its address after `start`."""

    def __init__(
        self, plan: AppPlan, exchange: Exchange, refused: tuple[type[Exception], ...]
    ) -> None:
        """`refused` are the errors of `exchange`, whose texts the owner may read."""
        self._plan = plan
        self._exchange = exchange
        self._refused = refused
        self.state = secrets.token_urlsafe(32)
        self._path = f"/{secrets.token_urlsafe(16)}"
        self._runner: web.AppRunner | None = None
        self.hosts: frozenset[str] = frozenset()
        self._left = MAX_REQUESTS
        self._creating: asyncio.Task[str] | None = None
        self._begun = asyncio.Event()
        self.port = 0
        self.url = ""

    async def start(self, port: int = 0) -> None:
        """Listen on 127.0.0.1. Raises PageError."""
        app = web.Application(client_max_size=1024)
        app.router.add_get(self._path, self.handle)
        self._runner = web.AppRunner(app, access_log=None, keepalive_timeout=5.0)
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, "127.0.0.1", port, backlog=16).start()
        except OSError as error:
            raise PageError(
                f"port {port}: {error.strerror}; name another one with --port"
            ) from None
        self.port = self._runner.addresses[0][1]
        self.hosts = frozenset({f"127.0.0.1:{self.port}", f"localhost:{self.port}"})
        self.url = f"http://127.0.0.1:{self.port}{self._path}"

    async def created(self) -> None:
        """Return when `exchange` has ended. Raises its error."""
        await self._begun.wait()
        assert self._creating is not None
        await asyncio.shield(self._creating)

    async def close(self) -> None:
        """Stop listening, after an exchange that has begun. Idempotent."""
        if self._creating is not None:
            await asyncio.wait([self._creating])
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()

    async def handle(self, request: web.Request) -> web.Response:
        """Answer a request for the page."""
        # Another site may have a name that leads to 127.0.0.1, and read the page (DNS rebinding).
        if request.headers.get("Host", "") not in self.hosts:
            return self._answer(400, "<p>This address is not that of the page.</p>")
        self._left -= 1
        if self._left < 0:
            return self._answer(429, "<p>Too many requests: run the command again.</p>")
        if "code" not in request.query:
            return self._form()
        if not self._is_ours(request.query.get("state", "")):
            text = (
                "GitHub's answer is not for this run of the command (its state is another one). Nothing was "
                "written. Open the page again from its first address."
            )
            return self._answer(403, f"<p>{text}</p>")
        if self._creating is not None:
            return self._answer(409, "<p>The App was created already. You can close this page.</p>")
        # A task of its own: GitHub sends the key only once, and the browser may disconnect.
        self._creating = asyncio.create_task(self._exchange(request.query["code"]))
        self._begun.set()
        try:
            install = await asyncio.shield(self._creating)
        except self._refused as error:
            return self._answer(502, f"<p>{escape(str(error))}.</p>")
        return web.Response(status=303, headers={"Location": install})

    def _is_ours(self, state: str) -> bool:
        return hmac.compare_digest(state.encode(), self.state.encode())

    def _form(self) -> web.Response:
        plan = self._plan
        body = _FORM.format(
            name=escape(plan.name),
            owner=escape(plan.owner),
            permissions=escape(
                ", ".join(f"{name}: {level}" for name, level in plan.permissions.items())
            ),
            action=escape(plan.form_address(self.state)),
            manifest=escape(plan.manifest(self.url)),
        )
        return self._answer(200, body)

    def _answer(self, status: int, body: str) -> web.Response:
        parts = urlsplit(self._plan.pages)
        policy = (
            f"default-src 'none'; style-src 'unsafe-inline'; form-action {parts.scheme}://{parts.netloc}; "
            "frame-ancestors 'none'; base-uri 'none'"
        )
        headers = {
            "Content-Security-Policy": policy,
            "Cache-Control": "no-store",
            "Referrer-Policy": "no-referrer",
            "X-Content-Type-Options": "nosniff",
        }
        text = _PAGE.format(body=body)
        return web.Response(status=status, text=text, content_type="text/html", headers=headers)
