"""Which of an account's installations carries a request, and who takes over where it cannot.

The one with the most room in its budget goes first. Work moves on only where an answer, or none
having been asked for, says that nothing was done: a mint is never sent twice.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Annotated, TypeVar

import structlog
from pydantic import Field

from autoscaler.controller.ports.clock import Clock
from autoscaler.controller.ports.github import GitHubError
from autoscaler.github.api import Api, read_as
from autoscaler.github.app_auth import Installation
from autoscaler.github.budget import CORE, REGISTRATION, Budget, Reading
from autoscaler.github.exchange import Effect, Importance, Request
from autoscaler.github.received import Received
from autoscaler.github.refusals import LimitError, NotAllowedError, NotShownError, gravest
from autoscaler.github.single_flight import SingleFlight
from autoscaler.github.targets import Target
from autoscaler.model.identifiers import Instant, Seconds

_BENCHED: Seconds = 60.0
"""How long an App that failed at a target comes after the others there."""

_HOUR: Seconds = 3600.0

_TOLD_WITHIN: Seconds = 1.0
"""How long a registration waits for a word on what is left for it, by the system's time."""

Result = TypeVar("Result")
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


class Sharing:
    """Carries work out by one App or another."""

    def __init__(self, api: Api, budget: Budget, clock: Clock) -> None:
        self._api = api
        self._budget = budget
        self._clock = clock
        self._benched: dict[tuple[str, str], Instant] = {}
        self._asked: dict[str, Instant] = {}
        self._flights: SingleFlight[None] = SingleFlight()

    async def carry(
        self,
        candidates: Sequence[Installation],
        target: Target,
        request: Request,
        work: Callable[[Installation], Awaitable[Result]],
    ) -> Result:
        """What `work` returns for the first candidate that can do it. Raises as `work`.

        `request` is what the work is mainly made of: by it the candidates are compared.
        """
        if len(candidates) > 1 and request.effect is Effect.REGISTER:
            await self._learn(candidates, target, request)
        errors: list[GitHubError] = []
        for installation in self._ranked(candidates, target, request):
            try:
                await installation.token()
            except GitHubError as error:
                self._bench(installation, target, error)
                errors.append(error)
                continue
            try:
                return await work(installation)
            except (LimitError, NotShownError) as error:
                errors.append(error)
            except NotAllowedError as error:
                self._bench(installation, target, error)
                errors.append(error)
        raise gravest(errors)

    async def close(self) -> None:
        """Stop asking. Idempotent."""
        await self._flights.close()

    def _ranked(
        self, candidates: Sequence[Installation], target: Target, request: Request
    ) -> list[Installation]:
        now = self._clock.now()

        def rank(one: Installation) -> tuple[bool, float, int]:
            benched = self._benched.get((one.name, str(target)), now) > now
            room = self._budget.room(one.name, request, now)
            return benched, -room, self._budget.spent(one.name, request, now)

        return sorted(candidates, key=rank)

    def _bench(self, installation: Installation, target: Target, error: GitHubError) -> None:
        now = self._clock.now()
        _log.warning("app_failing", app=installation.name, scope=str(target), error=str(error))
        self._benched = {key: until for key, until in self._benched.items() if until > now}
        self._benched[installation.name, str(target)] = now + _BENCHED

    async def _learn(
        self, candidates: Sequence[Installation], target: Target, register: Request
    ) -> None:
        """Have GitHub tell what is left for registering, once an hour at most. It costs nothing.

        What has not been told within a second is not waited for any more.
        """
        now = self._clock.now()
        asking: dict[asyncio.Task[None], str] = {}
        for one in candidates:
            asked = self._asked.get(one.name, -_HOUR) + _HOUR > now
            if not asked and not self._budget.knows(one.name, register, now):
                ask = partial(self._ask, one, target)
                asking[self._flights.start(one.name, ask)] = one.name
        if not asking:
            return
        done, late = await asyncio.wait(asking, timeout=_TOLD_WITHIN)
        for task in late:
            self._asked[asking[task]] = self._clock.now()
        for task in done:
            task.result()

    async def _ask(self, installation: Installation, target: Target) -> None:
        request = Request(
            # 404 where an Enterprise Server has no limits.
            "GET",
            "/rate_limit",
            importance=Importance.REGISTER,
            expected=frozenset({404}),
        )
        try:
            answer = await self._api.ask(request, installation)
            if answer.ok:
                self._take_in(installation.name, read_as(_RateLimits, request, answer).resources)
        except GitHubError as error:
            self._bench(installation, target, error)
        finally:
            self._asked[installation.name] = self._clock.now()

    def _take_in(self, name: str, resources: _Resources) -> None:
        now = self._clock.now()
        for resource, bucket in (
            (CORE, resources.core),
            (REGISTRATION, resources.actions_runner_registration),
        ):
            if bucket is not None:
                reset_at = min(float(bucket.reset), now + _HOUR)
                reading = Reading(resource, bucket.limit, bucket.remaining, reset_at)
                self._budget.learn(name, reading, now)
