"""Sends requests to GitHub's REST API: adds the token, retries reads, follows pages and redirects.

Applies the table in `outcomes` to each outcome, and raises one of the port's errors for every failure.
Repeats a request that creates or changes something only after a 401, because GitHub has then done
nothing.
"""

from collections.abc import AsyncGenerator
from typing import Protocol, TypeVar

from pydantic import BaseModel, ValidationError

from autoscaler.controller.ports.clock import Clock
from autoscaler.controller.ports.github import GitHubError, RetryLaterError
from autoscaler.controller.ports.telemetry import Telemetry
from autoscaler.github.requests.budget import delay_of, reading_of
from autoscaler.github.requests.exchange import (
    BROKEN,
    Answer,
    Effect,
    NoAnswerError,
    NotSentError,
    Request,
)
from autoscaler.github.requests.outcomes import (
    OUTAGE_DELAY,
    POLICIES,
    Action,
    Outcome,
    error_for,
    limit_of,
    outcome_of,
    summary_of,
    unusable_answer,
)
from autoscaler.github.requests.request_queue import RequestQueue
from autoscaler.github.requests.transport import Transport
from autoscaler.model.identifiers import Seconds

MAX_PAGES = 10_000

_PAUSES: tuple[Seconds, ...] = (1.0, 3.0)
_REDIRECTS = frozenset({301, 302, 307, 308})
_MAX_REDIRECTS = 3

Shape = TypeVar("Shape", bound=BaseModel)


class Caller(Protocol):
    """The identity that a request is sent with: an App, or its installation on an account."""

    @property
    def name(self) -> str:
        """The key of its rate limits: one value for each App or installation."""

    @property
    def app_id(self) -> int:
        """The App's id."""

    @property
    def account(self) -> str:
        """The account of the installation; empty for the App itself."""

    async def token(self) -> str:
        """Return a valid token. Raises GitHubError."""

    def reject_token(self, token: str) -> None:
        """Do not use this token again: GitHub answered 401 to it."""


class Api:
    """Sends requests for a caller. Raises subclasses of GitHubError only."""

    def __init__(
        self, transport: Transport, queue: RequestQueue, clock: Clock, telemetry: Telemetry
    ) -> None:
        self._transport = transport
        self._queue = queue
        self._clock = clock
        self._telemetry = telemetry

    async def ask(self, request: Request, caller: Caller) -> Answer:
        """Return a successful answer, or one with a status that the request expects.

        Sends a read up to three times, with pauses of 1 and 3 seconds. Does not wait for a rate limit.
        """
        pauses = _PAUSES if request.effect is Effect.READ else ()
        for pause in pauses:
            outcome = await self._attempt(request, caller)
            if isinstance(outcome, Answer):
                return outcome
            await self._clock.sleep(pause)
        outcome = await self._attempt(request, caller)
        if isinstance(outcome, Answer):
            return outcome
        raise outcome

    async def pages(self, request: Request, caller: Caller) -> AsyncGenerator[Answer, None]:
        """Yield every page of a list by following GitHub's links.

        Raises RetryLaterError if the links form a loop, or after 10,000 pages.
        """
        seen: set[str] = set()
        while True:
            answer = await self.ask(request, caller)
            yield answer
            url = answer.next_url
            if url is None:
                return
            if url in seen or len(seen) >= MAX_PAGES:
                text = f"{request.endpoint}: the links to the next pages never end"
                raise RetryLaterError(text, OUTAGE_DELAY)
            seen.add(url)
            request = request.at(url)

    async def _attempt(self, request: Request, caller: Caller) -> Answer | GitHubError:
        """Send once. Return the answer, or the error to raise if this was the last attempt."""
        delay, limit = OUTAGE_DELAY, None
        try:
            answer = await self._follow(request, caller)
        except NotSentError as error:
            outcome = Outcome.UNTRUSTED if error.lasting else Outcome.NOT_SENT
            detail = str(error)
        except NoAnswerError as error:
            outcome = Outcome.UNREADABLE if error.outcome == BROKEN else Outcome.UNANSWERED
            detail = str(error)
        else:
            outcome = outcome_of(request, answer)
            if outcome is Outcome.ANSWERED:
                return answer
            detail = summary_of(outcome, answer)
            delay, limit = self._delay(request, outcome, answer, caller), limit_of(answer)
        failure = error_for(request, outcome, detail, delay, limit)
        if POLICIES[outcome].action(request.effect) is Action.AGAIN:
            return failure
        raise failure

    def _delay(self, request: Request, outcome: Outcome, answer: Answer, caller: Caller) -> Seconds:
        now = self._clock.now()
        if outcome is Outcome.LIMITED:
            return self._queue.budget.backoff(caller.name, request, now)
        return delay_of(answer, now, OUTAGE_DELAY)

    async def _follow(self, request: Request, caller: Caller) -> Answer:
        # GitHub redirects requests for a renamed repository or account. Only reads follow.
        answer = await self._authorised(request, caller)
        for _ in range(_MAX_REDIRECTS):
            if request.effect is not Effect.READ or answer.status not in _REDIRECTS:
                break
            request = self._transport.redirected(request, answer)
            answer = await self._authorised(request, caller)
        return answer

    async def _authorised(self, request: Request, caller: Caller) -> Answer:
        answer = await self._send(request, caller)
        if answer.status == 401:
            # The token was revoked or has expired. GitHub did nothing, so any request may be repeated.
            answer = await self._send(request, caller)
        return answer

    async def _send(self, request: Request, caller: Caller) -> Answer:
        self._queue.check(caller.name, request)
        token = await caller.token()  # before entering the queue: it may send requests of its own
        await self._queue.enter(caller.name, request)
        answer = None
        try:
            answer = await self._transport.send(request, token)
        finally:
            self._queue.leave(caller.name, request, answer)
        if answer.status == 401:
            caller.reject_token(token)
        self._count(request, answer, caller)
        return answer

    def _count(self, request: Request, answer: Answer, caller: Caller) -> None:
        resource = self._queue.budget.resource_of(request)
        reading = reading_of(answer, resource, self._clock.now())
        self._telemetry.github_budget(
            caller.app_id,
            caller.account,
            resource,
            reading.remaining if reading is not None else None,
            reading.limit if reading is not None else None,
        )


def read_as(shape: type[Shape], request: Request, answer: Answer) -> Shape:
    """Return the answer's data as `shape`. Raises GitHubError if the data have another shape."""
    try:
        return shape.model_validate(answer.data)
    except ValidationError as error:
        # Without input and context, because the data may contain a token or a JIT configuration.
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        text = f"{answer.status} with data of an unknown shape ({where}: {first['type']})"
        raise unusable_answer(request, text) from None
