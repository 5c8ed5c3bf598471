"""Reads at GitHub what `autoscaler doctor` judges: the App, its installations, its webhook, and their limits.

Changes nothing, and caches nothing. Sources: docs.github.com, REST "GitHub Apps", "App webhooks", "Rate limit".
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field, RootModel

from autoscaler.controller.ports.clock import Clock
from autoscaler.controller.ports.telemetry import Telemetry
from autoscaler.github.apps.authentication import App, Installation
from autoscaler.github.apps.targets import Target
from autoscaler.github.requests.api import Api, read_as
from autoscaler.github.requests.budget import Budget
from autoscaler.github.requests.exchange import Answer, Request
from autoscaler.github.requests.received import Received, instant_of
from autoscaler.github.requests.request_queue import RequestQueue
from autoscaler.github.requests.transport import Transport
from autoscaler.github.runner_groups import RunnerGroups
from autoscaler.github.settings import GitHubSettings
from autoscaler.model.identifiers import Instant, Seconds
from autoscaler.model.jobs.runner_group_excess import RunnerGroup

LOOKED_AT = 100
"""The newest deliveries of a webhook that are read: one page. GitHub keeps three days."""

_UNAUTHORISED, _NOT_FOUND = 401, 404


@dataclass(frozen=True, slots=True)
class AppRefused:
    """GitHub refuses the App's JWT, with this status and message."""

    status: int
    message: str
    clock_ahead: Seconds


@dataclass(frozen=True, slots=True)
class AppFacts:
    """An App as GitHub shows it. `clock_ahead` is by how many seconds this host's clock is ahead."""

    page: str
    permissions: Mapping[str, str]
    events: Sequence[str]
    clock_ahead: Seconds


@dataclass(frozen=True, slots=True)
class InstallationFacts:
    """An installation: what its owner has accepted, the page to change it, and whether it is suspended."""

    id: int
    page: str
    permissions: Mapping[str, str]
    events: Sequence[str]
    suspended: bool


@dataclass(frozen=True, slots=True)
class HookFacts:
    """The App's webhook. `checks_certificate`: GitHub refuses a certificate that it does not trust."""

    url: str
    content_type: str
    checks_certificate: bool
    has_secret: bool


@dataclass(frozen=True, slots=True)
class DeliveryFacts:
    """One attempt to deliver an event. `status` is the receiver's, or 0 if it gave none."""

    at: Instant
    event: str
    status: int


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """The version of an Enterprise Server, and the versions of GitHub's API; None if it names none."""

    version: str | None
    api_versions: Sequence[str] | None


@dataclass(frozen=True, slots=True)
class LimitFacts:
    """The requests of an hour, and those that are left in this one."""

    limit: int
    remaining: int


class _App(Received):
    html_url: str
    permissions: Mapping[str, str]
    events: Sequence[str]


class _Installation(Received):
    id: Annotated[int, Field(gt=0)]
    html_url: str
    permissions: Mapping[str, str]
    events: Sequence[str]
    suspended_at: str | None = None


class _Hook(Received):
    url: str | None = None
    content_type: str | None = None
    insecure_ssl: str | int | None = None
    secret: Annotated[str | None, Field(repr=False)] = None


class _Delivery(Received):
    delivered_at: str
    event: str | None = None
    status_code: int | None = None


class _Deliveries(RootModel[list[_Delivery]]):
    pass


class _Meta(Received):
    installed_version: str | None = None


class _ApiVersions(RootModel[list[str]]):
    pass


class _Bucket(Received):
    limit: int
    remaining: int


class _Resources(Received):
    core: _Bucket


class _Limits(Received):
    resources: _Resources


