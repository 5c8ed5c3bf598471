"""REST routes of a GitHub App: installations, tokens, and its webhook's deliveries.

Shapes and statuses: GitHub's REST documentation, "GitHub Apps" and "App webhooks".
"""

from collections.abc import Mapping

from aiohttp import web

from autoscaler.controller.ports.clock import Clock
from lab.github.credentials import Caller, Credentials, Installation
from lab.github.deliveries import Delivery
from lab.github.directory import Directory
from lab.github.gateway import (
    Gateway,
    NotFoundError,
    RefusedError,
    json_object,
    whole_number,
)
from lab.github.records import Organization, RegisteredApp
from lab.github.shapes import Shapes, timestamp
from lab.github.webhooks import Webhook

_CURSOR = "v1_"


class AppRoutes:
    """The handlers for callers with an App's JWT."""

    def __init__(
        self,
        gateway: Gateway,
        directory: Directory,
        credentials: Credentials,
        shapes: Shapes,
    ) -> None:
        self._gateway = gateway
        self._directory = directory
        self._credentials = credentials
        self._shapes = shapes

    def routes(self) -> list[web.RouteDef]:
        """Return the routes of installations and tokens."""
        add = self._gateway.for_app
        return [
            add("GET", "/app", self._app),
            add("GET", "/app/installations", self._installations),
            add("POST", "/app/installations/{installation_id}/access_tokens", self._token),
            add("GET", "/orgs/{org}/installation", self._of_organization),
            add("GET", "/repos/{owner}/{repo}/installation", self._of_repository),
        ]

    async def _app(self, _: web.Request, caller: Caller) -> web.Response:
        app = self._directory.apps[caller.app_id]
        owner = self._directory.organizations[app.owner.lower()]
        count = len(self._directory.installations_of(app.id))
        return web.json_response(self._shapes.app(app, owner, count))

    async def _installations(self, request: web.Request, caller: Caller) -> web.Response:
        page = self._gateway.page_of(request)
        found = self._directory.installations_of(caller.app_id)
        shapes = [self._shape(installation) for installation in page.cut(found)]
        headers = self._gateway.page_links(request, page, len(found))
        return web.json_response(shapes, headers=headers)

    async def _token(self, request: web.Request, caller: Caller) -> web.Response:
        number = whole_number(request.match_info["installation_id"], 0)
        installation = self._directory.installation(number)
        if installation is None or installation.app_id != caller.app_id:
            raise NotFoundError
        if number in self._directory.suspended:
            raise RefusedError(403, "This installation has been suspended")
        token, expires = self._credentials.token(installation)
        body = {
            "token": token,
            "expires_at": timestamp(expires),
            "permissions": dict(self._directory.apps[caller.app_id].permissions),
            "repository_selection": "all",
        }
        return web.json_response(body, status=201)

    async def _of_organization(self, request: web.Request, caller: Caller) -> web.Response:
        return self._answer(caller, self._directory.organization(request.match_info["org"]))

    async def _of_repository(self, request: web.Request, caller: Caller) -> web.Response:
        owner, name = request.match_info["owner"], request.match_info["repo"]
        if self._directory.repository(owner, name) is None:
            raise NotFoundError
        return self._answer(caller, self._directory.organization(owner))

    def _answer(self, caller: Caller, organization: Organization | None) -> web.Response:
        if organization is None:
            raise NotFoundError
        installation = self._directory.installations.get((caller.app_id, organization.login))
        if installation is None:
            raise NotFoundError
        return web.json_response(self._shape(installation))

    def _shape(self, installation: Installation) -> dict[str, object]:
        account = self._directory.organizations[installation.organization.lower()]
        app = self._directory.apps[installation.app_id]
        shape = self._shapes.installation(installation, account, app)
        if installation.id in self._directory.accepted:
            shape["permissions"] = dict(self._directory.accepted[installation.id])
        if (at := self._directory.suspended.get(installation.id)) is not None:
            shape["suspended_at"] = timestamp(at)
        return shape


