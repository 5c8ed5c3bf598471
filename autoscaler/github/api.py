"""GitHub's REST API as a caller uses it: authorised, repeated where that is harmless, in pages.

Carries out what `policies` says: what is asked again, and when to give up; every failure leaves
as one of the port's errors. Never repeats a request that makes or changes something, save after
a 401, which says that nothing was done.
"""

from collections.abc import AsyncGenerator
from typing import Protocol, TypeVar

from pydantic import BaseModel, ValidationError

from autoscaler.controller.ports.clock import Clock
from autoscaler.controller.ports.github import GitHubError, RetryLaterError
from autoscaler.controller.ports.telemetry import Telemetry
from autoscaler.github.budget import delay_of, reading_of
from autoscaler.github.exchange import BROKEN, Answer, Effect, NoAnswerError, NotSentError, Request
from autoscaler.github.gate import Gate
from autoscaler.github.policies import POLICIES, Action, Outcome, outcome_of
from autoscaler.github.refusals import OUTAGE_DELAY, refusal, unanswered, words_of
from autoscaler.github.transport import Transport
from autoscaler.model.identifiers import Seconds

MAX_PAGES = 10_000

_PAUSES: tuple[Seconds, ...] = (1.0, 3.0)
_REDIRECTS = frozenset({301, 302, 307, 308})
_MAX_REDIRECTS = 3

Shape = TypeVar("Shape", bound=BaseModel)


class Caller(Protocol):
    """Somebody GitHub knows: an App, or its installation on an account."""

    @property
    def name(self) -> str:
        """Whose limits count: one value for each App or installation."""

    @property
    def app_id(self) -> int:
        """The App."""

    @property
    def account(self) -> str:
        """Where it is installed; empty for the App itself."""

    async def token(self) -> str:
        """A token that GitHub accepts now. Raises GitHubError."""

    def refused(self, token: str) -> None:
        """GitHub answered 401 to this token: the next one must be another."""


class Api:
    """Asks GitHub on a caller's behalf. Raises GitHubError's subclasses and nothing else."""

    def __init__(
        self, transport: Transport, gate: Gate, clock: Clock, telemetry: Telemetry
    ) -> None:
        self._transport = transport
        self._gate = gate
        self._clock = clock
        self._telemetry = telemetry

    async def ask(self, request: Request, caller: Caller) -> Answer:
        """A good answer, or one of the statuses that the request expects.

        Questions are asked three times over some seconds when no answer comes; limits are never
        waited out here.
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
        """Every page of a list, as GitHub links them. RetryLaterError if that never ends."""
        seen: set[str] = set()
        while True:
            answer = await self.ask(request, caller)
            yield answer
            url = answer.next_url
            if url is None:
                return
            if url in seen or len(seen) >= MAX_PAGES:
                raise RetryLaterError(f"{request.endpoint}: pages without end", OUTAGE_DELAY)
            seen.add(url)
            request = request.at(url)

    async def _attempt(self, request: Request, caller: Caller) -> Answer | GitHubError:
        """An answer to return, or the error to raise once there are no attempts left."""
        delay = OUTAGE_DELAY
        try:
            answer = await self._follow(request, caller)
        except NotSentError as error:
            outcome = Outcome.BARRED if error.lasting else Outcome.NOT_SENT
            words = str(error)
        except NoAnswerError as error:
            outcome = Outcome.UNREADABLE if error.outcome == BROKEN else Outcome.UNANSWERED
            words = str(error)
        else:
            outcome = outcome_of(request, answer)
            if outcome is Outcome.ANSWERED:
                return answer
            words = words_of(outcome, answer)
            delay = self._delay(request, outcome, answer, caller)
        refused = refusal(request, outcome, words, delay)
        if POLICIES[outcome].action(request.effect) is Action.AGAIN:
            return refused
        raise refused

    def _delay(self, request: Request, outcome: Outcome, answer: Answer, caller: Caller) -> Seconds:
        now = self._clock.now()
        if outcome is Outcome.LIMITED:
            return self._gate.budget.held(caller.name, request, now)
        return delay_of(answer, now, OUTAGE_DELAY)

    async def _follow(self, request: Request, caller: Caller) -> Answer:
        # A renamed repository or account answers with its new place, for questions only.
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
            # Revoked or run out; nothing was done, so even a mint may go once more.
            answer = await self._send(request, caller)
        return answer

    async def _send(self, request: Request, caller: Caller) -> Answer:
        self._gate.check(caller.name, request)
        token = await caller.token()  # before the gate: it has requests of its own
        await self._gate.enter(caller.name, request)
        answer = None
        try:
            answer = await self._transport.send(request, token)
        finally:
            self._gate.leave(caller.name, request, answer)
        if answer.status == 401:
            caller.refused(token)
        self._count(request, answer, caller)
        return answer

    def _count(self, request: Request, answer: Answer, caller: Caller) -> None:
        resource = self._gate.budget.resource_of(request)
        told = reading_of(answer, resource, self._clock.now())
        self._telemetry.github_budget(
            caller.app_id,
            caller.account,
            resource,
            told.remaining if told is not None else None,
            told.limit if told is not None else None,
        )


def read_as(shape: type[Shape], request: Request, answer: Answer) -> Shape:
    """The answer's data in this shape; an answer of another shape is no answer."""
    try:
        return shape.model_validate(answer.data)
    except ValidationError as error:
        # Neither input nor context: the data may hold a token or a JIT configuration.
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        text = f"{answer.status} of an unknown shape ({where} {first['type']})"
        raise unanswered(request, text) from None
