"""Which failed deliveries are redelivered, and after which time again."""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from autoscaler.controller.ports.github import OperatorError, Redelivered, RetryLaterError
from autoscaler.github.client import GitHubClient
from autoscaler.github.deliveries import (
    MAX_REPEATS,
    OVERLAP,
    PENDING_FOR,
    Attempt,
    failed_deliveries,
)
from autoscaler.github.settings import AppKey, GitHubSettings
from lab.github.deliveries import FIRST_DELIVERY, Delivery
from lab.github.settings import AnswerFault
from tests.github.conftest import World
from tests.github.doubles import START
from tests.github.faults import changed, cut, fault

STEADY = settings(derandomize=True, deadline=None)
ATTEMPT = "POST .*/attempts"


IDS = FIRST_DELIVERY - 1
"""The first delivery has the next ID."""


def log(
    world: World, guid: str, age: float, app: int = 1, *, redelivery: bool = False, **end: Any
) -> Delivery:
    """Log an attempt that began `age` seconds before START and failed, or ended as `end` says."""
    at = START - age
    made = world.administration.log_delivery(app, guid, at, redelivery=redelivery)
    ended(made, **end)
    return made


def ended(
    attempt: Delivery, status: str = "Invalid HTTP Response: 502", status_code: int = 502
) -> None:
    attempt.status, attempt.status_code = status, status_code


def listed_with(changes: Mapping[str, Any]) -> AnswerFault:
    """Return a fault that changes each delivery of a list."""
    return changed("/deliveries", lambda shown: [{**one, **changes} for one in shown])


PENDING: dict[str, Any] = {"status": "pending", "status_code": 0}
OK: dict[str, Any] = {"status": "OK", "status_code": 200}
IGNORED = fault(ATTEMPT, 202, {}, times=None)
"""GitHub accepts a request to redeliver and does nothing."""


@pytest.mark.case(
    "a delivery is lost on its way: GitHub lists it as failed, and the controller asks for "
    "redelivery",
    topic="GitHub's events",
    source="GitHub: failed deliveries",
)
async def test_only_deliveries_that_never_succeeded_are_redelivered_by_their_newest_attempt(
    world: World, client: GitHubClient
) -> None:
    log(world, "fails twice", 500)
    log(world, "arrives", 400, **OK)
    log(world, "arrives later", 300)
    log(world, "fails twice", 250, redelivery=True)
    log(world, "arrives later", 200, redelivery=True, **OK)
    log(world, "fails", 100, status="timed out", status_code=0)
    log(world, "accepted", 90, status="Accepted", status_code=202)
    log(world, "under way", 1, **PENDING)
    assert (await client.redeliver_failed(START - 3600)).asked == 2
    assert [call for call in world.traffic.calls if call.startswith("POST")] == [
        f"POST /api/v3/app/hook/deliveries/{IDS + 4}/attempts",
        f"POST /api/v3/app/hook/deliveries/{IDS + 6}/attempts",
    ]


@pytest.mark.parametrize(
    "answered",
    [{"status": "OK", "status_code": None}, {"status": None, "status_code": 204}],
    ids=["status", "status code"],
)
async def test_one_sign_of_success_is_enough(
    world: World, client: GitHubClient, answered: dict[str, Any]
) -> None:
    log(world, "a", 100)
    world.github.inject_faults(listed_with(answered))
    assert (await client.redeliver_failed(START - 3600)).asked == 0


@pytest.mark.case(
    "the App also subscribes to `push`, and its deliveries fail: they are not asked for again",
    topic="GitHub's events",
    source="GitHub: failed deliveries",
)
@pytest.mark.parametrize(
    ("listed", "asked"),
    [
        ({"event": "push"}, 0),
        ({"event": "projects_v2_item"}, 0),
        ({"event": "workflow_run"}, 0),
        ({"event": "ping"}, 0),
        ({"event": None}, 1),
        ({"status_code": 400}, 0),
        ({"status_code": 413}, 0),
        ({"status_code": 401}, 1),
        ({"status_code": 404}, 1),
        ({"status_code": 408}, 1),
        ({"status_code": 503}, 1),
    ],
)
async def test_what_another_attempt_would_not_change_is_not_redelivered(
    world: World, client: GitHubClient, listed: dict[str, Any], asked: int
) -> None:
    log(world, "a", 100)
    world.github.inject_faults(listed_with({"status": "failed", **listed}))
    assert (await client.redeliver_failed(START - 3600)).asked == asked