class Inspection:
    """The questions about the Apps of one fleet. The owner must await `close`.

    Raises ValueError if a key cannot be used, and the port's errors from every question.
    """

    def __init__(self, settings: GitHubSettings, clock: Clock, telemetry: Telemetry) -> None:
        self._transport = Transport(settings, clock, telemetry)
        queue = RequestQueue(Budget(settings.points_per_minute), clock, settings.concurrency)
        self._api = Api(self._transport, queue, clock, telemetry)
        self._groups = RunnerGroups(self._api, clock)
        self._clock = clock
        self._apps = {key.id: App(key, clock.now) for key in settings.apps}

    async def close(self) -> None:
        """Close all connections. Idempotent."""
        await self._groups.close()
        await self._transport.close()

    async def app(self, app_id: int) -> AppFacts | AppRefused:
        """Return the App, or how GitHub refuses its key."""
        request = Request("GET", "/app", expected=frozenset({_UNAUTHORISED, _NOT_FOUND}))
        answer = await self._api.ask(request, self._apps[app_id])
        if not answer.ok:
            return AppRefused(answer.status, answer.message, answer.clock_ahead)
        shown = read_as(_App, request, answer)
        return AppFacts(shown.html_url, shown.permissions, shown.events, answer.clock_ahead)

    async def server(self, app_id: int) -> ServerFacts:
        """Return the versions of GitHub and of its API (docs.github.com, REST "Meta", "API versions")."""
        request, answer = await self._of_app(app_id, "/meta", {})
        version = read_as(_Meta, request, answer).installed_version if answer.ok else None
        request, answer = await self._of_app(app_id, "/versions", {})
        known = read_as(_ApiVersions, request, answer).root if answer.ok else None
        return ServerFacts(version, known)

    async def installation(self, app_id: int, target: Target) -> InstallationFacts | None:
        """Return the App's installation on an organization or a repository; None if there is none."""
        request, answer = await self._of_app(
            app_id, f"{target.route}/installation", target.variables
        )
        if not answer.ok:
            return None
        shown = read_as(_Installation, request, answer)
        return InstallationFacts(
            shown.id,
            shown.html_url,
            shown.permissions,
            shown.events,
            shown.suspended_at is not None,
        )

    async def runner_group(
        self, app_id: int, installation: int, target: Target, name: str
    ) -> RunnerGroup:
        """Return an organization's runner group. Raises NotShownError if the App sees none of this name."""
        return await self._groups.group(target, name, self._caller(app_id, installation, target))

    async def limits(self, app_id: int, installation: int, target: Target) -> LimitFacts | None:
        """Return the rate limit of an installation; None on an Enterprise Server without limits."""
        request = Request("GET", "/rate_limit", expected=frozenset({_NOT_FOUND}))
        answer = await self._api.ask(request, self._caller(app_id, installation, target))
        if not answer.ok:
            return None
        core = read_as(_Limits, request, answer).resources.core
        return LimitFacts(core.limit, core.remaining)

    async def hook(self, app_id: int) -> HookFacts | None:
        """Return the App's webhook; None if it is off."""
        request, answer = await self._of_app(app_id, "/app/hook/config", {})
        if not answer.ok:
            return None
        shown = read_as(_Hook, request, answer)
        return HookFacts(
            shown.url or "",
            shown.content_type or "",
            str(shown.insecure_ssl or "0") == "0",
            bool(shown.secret),
        )

    async def deliveries(self, app_id: int) -> tuple[DeliveryFacts, ...]:
        """Return the newest deliveries of the App's webhook, newest first."""
        route, variables = "/app/hook/deliveries{?per_page}", {"per_page": LOOKED_AT}
        request, answer = await self._of_app(app_id, route, variables)
        if not answer.ok:
            return ()
        return tuple(
            DeliveryFacts(
                instant_of(one.delivered_at) or 0.0, one.event or "", one.status_code or 0
            )
            for one in read_as(_Deliveries, request, answer).root
        )

    def _caller(self, app_id: int, installation: int, target: Target) -> Installation:
        app = self._apps[app_id]
        return Installation(app, target.account, installation, self._api, self._clock)

    async def _of_app(
        self, app_id: int, route: str, variables: Mapping[str, str | int]
    ) -> tuple[Request, Answer]:
        request = Request("GET", route, variables, expected=frozenset({_NOT_FOUND}))
        return request, await self._api.ask(request, self._apps[app_id])
