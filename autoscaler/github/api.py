"""GitHub's REST API as a caller uses it: authorised, repeated where that is harmless, in pages.

Decides what may be asked again and when to give up; every failure leaves as one of the port's
errors. Never repeats a request that makes or changes something, save after a 401, which says
that nothing was done.
"""

from collections.abc import AsyncGenerator
from typing import Protocol, TypeVar

from pydantic import BaseModel, ValidationError

from autoscaler.controller.ports.clock import Clock
from autoscaler.controller.ports.github import GitHubError, OperatorError, RetryLaterError
from autoscaler.github.exchange import Answer, Effect, NoAnswerError, NotSentError, Request
from autoscaler.github.refusals import OUTAGE_DELAY, Holds, is_outage, refusal, unanswered
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

    async def token(self) -> str:
        """A token that GitHub accepts now. Raises GitHubError."""

    def refused(self, token: str) -> None:
        """GitHub answered 401 to this token: the next one must be another."""


class Api:
    """Asks GitHub on a caller's behalf. Raises GitHubError's subclasses and nothing else."""

    def __init__(self, transport: Transport, clock: Clock) -> None:
        self._transport = transport
        self._clock = clock
        self._holds = Holds()

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
        try:
            answer = await self._follow(request, caller)
        except NotSentError as error:
            text = f"{request.endpoint}: {error}"
            if error.lasting:
                raise OperatorError(text) from None
            return RetryLaterError(text, OUTAGE_DELAY)
        except NoAnswerError as error:
            return unanswered(request, f"{request.endpoint}: {error}")
        if answer.ok or (answer.status in request.expected and answer.genuine):
            return answer
        refused = refusal(request, answer, self._clock.now())
        if is_outage(answer):
            return refused
        raise refused

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
        self._holds.check(caller.name, request, self._clock.now())
        token = await caller.token()
        answer = await self._transport.send(request, token)
        self._holds.note(caller.name, request, answer, self._clock.now())
        if answer.status == 401:
            caller.refused(token)
        return answer


def read_as(shape: type[Shape], request: Request, answer: Answer) -> Shape:
    """The answer's data in this shape; an answer of another shape is no answer."""
    try:
        return shape.model_validate(answer.data)
    except ValidationError as error:
        # Neither input nor context: the data may hold a token or a JIT configuration.
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        text = f"{request.endpoint}: {answer.status} of an unknown shape ({where} {first['type']})"
        raise unanswered(request, text) from None
