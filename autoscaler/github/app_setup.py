"""What `autoscaler init` asks of GitHub: to create an App from a manifest, and to prepare its organization.

Sources: docs.github.com, "Registering a GitHub App from a manifest"; REST "GitHub Apps", "App webhooks" and
"Self-hosted runner groups".
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import aiohttp
from pydantic import Field, ValidationError

from autoscaler.controller.ports.clock import Clock
from autoscaler.controller.ports.github import OperatorError
from autoscaler.controller.ports.telemetry import Telemetry
from autoscaler.github.apps.authentication import App, Installation
from autoscaler.github.apps.targets import Target
from autoscaler.github.requests.api import Api, Caller, read_as
from autoscaler.github.requests.budget import Budget
from autoscaler.github.requests.exchange import Answer, Effect, Request
from autoscaler.github.requests.received import Received
from autoscaler.github.requests.request_queue import RequestQueue
from autoscaler.github.requests.transport import Transport, proxy_for
from autoscaler.github.settings import GitHubSettings
from autoscaler.model.identifiers import Seconds

MAX_CONVERSION = 64 * 1024
"""Bytes of the answer with a new App: a key of 2048 bits has 1.7 kB."""

_PATIENCE: Seconds = 30.0
_CODE = re.compile(r"[A-Za-z0-9_-]{1,128}")
_CREATED, _NOT_FOUND = 201, 404


class AppNotCreatedError(Exception):
    """GitHub did not send the App; the text says why and what to do."""


class _Conversion(Received):
    id: Annotated[int, Field(gt=0)]
    html_url: str
    pem: Annotated[str, Field(min_length=1, max_length=16_384, repr=False)]
    webhook_secret: Annotated[str | None, Field(repr=False)] = None


@dataclass(frozen=True, slots=True)
class NewApp:
    """An App that was just created. GitHub shows its key and its webhook secret only this once."""

    id: int
    page: str
    private_key: str = field(repr=False)
    webhook_secret: str | None = field(repr=False)


class _App(Received):
    html_url: str
    slug: str
    permissions: Mapping[str, str]
    events: Sequence[str]


class _Found(Received):
    id: Annotated[int, Field(gt=0)]


class _Group(Received):
    name: str


class _Groups(Received):
    runner_groups: list[_Group]


@dataclass(frozen=True, slots=True)
class AppView:
    """An App as GitHub shows it: its page, the last part of its address, permissions and events."""

    page: str
    slug: str
    permissions: Mapping[str, str]
    events: Sequence[str]


async def convert(api_url: str, code: str) -> NewApp:
    """Exchange a manifest's code for its App. Works once, within an hour. Raises AppNotCreatedError."""
    if _CODE.fullmatch(code) is None:
        raise AppNotCreatedError("the code in the address is not one of GitHub's; begin again")
    url = f"{api_url.rstrip('/')}/app-manifests/{code}/conversions"
    headers = {"accept": "application/vnd.github+json", "user-agent": "gpu-runner-autoscaler"}
    timeout = aiohttp.ClientTimeout(total=_PATIENCE)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout, headers=headers) as session,
            session.post(url, proxy=proxy_for(api_url), allow_redirects=False) as answer,
        ):
            body = await answer.content.read(MAX_CONVERSION)
            status = answer.status
    except (aiohttp.ClientError, TimeoutError) as error:
        raise AppNotCreatedError(
            f"GitHub did not answer ({type(error).__name__}), so that the new App's key is lost: delete the "
            "App at GitHub, and begin again"
        ) from None
    if status == _NOT_FOUND:
        raise AppNotCreatedError(
            "GitHub does not know the code: it was used before, or an hour has passed since. Delete the App "
            "at GitHub if it exists, and begin again"
        )
    if status != _CREATED:
        raise AppNotCreatedError(
            f"GitHub answered {status} instead of the App: delete it at GitHub if it exists, and begin again"
        )
    try:
        made = _Conversion.model_validate_json(body)
    except ValidationError:
        raise AppNotCreatedError(
            "GitHub's answer is not an App: delete it at GitHub if it exists, and begin again"
        ) from None
    return NewApp(made.id, made.html_url, made.pem, made.webhook_secret)


