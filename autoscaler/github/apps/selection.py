"""Selects the App's installation that sends a request, and the next one if the first fails.

Tries the installation with the most headroom first. Tries the next one only if GitHub certainly did
nothing, so that two Apps never register two runners for one request.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Annotated, TypeAlias, TypeVar

import structlog
from pydantic import Field

from autoscaler.controller.ports.clock import Clock
from autoscaler.controller.ports.github import GitHubError
from autoscaler.github.apps.installations import Installation, Installations
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


class AppSelection:
    """Runs work with one of the installations on an account."""

    def __init__(
        self, api: Api, installations: Installations, budget: Budget, clock: Clock
    ) -> None:
        self._api = api
        self._installations = installations
        self._budget = budget
        self._clock = clock
        self._demoted: dict[tuple[str, str], Instant] = {}
        self._limits_read_at: dict[str, Instant] = {}
        self._flights: SingleFlight[None] = SingleFlight()

    async def at_scope(self, target: Target, request: Request, work: Work[Result]) -> Result:
        """Return the result of `work` for a configured scope. Raises as `run` and `Installations.of_scope`."""
        return await self.run(await self._installations.of_scope(target), target, request, work)

    async def at_repository(self, target: Target, request: Request, work: Work[Result]) -> Result:
        """Return the result of `work` for a repository. Raises as `run` and `Installations.of_repository`."""
        candidates = await self._installations.of_repository(target)
        return await self.run(candidates, target, request, work)

    async def installations(self, target: Target) -> tuple[Installation, ...]:
        """Return the installations on an organization or a repository, at least one. Raises as `Api.ask`."""
        if target.repository is None:
            return await self._installations.of_scope(target)
        return await self._installations.of_repository(target)

    def known(self, target: Target) -> tuple[Installation, ...]:
        """Return the installations on the account of a target that were found so far."""
        return self._installations.known(target)

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
        """Cancel requests, also those for installations. Idempotent."""
        await self._flights.close()
        await self._installations.close()

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
