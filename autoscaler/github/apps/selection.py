"""Selects the App's installation that sends a request, and the next one if the first fails.

Tries the installation with the most headroom first. Tries the next one only if GitHub certainly did
nothing, so that two Apps never register two runners for one request. Leaves out Apps without an installation on
the account, and looks for them again every five minutes. An error of one App does not affect the others.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Annotated, TypeAlias, TypeVar

import structlog
from pydantic import Field

from autoscaler.controller.ports.clock import Clock
from autoscaler.controller.ports.github import GitHubError, OperatorError
from autoscaler.github.apps.authentication import App, Installation
from autoscaler.github.apps.targets import Target
from autoscaler.github.requests.api import Api, read_as
from autoscaler.github.requests.budget import CORE, REGISTRATION, Budget, Reading
from autoscaler.github.requests.exchange import Answer, Effect, Importance, Request
from autoscaler.github.requests.outcomes import (
    LimitError,
    NotAllowedError,
    NotShownError,
    error_of_all,
    not_shown,
)
from autoscaler.github.requests.received import Received
from autoscaler.github.requests.single_flight import SingleFlight
from autoscaler.model.identifiers import Instant, Seconds

_DEMOTED_FOR: Seconds = 60.0
"""How long an App that failed at a target is tried after the other Apps there."""

_LOOK_AGAIN: Seconds = 300.0
"""Seconds until the controller looks again for an installation that it did not find."""

_HOUR: Seconds = 3600.0

_LIMITS_TIMEOUT: Seconds = 1.0
"""How long a registration waits for `/rate_limit`, in real time."""

Result = TypeVar("Result")
Work: TypeAlias = Callable[[Installation], Awaitable[Result]]
_log = structlog.get_logger(__name__)


class _Bucket(Received):
    limit: Annotated[int, Field(ge=0)]
    remaining: Annotated[int, Field(ge=0)]
    reset: Annotated[int, Field(ge=0)]


class _Resources(Received):
    core: _Bucket | None = None
    actions_runner_registration: _Bucket | None = None


class _RateLimits(Received):
    resources: _Resources


class _InstallationAnswer(Received):
    id: Annotated[int, Field(gt=0)]


class AppSelection:
    """Runs work with one of the installations on an account."""

    def __init__(
        self, api: Api, apps: Sequence[App], budget: Budget, clock: Clock, token_clock: Clock
    ) -> None:
        """`token_clock` is the clock for the lifetime of tokens."""
        self._api = api
        self._apps = apps
        self._budget = budget
        self._clock = clock
        self._token_clock = token_clock
        self._known: dict[tuple[int, str], Installation] = {}
        self._looked_at: dict[tuple[int, str], Instant] = {}
        self._lookups: SingleFlight[bool] = SingleFlight()
        self._demoted: dict[tuple[str, str], Instant] = {}
        self._limits_read_at: dict[str, Instant] = {}
        self._flights: SingleFlight[None] = SingleFlight()

    async def at_scope(self, target: Target, request: Request, work: Work[Result]) -> Result:
        """Return the result of `work` for a configured scope. Raises as `run` and `of_scope`."""
        return await self.run(await self.of_scope(target), target, request, work)

    async def at_repository(self, target: Target, request: Request, work: Work[Result]) -> Result:
        """Return the result of `work` for a repository. Raises as `run` and `of_repository`."""
        return await self.run(await self.of_repository(target), target, request, work)

    async def installations(self, target: Target) -> tuple[Installation, ...]:
        """Return the installations on an organization or a repository, at least one. Raises as `Api.ask`."""
        if target.repository is None:
            return await self.of_scope(target)
        return await self.of_repository(target)

    async def of_scope(self, target: Target) -> tuple[Installation, ...]:
        """Return the installations on a configured scope, at least one, after looking for every App.

        Raises OperatorError if no App is installed, and as `Api.ask` if every request fails.
        """
        place = str(target).lower()
        missing = [app for app in self._apps if self._live(app, target) is None]
        never = [app for app in missing if (app.app_id, place) not in self._looked_at]
        if never or len(missing) == len(self._apps):
            return await self._find(target, missing)
        for app in missing:
            if self._token_clock.now() >= self._looked_at[app.app_id, place] + _LOOK_AGAIN:
                # In the background, because other installations can be used meanwhile.
                self._start(app, target)
        return self.known(target)

    async def of_repository(self, target: Target) -> tuple[Installation, ...]:
        """Return the installations on the account of a repository. Raises as `of_scope`.

        Sends no request if one is known, because an installation usually covers the whole account.
        """
        return self.known(target) or await self._find(target, self._apps)

    def known(self, target: Target) -> tuple[Installation, ...]:
        """Return the installations on the account of a target that were found so far."""
        found = (self._live(app, target) for app in self._apps)
        return tuple(installation for installation in found if installation is not None)

    async def shown(self, target: Target, request: Request) -> Answer:
        """Return the answer about an object in a repository, of an App that may see it.

        Raises NotShownError if every App gets a 404, and as `run`.
        """

        async def shown_to(caller: Installation) -> Answer:
            answer = await self._api.ask(request, caller)
            if answer.status == 404:
                raise not_shown(request, answer)
            return answer

        return await self.at_repository(target, request, shown_to)

    async def run(
        self,
        candidates: Sequence[Installation],
        target: Target,
        request: Request,
        work: Work[Result],
    ) -> Result:
        """Return the result of `work` for the first candidate that can do it. Raises as `work`.

        `request` is the main request of `work`. Its headroom decides the order of the candidates.
        """
        if len(candidates) > 1 and request.effect is Effect.REGISTER:
            await self._read_limits(candidates, target, request)
        errors: list[GitHubError] = []
        for installation in self._ranked(candidates, target, request):
            try:
                await installation.token()
            except GitHubError as error:
                self._demote(installation, target, error)
                errors.append(error)
                continue
            try:
                return await work(installation)
            except (LimitError, NotShownError) as error:
                errors.append(error)
            except NotAllowedError as error:
                self._demote(installation, target, error)
                errors.append(error)
        raise error_of_all(errors)

    async def close(self) -> None:
        """Cancel requests. Idempotent."""
        await self._flights.close()
        await self._lookups.close()
        for installation in self._known.values():
            await installation.close()

    def _live(self, app: App, target: Target) -> Installation | None:
        known = self._known.get((app.app_id, target.account))
        return known if known is not None and not known.uninstalled else None

    async def _find(self, target: Target, apps: Sequence[App]) -> tuple[Installation, ...]:
        flights = [asyncio.shield(self._start(app, target)) for app in apps]
        outcomes = await asyncio.gather(*flights, return_exceptions=True)
        if found := self.known(target):
            return found
        errors = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        if unlisted := [error for error in errors if not isinstance(error, GitHubError)]:
            raise unlisted[0]
        if errors:
            raise error_of_all([error for error in errors if isinstance(error, GitHubError)])
        text = f"no configured App is installed on {target}; install one there"
        if target.repository is not None:
            text += ", unless the repository was deleted or renamed: GitHub answers 404 for both"
        raise OperatorError(text)

    def _start(self, app: App, target: Target) -> "asyncio.Task[bool]":
        place = str(target).lower()
        return self._lookups.start(f"{app.app_id} {place}", lambda: self._look(app, target, place))

    async def _look(self, app: App, target: Target, place: str) -> bool:
        request = Request(
            "GET",
            f"{target.route}/installation",
            target.variables,
            importance=Importance.REGISTER,
            expected=frozenset({404}),
        )
        try:
            answer = await self._api.ask(request, app)
            found = read_as(_InstallationAnswer, request, answer) if answer.ok else None
        except GitHubError as error:
            _log.warning(
                "installation_lookup_failed", app=app.app_id, scope=place, error=str(error)
            )
            raise
        finally:
            self._looked_at[app.app_id, place] = self._token_clock.now()
        if found is not None:
            installation = Installation(app, target.account, found.id, self._api, self._token_clock)
            self._known[app.app_id, target.account] = installation
        return found is not None

    def _ranked(
        self, candidates: Sequence[Installation], target: Target, request: Request
    ) -> list[Installation]:
        now = self._clock.now()

        def rank(one: Installation) -> tuple[bool, float, int]:
            demoted = self._demoted.get((one.name, str(target)), now) > now
            headroom = self._budget.headroom(one.name, request, now)
            return demoted, -headroom, self._budget.spent(one.name, request, now)

        return sorted(candidates, key=rank)

    def _demote(self, installation: Installation, target: Target, error: GitHubError) -> None:
        now = self._clock.now()
        _log.warning("app_failing", app=installation.name, scope=str(target), error=str(error))
        self._demoted = {key: until for key, until in self._demoted.items() if until > now}
        self._demoted[installation.name, str(target)] = now + _DEMOTED_FOR

    async def _read_limits(
        self, candidates: Sequence[Installation], target: Target, register: Request
    ) -> None:
        """Read the candidates' limits for registrations, at most once an hour and for a second.

        `/rate_limit` does not count against a limit.
        """
        now = self._clock.now()
        reading: dict[asyncio.Task[None], str] = {}
        for one in candidates:
            recent = self._limits_read_at.get(one.name, -_HOUR) + _HOUR > now
            if not recent and not self._budget.has_reading(one.name, register, now):
                read = partial(self._read_limits_of, one, target)
                reading[self._flights.start(one.name, read)] = one.name
        if not reading:
            return
        done, late = await asyncio.wait(reading, timeout=_LIMITS_TIMEOUT)
        for task in late:
            self._limits_read_at[reading[task]] = self._clock.now()
        for task in done:
            task.result()

    async def _read_limits_of(self, installation: Installation, target: Target) -> None:
        request = Request(
            # An Enterprise Server without limits answers 404.
            "GET",
            "/rate_limit",
            importance=Importance.REGISTER,
            expected=frozenset({404}),
        )
        try:
            answer = await self._api.ask(request, installation)
            if answer.ok:
                self._record(installation.name, read_as(_RateLimits, request, answer).resources)
        except GitHubError as error:
            self._demote(installation, target, error)
        finally:
            self._limits_read_at[installation.name] = self._clock.now()

    def _record(self, name: str, resources: _Resources) -> None:
        now = self._clock.now()
        for resource, bucket in (
            (CORE, resources.core),
            (REGISTRATION, resources.actions_runner_registration),
        ):
            if bucket is not None:
                reset_at = min(float(bucket.reset), now + _HOUR)
                reading = Reading(resource, bucket.limit, bucket.remaining, reset_at)
                self._budget.record(name, reading, now)