class DeliveryRoutes:
    """The handlers for an App's own webhook and its deliveries. `webhooks` and `apps` are by App ID."""

    def __init__(
        self,
        gateway: Gateway,
        webhooks: Mapping[int, Webhook],
        apps: Mapping[int, RegisteredApp],
        clock: Clock,
    ) -> None:
        self._gateway = gateway
        self._apps = apps
        self._webhooks = webhooks
        self._clock = clock

    def routes(self) -> list[web.RouteDef]:
        """Return the routes to change the webhook, to list deliveries, to read one, and to redeliver one."""
        add = self._gateway.for_app
        one = "/app/hook/deliveries/{delivery_id}"
        return [
            add("GET", "/app/hook/config", self._show),
            add("PATCH", "/app/hook/config", self._point),
            add("GET", "/app/hook/deliveries", self._list),
            add("GET", one, self._one),
            add("POST", f"{one}/attempts", self._attempt),
        ]

    async def _show(self, _: web.Request, caller: Caller) -> web.Response:
        """Return an active webhook's configuration (REST "Get a webhook configuration for an app")."""
        app, webhook = self._apps[caller.app_id], self._webhooks[caller.app_id]
        if not app.hook_active or webhook.url is None:
            raise NotFoundError
        shown = {
            "content_type": app.hook_content_type,
            "insecure_ssl": "1" if app.hook_insecure else "0",
            "secret": "********",
            "url": webhook.url,
        }
        return web.json_response(shown)

    async def _point(self, request: web.Request, caller: Caller) -> web.Response:
        """Change an active webhook. GitHub shows none that is off, and only the App's page turns one on."""
        app, webhook = self._apps[caller.app_id], self._webhooks[caller.app_id]
        if not app.hook_active:
            raise NotFoundError
        body = await json_object(request)
        app.hook_url = body["url"]
        webhook.point(body["url"], body["secret"])
        return web.json_response({**body, "secret": "********"})

    async def _list(self, request: web.Request, caller: Caller) -> web.Response:
        size = self._gateway.page_of(request).size
        before = self._cursor(request.query.get("cursor"))
        status = request.query.get("status")
        if status not in {None, "success", "failure"}:
            raise RefusedError(422, "Invalid status")
        succeeded = None if status is None else status == "success"
        log = self._webhooks[caller.app_id].log
        found, cursor = log.page(before, size, self._clock.now(), succeeded)
        headers = {}
        if cursor is not None:
            link = self._gateway.link(request, per_page=size, cursor=f"{_CURSOR}{cursor}")
            headers["Link"] = f'<{link}>; rel="next"'
        return web.json_response([delivery.shape() for delivery in found], headers=headers)

    async def _one(self, request: web.Request, caller: Caller) -> web.Response:
        webhook, delivery = self._find(request, caller)
        headers = webhook.headers(delivery.message, delivery.message.body())
        return web.json_response(delivery.details(webhook.url, headers))

    async def _attempt(self, request: web.Request, caller: Caller) -> web.Response:
        webhook, delivery = self._find(request, caller)
        webhook.redeliver(delivery)
        return web.json_response({}, status=202)

    def _find(self, request: web.Request, caller: Caller) -> tuple[Webhook, Delivery]:
        webhook = self._webhooks[caller.app_id]
        number = whole_number(request.match_info["delivery_id"], 0)
        delivery = webhook.log.find(number, self._clock.now())
        if delivery is None:
            raise NotFoundError
        return webhook, delivery

    @staticmethod
    def _cursor(text: str | None) -> int | None:
        if text is None:
            return None
        number = whole_number(text.removeprefix(_CURSOR), 0)
        if not text.startswith(_CURSOR) or number == 0:
            raise RefusedError(400, "Invalid cursor")
        return number
