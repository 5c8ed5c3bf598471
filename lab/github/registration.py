"""GitHub's pages for a new App: from a manifest or from URL parameters, and its installation.

Sources: docs.github.com, "Registering a GitHub App from a manifest", "... using URL parameters", and REST
"Create a GitHub App from a manifest". Everyone who opens the pages counts as the owner of each account.
"""

import json
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from html import escape
from typing import Any
from urllib.parse import urlencode, urlsplit

from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from yarl import URL

from lab.github.credentials import Credentials
from lab.github.directory import Directory
from lab.github.gateway import Gateway, NotFoundError
from lab.github.records import Organization, RegisteredApp
from lab.github.settings import LabApp
from lab.github.shapes import Shapes

CODE_VALID = 3600.0
"""Seconds from the start of the flow to the exchange of its code ("within one hour")."""

LONGEST_NAME = 34
_FIRST_APP = 1_500_001
_NOT_PERMISSIONS = frozenset(
    {"name", "url", "public", "webhook_active", "webhook_url", "description"}
)


class _InvalidError(Exception):
    """What GitHub says of a form that it refuses."""


@dataclass(slots=True)
class _Conversion:
    """An App whose key was not sent yet."""

    app: RegisteredApp
    pem: str = field(repr=False)
    secret: str | None = field(repr=False)
    began_at: float