async def test_a_recently_requested_redelivery_is_not_repeated(
    world: World, client: GitHubClient
) -> None:
    log(world, "a", 100)
    assert (await client.redeliver_failed(START - 3600)).asked == 1
    ended(world.github.delivery_log(1)[-1])
    assert [(await client.redeliver_failed(START - 3600)).asked for _ in range(2)] == [0, 0]
    world.clock.at += 61
    assert (await client.redeliver_failed(START - 3600)).asked == 1
    again = world.github.delivery_log(1)
    assert [(one.redelivery, one.message.guid) for one in again[1:]] == [(True, "a")] * 2
    ended(again[-1], **OK)
    world.clock.at += 3600
    assert (await client.redeliver_failed(START - 3600)).asked == 0


@pytest.mark.case(
    "a delivery that keeps failing: the controller asks for redelivery ever less often, and lists"
    " only what it needs",
    topic="GitHub's events",
    source="GitHub: failed deliveries",
)
async def test_a_failing_delivery_is_redelivered_with_backoff(
    world: World, client: GitHubClient
) -> None:
    log(world, "a", 0)
    asked_at, since = [], START - 10
    for _ in range(3 * 180):
        reported = await client.redeliver_failed(since)
        # The caller's search starts later each time, as the poller's does.
        since = max(START - 10, reported.arrived_until)
        if reported.asked:
            asked_at.append(world.clock.at - START)
        elif world.clock.at - START == asked_at[-1] + 20:
            ended(world.github.delivery_log(1)[-1])
        world.clock.at += 20
    gaps = [after - before for before, after in pairwise(asked_at)]
    assert gaps == [60, 120, 240, 480, *[900] * len(gaps[4:])]
    assert len(gaps) > 10
    assert since == START + asked_at[-1], "a process that starts anew looks there"


@pytest.mark.case(
    "a delivery that keeps failing: the controller asks for redelivery ever less often, and lists"
    " only what it needs",
    topic="GitHub's events",
    source="GitHub: failed deliveries",
)
async def test_a_long_failing_delivery_does_not_extend_the_listed_window(
    world: World, client: GitHubClient
) -> None:
    world.administration.shape_lists(10)
    world.github.inject_faults(IGNORED)
    log(world, "fails", 1000)
    for n in range(2, 200):
        log(world, f"g{n}", 1000 - n, **OK)
    since = START - 3600
    for _ in range(9):
        since = (await client.redeliver_failed(since)).arrived_until
        world.clock.at += 20
    assert since == START - 1000
    assert world.traffic.count("GET .*/deliveries") == 20 + 8


@pytest.mark.case(
    "GitHub shows an attempt as pending for ever: it counts as failed after ten minutes",
    topic="GitHub's events",
    source="GitHub: failed deliveries",
)
async def test_a_delivery_that_stays_pending_is_redelivered_without_a_longer_search(
    world: World, client: GitHubClient
) -> None:
    world.administration.shape_lists(10)
    world.github.inject_faults(IGNORED)
    log(world, "stuck", 0, **PENDING)
    since, asked_at, listed = START - 3600, [], []
    for n in range(2, 62):
        log(world, f"g{n}", START - world.clock.at, **OK)
        before = world.traffic.count("GET .*/deliveries")
        reported = await client.redeliver_failed(since)
        since = reported.arrived_until
        listed.append(world.traffic.count("GET .*/deliveries") - before)
        if reported.asked:
            asked_at.append(world.clock.at - START)
        world.clock.at += 20
    assert asked_at[0] == PENDING_FOR
    assert max(listed) == listed[int(PENDING_FOR / 20)] == 4
    assert set(listed[int(PENDING_FOR / 20) + 1 :]) == {1}


