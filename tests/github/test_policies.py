"""Each outcome has its policy for reads, changes and registrations, and the documents show the same."""

import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from autoscaler.controller.ports.github import (
    GitHubError,
    OperatorError,
    RegistrationOutcomeUnknownError,
    RetryLaterError,
)
from autoscaler.github.client import GitHubClient
from autoscaler.github.requests.budget import RESERVES
from autoscaler.github.requests.exchange import Answer, Effect, Request
from autoscaler.github.requests.outcomes import (
    POLICIES,
    Action,
    LimitError,
    NotAllowedError,
    Outcome,
    outcome_of,
)
from autoscaler.github.requests.transport import MAX_ANSWER
from autoscaler.model.identifiers import JobId, RunnerName
from tests.github.conftest import World
from tests.github.doubles import START
from tests.github.faults import fault, hang


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (299, Outcome.ANSWERED),
        (300, Outcome.MOVED),
        (399, Outcome.MOVED),
        (400, Outcome.REFUSED),
        (401, Outcome.UNAUTHORISED),
    ],
)
def test_a_status_has_the_outcome_of_its_class(status: int, outcome: Outcome) -> None:
    answer = Answer(status, {}, {"message": "no"})
    assert outcome_of(Request("GET", "/meta"), answer) is outcome


DOCUMENT = (Path(__file__).parents[2] / "docs" / "github.md").read_text()
NO = {"message": "no"}
JSON = {"Content-Type": "application/json"}
HTML = {"Content-Type": "text/html"}

FAULTS: list[tuple[Outcome, dict[str, Any]]] = [
    (Outcome.UNREADABLE, {"status": 200, "body": b"<html>", "headers": HTML}),
    (Outcome.UNREADABLE, {"status": 200, "body": b'{"id": 1', "headers": JSON}),
    (Outcome.UNREADABLE, {"status": 200, "body": b" " * (MAX_ANSWER + 1), "headers": JSON}),
    (Outcome.MALFORMED, {"status": 200, "body": {"runner": [], "status": 7}}),
    (Outcome.MALFORMED, {"status": 200, "body": b"[]", "headers": JSON}),
    (Outcome.LIMITED, {"status": 429, "body": NO}),
    (Outcome.LIMITED, {"status": 429, "body": b"<html>", "headers": HTML}),
    (Outcome.LIMITED, {"status": 403, "body": NO, "headers": {"Retry-After": "60"}}),
    (Outcome.LIMITED, {"status": 403, "body": {"message": "secondary rate limit"}}),
    (Outcome.LIMITED, {"status": 403, "body": NO, "headers": {"X-RateLimit-Remaining": "0"}}),
    (Outcome.UNAUTHORISED, {"status": 401, "body": NO}),
    (Outcome.FORBIDDEN, {"status": 403, "body": NO}),
    (Outcome.MOVED, {"status": 301, "headers": {"Location": "/api/v3/elsewhere"}}),
    (Outcome.OUTAGE, {"status": 500, "body": NO}),
    (Outcome.OUTAGE, {"status": 502, "body": b"<html>", "headers": HTML}),
    (Outcome.OUTAGE, {"status": 503, "body": b"", "headers": {"Retry-After": "30"}}),
    (Outcome.OUTAGE, {"status": 408, "body": NO}),
    (Outcome.NOT_GITHUB, {"status": 404, "body": b"<html>", "headers": HTML}),
    (Outcome.NOT_GITHUB, {"status": 403, "body": b"<html>", "headers": HTML}),
    (Outcome.NOT_GITHUB, {"status": 422, "body": b"", "headers": JSON}),
    (Outcome.REFUSED, {"status": 400, "body": NO}),
    (Outcome.REFUSED, {"status": 410, "body": NO}),
    (Outcome.REFUSED, {"status": 451, "body": b"<html>", "headers": HTML}),
]

ERRORS: dict[Action, tuple[type[GitHubError], int]] = {
    Action.AGAIN: (RetryLaterError, 3),
    Action.LATER: (RetryLaterError, 1),
    Action.HOLD: (LimitError, 1),
    Action.LOOK_UP: (RegistrationOutcomeUnknownError, 1),
    Action.RENEW: (NotAllowedError, 2),
    Action.OTHER_APP: (NotAllowedError, 1),
    Action.FOLLOW: (GitHubError, 1),
    Action.OPERATOR: (OperatorError, 1),
}
"""By action: the error that the client raises, and the number of requests."""

ASKING: dict[Effect, tuple[str, Callable[[GitHubClient], Awaitable[object]]]] = {
    Effect.READ: (
        "GET .*/actions/jobs/",
        lambda client: client.read_job("acme/widgets", JobId(42), START),
    ),
    Effect.WRITE: ("DELETE ", lambda client: client.delete_runner("org:acme", 1)),
    Effect.REGISTER: (
        "generate-jitconfig",
        lambda client: client.register("org:acme", "gpu", RunnerName("r"), ("gpu",)),
    ),
}