class Registration:
    """Creates Apps. `add` starts the webhook of a new App. `now` is GitHub's time in Unix seconds."""

    def __init__(
        self,
        gateway: Gateway,
        directory: Directory,
        credentials: Credentials,
        shapes: Shapes,
        add: Callable[[LabApp], None],
    ) -> None:
        self._gateway = gateway
        self._directory = directory
        self._credentials = credentials
        self._shapes = shapes
        self._add = add
        self._conversions: dict[str, _Conversion] = {}

    def routes(self) -> list[web.RouteDef]:
        """Return the pages, which are beside the API, and the exchange of a code, which is in it."""
        at = "/organizations/{owner}/settings/apps"
        return [
            web.post(f"{at}/new", self._confirm),
            web.post("/settings/apps/new", self._confirm),
            web.post(at, self._create),
            web.post("/settings/apps", self._create),
            web.get("/{pages:apps|github-apps}/{slug}/installations/new", self._offer),
            web.post("/{pages:apps|github-apps}/{slug}/installations", self._install),
            self._gateway.for_anyone("POST", "/app-manifests/{code}/conversions", self._convert),
        ]

    @property
    def apps(self) -> list[RegisteredApp]:
        """All Apps, in the order of their creation."""
        return list(self._directory.apps.values())

    def by_hand(self, address: str) -> tuple[int, str]:
        """Fill in the form that URL parameters prefill, generate a key, and return the App's ID and the PEM."""
        parts = urlsplit(address)
        query = URL(address).query
        owner = parts.path.split("/")[2] if parts.path.startswith("/organizations/") else None
        permissions = {
            key: value
            for key, value in query.items()
            if key not in _NOT_PERMISSIONS and key != "events[]"
        }
        manifest = {
            "name": query["name"],
            "url": query["url"],
            "default_permissions": permissions,
            "default_events": query.getall("events[]", []),
        }
        if query.get("webhook_active") == "true":
            manifest["hook_attributes"] = {"url": query["webhook_url"], "active": True}
        made = self._register(self._owner(owner), manifest, query["name"])
        return made.app.id, made.pem

    async def _confirm(self, request: web.Request) -> web.Response:
        """Answer a posted manifest with the page on which its owner names the App."""
        form = await request.post()
        text = str(form.get("manifest", ""))
        try:
            owner = self._owner(request.match_info.get("owner"))
            manifest = _read(text)
        except _InvalidError as error:
            return _page(f"<p>Invalid GitHub App configuration. {escape(str(error))}</p>", 422)
        action = request.path.removesuffix("/new")
        return _page(
            f'<form action="{escape(action)}" method="post">'
            f'<input type="hidden" name="manifest" value="{escape(text)}">'
            f'<input type="hidden" name="state" value="{escape(request.query.get("state", ""))}">'
            f'<input type="hidden" name="began" value="{self._credentials.wall()}">'
            f'<input name="name" value="{escape(str(manifest.get("name", "")))}">'
            f"<button>Create GitHub App for {escape(owner.login)}</button></form>"
        )

    async def _create(self, request: web.Request) -> web.Response:
        form = await request.post()
        try:
            owner = self._owner(request.match_info.get("owner"))
            manifest = _read(str(form["manifest"]))
            made = self._register(owner, manifest, str(form["name"]))
        except _InvalidError as error:
            return _page(f"<p>{escape(str(error))}</p>", 422)
        made.began_at = float(str(form["began"]))
        code = secrets.token_hex(20)
        self._conversions[code] = made
        query = {"code": code} | ({"state": str(form["state"])} if form["state"] else {})
        location = f"{manifest['redirect_url']}?{urlencode(query)}"
        return web.Response(status=302, headers={"Location": location})

    async def _convert(self, request: web.Request) -> web.Response:
        """Send an App with its key, once."""
        made = self._conversions.pop(request.match_info["code"], None)
        if made is None or self._credentials.wall() - made.began_at > CODE_VALID:
            raise NotFoundError
        owner = self._directory.organizations[made.app.owner.lower()]
        shape = {
            **self._shapes.app(made.app, owner, 0),
            "client_secret": secrets.token_hex(20),
            "webhook_secret": made.secret,
            "pem": made.pem,
        }
        return web.json_response(shape, status=201)

    async def _offer(self, request: web.Request) -> web.Response:
        app = self._by_slug(request)
        action = request.path.removesuffix("/new")
        return _page(
            f'<form action="{escape(action)}" method="post">'
            f'<input type="hidden" name="target" value="{escape(app.owner)}">'
            f"<button>Install on {escape(app.owner)}</button></form>"
        )

    async def _install(self, request: web.Request) -> web.Response:
        form = await request.post()
        app = self._by_slug(request)
        self._directory.install(app.id, str(form["target"]))
        return _page("<p>Installed.</p>")

    def _by_slug(self, request: web.Request) -> RegisteredApp:
        for app in self._directory.apps.values():
            if app.slug == request.match_info["slug"]:
                return app
        raise web.HTTPNotFound

    def _owner(self, login: str | None) -> Organization:
        """Return the organization, or the user who has signed in, with None."""
        for account in self._directory.organizations.values():
            wanted = account.kind == "User" if login is None else account.kind == "Organization"
            if wanted and login in (None, account.login):
                return account
        raise web.HTTPNotFound

    def _register(self, owner: Organization, manifest: Mapping[str, Any], name: str) -> _Conversion:
        if not name or len(name) > LONGEST_NAME:
            raise _InvalidError(f"Name is too long (maximum is {LONGEST_NAME} characters)")
        hook = manifest.get("hook_attributes")
        events = manifest.get("default_events") or []
        number = max((_FIRST_APP - 1, *self._directory.apps)) + 1
        active = hook is not None and bool(hook.get("active", True))
        made = RegisteredApp(
            number,
            name,
            owner.login,
            {"metadata": "read", **manifest.get("default_permissions", {})},
            tuple(events),
            manifest["url"],
            hook["url"] if hook else "",
            active,
        )
        if made.slug in {app.slug for app in self._directory.apps.values()}:
            raise _InvalidError("Name has already been taken")
        pem, public = _key()
        secret = secrets.token_hex(20) if active else None
        self._directory.apps[number] = made
        app = LabApp(number, public, secret or "", made.hook_url if active else None)
        self._credentials.add(app)
        self._add(app)
        return _Conversion(made, pem, secret, self._credentials.wall())


def _read(text: str) -> dict[str, Any]:
    """Return the manifest in a form. Raises _InvalidError as GitHub's page does."""
    try:
        manifest = json.loads(text)
    except ValueError:
        raise _InvalidError("The configuration is not valid JSON.") from None
    hook = manifest.get("hook_attributes")
    # GitHub requires the URL of a webhook that is off, too, and names the field without its parent.
    for section in (manifest, *([hook] if hook is not None else [])):
        if not section.get("url"):
            raise _InvalidError('Error "url" wasn\'t supplied.')
    if manifest.get("default_events") and hook is None:
        raise _InvalidError("Default events need hook_attributes.")
    return dict(manifest)


def _key() -> tuple[str, bytes]:
    """Return a new key, as GitHub sends it (PKCS #1), and its public half."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    private = key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return private.decode(), public


def _page(body: str, status: int = 200) -> web.Response:
    text = f"<!doctype html><title>GitHub</title>{body}"
    return web.Response(text=text, status=status, content_type="text/html")