async def test_pages_are_read_until_the_requested_time(world: World, client: GitHubClient) -> None:
    world.administration.shape_lists(10)
    for n in range(1, 100):
        log(world, f"g{n}", 1000 - n)
    assert (await client.redeliver_failed(START - (1000 - 75) + OVERLAP)).asked == 25
    assert world.traffic.count("GET .*/deliveries") == 3


async def test_many_failed_deliveries_are_redelivered_over_several_passes(
    world: World, client: GitHubClient
) -> None:
    total = MAX_REPEATS * 2 + 7
    for n in range(1, total + 1):
        log(world, f"g{n}", 1000 - n)
    asked = [(await client.redeliver_failed(START - 3600)).asked]
    # The caller's search starts later now: the client remembers the remaining deliveries.
    asked += [(await client.redeliver_failed(START)).asked for _ in range(3)]
    assert asked == [MAX_REPEATS, MAX_REPEATS, 7, 0]
    posts = [call for call in world.traffic.calls if call.startswith("POST")]
    assert len(set(posts)) == total


async def test_one_delivery_that_github_refuses_to_redeliver_does_not_stop_the_others(
    world: World, client: GitHubClient
) -> None:
    log(world, "too old", 200)
    log(world, "b", 100)
    refused = f"deliveries/{IDS + 1}/attempts"
    world.github.inject_faults(fault(refused, 422, {"message": "Too old"}, times=99))
    assert (await client.redeliver_failed(START - 3600)).asked == 1
    ended(world.github.delivery_log(1)[-1], **OK)
    world.clock.at += 3600
    assert (await client.redeliver_failed(START - 3600)).asked == 0
    assert world.traffic.count(refused) == 1


async def test_a_rate_limit_stops_the_pass_and_the_rest_is_redelivered_later(
    world: World, client: GitHubClient
) -> None:
    for n in range(1, 6):
        log(world, f"g{n}", 100 - n)
    world.github.inject_faults(
        fault(f"deliveries/{IDS + 3}/attempts", 429, {}, {"Retry-After": "60"})
    )
    with pytest.raises(RetryLaterError):
        await client.redeliver_failed(START - 3600)
    assert world.traffic.count(ATTEMPT) == 3
    for again in world.github.delivery_log(1)[5:]:
        ended(again, **OK)
    world.clock.at += 60
    assert (await client.redeliver_failed(START)).asked == 3
    posts = [
        int(call.split("/")[-2]) - IDS for call in world.traffic.calls if call.startswith("POST")
    ]
    assert posts == [1, 2, 3, 3, 4, 5]


async def test_a_redelivery_request_without_an_answer_is_not_sent_twice(
    world: World, client: GitHubClient
) -> None:
    log(world, "a", 100)
    world.github.inject_faults(cut(ATTEMPT, done=True))
    with pytest.raises(RetryLaterError):
        await client.redeliver_failed(START - 3600)
    ended(world.github.delivery_log(1)[1])
    assert (await client.redeliver_failed(START - 3600)).asked == 0
    assert world.traffic.count(ATTEMPT) == 1


@pytest.mark.case(
    "failing deliveries of one App do not affect another App",
    topic="GitHub's events",
    source="GitHub: failed deliveries",
)
async def test_a_failure_of_one_apps_deliveries_does_not_affect_the_other_app(world: World) -> None:
    log(world, "a", 10)
    log(world, "b", 10, app=2)
    world.github.inject_faults(IGNORED)
    async with world.client(apps=(1, 2)) as client:
        assert (await client.redeliver_failed(START - 3600)).asked == 2
        world.administration.delete_app(1)
        world.clock.at += 400
        with capture_logs() as logs:
            reported = await client.redeliver_failed(START - 3600)
        assert reported == Redelivered(1, START - 3600)
        (line,) = [line for line in logs if line["event"] == "redelivery_failed"]
        assert (line["app"], "401" in line["error"]) == (1, True)
        world.administration.delete_app(2)
        with capture_logs() as logs, pytest.raises(OperatorError):
            await client.redeliver_failed(START - 3600)
        assert [line["app"] for line in logs if line["event"] == "redelivery_failed"] == [1, 2]
    assert world.traffic.count(ATTEMPT) == 3, "one of the first App, two of the second"