@pytest.mark.case(
    "HTML, 5xx, 401, 403, 404, 409, 422, 429, broken, cut and malformed answers each have a policy",
    topic="GitHub's REST API",
    source="GitHub: troubleshooting the REST API",
)
@pytest.mark.parametrize("effect", Effect)
async def test_each_outcome_leads_to_the_action_of_its_policy(world: World, effect: Effect) -> None:
    pattern, ask = ASKING[effect]
    async with world.client() as client:
        await client.find_runner("org:acme", RunnerName("r"))
        for outcome, details in FAULTS:
            if effect is Effect.WRITE and details["status"] == 200:
                continue  # a change that was carried out needs no body
            world.clock.at += 10_000  # all holds are over
            world.traffic.calls.clear()
            moved_to = fault("/elsewhere", 410, NO)
            world.github.inject_faults(fault(pattern, times=99, **details), moved_to)
            action = POLICIES[outcome].action(effect)
            expected, times = ERRORS[action]
            with pytest.raises(expected):
                await ask(client)
            assert world.traffic.count(pattern) == times, f"{outcome} {details}"
            assert world.traffic.count("/elsewhere") == (action is Action.FOLLOW)


@pytest.mark.case(
    "no answer before the timeout",
    topic="GitHub's REST API",
    source="GitHub: troubleshooting the REST API",
)
@pytest.mark.parametrize("effect", Effect)
async def test_a_timeout_leads_to_the_action_of_its_policy(world: World, effect: Effect) -> None:
    pattern, ask = ASKING[effect]
    async with world.client() as client:
        await client.register("org:acme", "gpu", RunnerName("before"), ("gpu",))
    async with world.client(patience=0.5) as client:
        await client.find_runner("org:acme", RunnerName("r"))
        world.traffic.calls.clear()
        world.github.inject_faults(hang(pattern, times=99))
        expected, times = ERRORS[POLICIES[Outcome.UNANSWERED].action(effect)]
        with pytest.raises(expected, match="timeout"):
            await ask(client)
        assert world.traffic.count(pattern) == times


async def test_a_request_that_was_never_sent_may_always_be_repeated(world: World) -> None:
    for effect, (pattern, ask) in ASKING.items():
        async with world.client() as client:
            await client.register("org:acme", "gpu", RunnerName(f"{effect}"), ("gpu",))
            world.traffic.calls.clear()
            await client.close()
            action = POLICIES[Outcome.NOT_SENT].action(effect)
            with pytest.raises(ERRORS[action][0], match="closed"):
                await ask(client)
            assert world.traffic.count(pattern) == 0


async def test_a_redirect_to_another_host_is_refused_and_not_retried(world: World) -> None:
    async with world.client() as client:
        away = {"Location": "https://evil.example/"}
        world.github.inject_faults(fault("/actions/jobs/", 302, b"", away))
        with pytest.raises(ERRORS[POLICIES[Outcome.UNTRUSTED].read][0], match="origin"):
            await client.read_job("acme/widgets", JobId(42), START)


def test_every_outcome_is_tested_here() -> None:
    elsewhere = {Outcome.ANSWERED, Outcome.UNANSWERED, Outcome.NOT_SENT, Outcome.UNTRUSTED}
    assert {outcome for outcome, _ in FAULTS} == set(Outcome) - elsewhere


@pytest.mark.case(
    "a registration exists at GitHub at once, offline: after a failed request the controller "
    "looks it up and does not repeat it",
    topic="GitHub's REST API",
    source="runs-on#30; ubicloud#692",
)
def test_a_registration_is_never_repeated_after_an_unknown_outcome() -> None:
    clear = {Action.TAKE, Action.HOLD, Action.RENEW, Action.OTHER_APP, Action.OPERATOR}
    for outcome, policy in POLICIES.items():
        assert policy.register in clear | {Action.LOOK_UP} or outcome is Outcome.NOT_SENT
        assert policy.register not in (Action.AGAIN, Action.FOLLOW)


def rows(width: int) -> list[tuple[str, ...]]:
    """The rows of the document's tables that begin with a word in back quotes."""
    lines = re.findall(r"^\| `[a-z ]+` \|.*\|$", DOCUMENT, re.MULTILINE)
    split = (tuple(cell.strip() for cell in line.strip("|").split("|")) for line in lines)
    return [row for row in split if len(row) == width]


def test_the_documented_policies_are_those_of_the_code() -> None:
    assert rows(5) == [
        (
            f"`{outcome}`",
            policy.known_by,
            f"`{policy.read}`",
            f"`{policy.write}`",
            f"`{policy.register}`",
        )
        for outcome, policy in POLICIES.items()
    ]
    assert [row[0].strip("`") for row in rows(2)] == list(Action)
    assert [(row[0].strip("`"), row[2]) for row in rows(3)] == [
        (importance.name.lower(), f"{share:.0%}".replace("%", " %"))
        for importance, share in RESERVES.items()
    ]