class AppSetup:
    """One App's requests before a controller uses it. The owner must await `close`.

    Raises ValueError if the key cannot be used, and the port's errors from every request.
    """

    def __init__(self, settings: GitHubSettings, clock: Clock, telemetry: Telemetry) -> None:
        self._transport = Transport(settings, clock, telemetry)
        queue = RequestQueue(Budget(settings.points_per_minute), clock, settings.concurrency)
        self._api = Api(self._transport, queue, clock, telemetry)
        self._app = App(settings.apps[0], clock.now)
        self._clock = clock

    async def close(self) -> None:
        """Close all connections. Idempotent."""
        await self._transport.close()

    async def app(self) -> AppView:
        """Return the App as GitHub shows it."""
        request = Request("GET", "/app")
        shown = read_as(_App, request, await self._api.ask(request, self._app))
        return AppView(shown.html_url, shown.slug, shown.permissions, tuple(shown.events))

    async def installation(self, target: Target) -> Installation | None:
        """Return the App's installation on an organization or a repository, or None if there is none yet."""
        request = Request(
            "GET",
            f"{target.route}/installation",
            target.variables,
            expected=frozenset({_NOT_FOUND}),
        )
        answer = await self._api.ask(request, self._app)
        if not answer.ok:
            return None
        number = read_as(_Found, request, answer).id
        return Installation(self._app, target.account, number, self._api, self._clock)

    async def has_group(self, caller: Caller, organization: str, name: str) -> bool:
        """Return whether an organization has a runner group with this name."""
        request = Request(
            "GET",
            "/orgs/{org}/actions/runner-groups{?per_page}",
            {"org": organization, "per_page": 100},
        )
        async for answer in self._api.pages(request, caller):
            for group in read_as(_Groups, request, answer).runner_groups:
                if group.name.lower() == name.lower():
                    return True
        return False

    async def create_group(
        self, caller: Caller, organization: str, name: str, repositories: Sequence[str]
    ) -> None:
        """Create a runner group for these repositories (`owner/name`), and for no public ones."""
        ids = [await self._repository(caller, one) for one in repositories]
        body = {
            "name": name,
            "visibility": "selected",
            "selected_repository_ids": ids,
            "allows_public_repositories": False,
        }
        route = "/orgs/{org}/actions/runner-groups"
        await self._write("POST", route, {"org": organization}, body, caller)

    async def point_webhook(self, url: str, secret: str) -> bool:
        """Set the webhook's URL and secret. Return False if the App has no active webhook.

        GitHub answers 404 for an App whose webhook is off, and only the App's page can turn it on: the API
        has no such field (REST "Update a webhook configuration for an app").
        """
        body = {"url": url, "content_type": "json", "insecure_ssl": "0", "secret": secret}
        answer = await self._write("PATCH", "/app/hook/config", {}, body, self._app)
        return answer.ok

    async def _repository(self, caller: Caller, repository: str) -> int:
        owner, _, name = repository.partition("/")
        request = Request(
            "GET",
            "/repos/{owner}/{repo}",
            {"owner": owner, "repo": name},
            expected=frozenset({_NOT_FOUND}),
        )
        answer = await self._api.ask(request, caller)
        if not answer.ok:
            raise OperatorError(f"the App sees no repository {repository}: correct its name")
        return read_as(_Found, request, answer).id

    async def _write(
        self, method: str, route: str, variables: Mapping[str, str], body: Any, caller: Caller
    ) -> Answer:
        expected = frozenset({_NOT_FOUND}) if method == "PATCH" else frozenset[int]()
        request = Request(
            method, route, variables, body=body, effect=Effect.WRITE, expected=expected
        )
        return await self._api.ask(request, caller)