async def test_a_delivery_that_github_lists_late_is_found_in_the_next_pass(
    world: World, client: GitHubClient
) -> None:
    """After a restart the controller searches equally far back."""
    since = (await client.redeliver_failed(START - 3600)).arrived_until
    assert since == START
    world.clock.at += 20
    log(world, "older", OVERLAP + 1)
    log(world, "late", OVERLAP)
    world.github.inject_faults(IGNORED)
    assert (await client.redeliver_failed(since)).asked == 1
    async with world.client() as anew:
        assert (await anew.redeliver_failed(since)).asked == 1
    assert world.traffic.count(f"deliveries/{IDS + 2}/attempts") == 2


async def test_while_an_app_is_refused_the_search_starts_at_the_same_time(world: World) -> None:
    world.administration.delete_app(1)
    since, windows = START - 3600, []
    async with world.client(apps=(1, 2)) as client:
        for _ in range(10):
            since = (await client.redeliver_failed(since)).arrived_until
            windows.append(since)
            world.clock.at += 20
    assert windows == [START - 3600] * 10


async def test_a_malformed_list_of_deliveries_raises(world: World, client: GitHubClient) -> None:
    log(world, "a", 10)
    for changes in ({"delivered_at": "then"}, {"guid": None}, {"id": "1"}):
        world.github.inject_faults(listed_with(changes))
        with pytest.raises(RetryLaterError):
            await client.redeliver_failed(START - 3600)
    assert world.traffic.count(ATTEMPT) == 0


tries = st.lists(
    st.builds(
        Attempt,
        id=st.integers(1, 1000),
        guid=st.sampled_from("abcd"),
        at=st.floats(START, START + 100),
        over=st.booleans(),
        pending=st.booleans(),
    )
)


@STEADY
@given(tries, st.sets(st.sampled_from("abef")))
def test_a_delivery_failed_if_no_attempt_is_over_or_pending(
    listed: list[Attempt], left: set[str]
) -> None:
    before = {guid: Attempt(1, guid, START, over=False) for guid in left}
    failed = failed_deliveries(listed, before)
    home = {attempt.guid for attempt in listed if attempt.over or attempt.pending}
    assert set(failed) == ({attempt.guid for attempt in listed} | left) - home
    assert failed == failed_deliveries(reversed(listed), before)
    for guid, delivery in failed.items():
        own = [attempt for attempt in listed if attempt.guid == guid]
        assert delivery.at == max((attempt.at for attempt in own), default=START)


async def test_without_webhooks_github_is_only_asked_whether_it_knows_the_apps(
    world: World,
) -> None:
    """The deliveries of a webhook that leads elsewhere are not this controller's to repeat."""
    failed = world.administration.log_delivery(1, "g", START - 60.0, redelivery=False)
    failed.status_code, failed.status = 502, "Invalid HTTP Response: 502"
    keys = (AppKey(1, world.keys.private_pem), AppKey(2, world.keys.private_pem))
    settings = GitHubSettings(world.url, keys, webhooks=False)
    client = GitHubClient(settings, world.clock, world.telemetry)
    assert await client.redeliver_failed(START - 3600.0) == Redelivered(0, START)
    assert world.traffic.calls == ["GET /api/v3/app"] * 2
    world.administration.delete_app(1)
    world.administration.delete_app(2)
    with pytest.raises(OperatorError, match="401"):
        await client.redeliver_failed(START - 3600.0)
    await client.close()
