"""The budget of requests, without any network."""

from collections.abc import Mapping
from copy import deepcopy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from multidict import CIMultiDict

from autoscaler.github.requests.budget import RESERVES, Budget, Reading, reading_of
from autoscaler.github.requests.exchange import Answer, Effect, Importance, Request
from autoscaler.model.identifiers import Instant

STEADY = settings(derandomize=True, deadline=None)
NOW: Instant = 1_800_000_000.0
APP = "app 1 on acme"
REGISTER = Request("POST", "/jit", effect=Effect.REGISTER, importance=Importance.REGISTER)
CHECK = Request("GET", "/job")
REMOVE = Request("DELETE", "/runner", effect=Effect.WRITE, importance=Importance.REMOVE)
SYNC = Request("GET", "/deliveries", importance=Importance.SYNC)


def reported(
    remaining: int, limit: int = 5000, reset: float = 600, resource: str = "core"
) -> Mapping[str, str]:
    return {
        "X-RateLimit-Limit": str(limit),
        "X-RateLimit-Remaining": str(remaining),
        "X-RateLimit-Reset": str(int(NOW + reset)),
        "X-RateLimit-Resource": resource,
    }


def answer(status: int = 200, **headers: str) -> Answer:
    return Answer(status, CIMultiDict({k.replace("_", "-"): v for k, v in headers.items()}))


def asked(budget: Budget, request: Request, got: Answer, now: Instant = NOW) -> None:
    budget.begin(APP, request, now)
    budget.finish(APP, request, got, now)


def fits(budget: Budget, request: Request, now: Instant = NOW) -> bool:
    return budget.shortage(APP, request, now) is None


def test_a_budget_that_github_does_not_report_is_no_limit() -> None:
    budget = Budget(None)
    for request in (REGISTER, CHECK, REMOVE, SYNC):
        for _ in range(10_000):
            asked(budget, request, answer())
        assert fits(budget, request)
        assert budget.headroom(APP, request, NOW) == float("inf")


@pytest.mark.case(
    "registrations, checks and deletions go before lists",
    topic="GitHub's REST API",
    source="GitHub: using the REST API",
)
@pytest.mark.parametrize(
    ("remaining", "fit"),
    [
        (1001, {"check", "remove", "sync"}),
        (1000, {"check", "remove"}),
        (250, {"check"}),
        (101, {"check"}),
        (100, set()),
        (0, set()),
    ],
)
def test_less_important_requests_leave_a_reserve_of_the_budget(
    remaining: int, fit: set[str]
) -> None:
    budget = Budget(None)
    asked(budget, CHECK, Answer(200, CIMultiDict(reported(remaining))))
    requests = {"check": CHECK, "remove": REMOVE, "sync": SYNC}
    assert {name for name, request in requests.items() if fits(budget, request)} == fit


def test_the_reserves_fall_with_importance_and_a_registration_leaves_none() -> None:
    shares = [RESERVES[importance] for importance in Importance]
    assert shares == sorted(shares)
    assert shares[0] == 0.0
    assert len(set(shares)) == len(shares)


@pytest.mark.case(
    "registrations have a bucket of their own, `actions_runner_registration`",
    topic="GitHub's REST API",
    source="GAR rate-limits-and-tuning.md",
)
def test_registrations_may_use_the_whole_budget_and_no_more() -> None:
    budget = Budget(None)
    last = reported(1, 10_000, resource="actions_runner_registration")
    asked(budget, REGISTER, Answer(201, CIMultiDict(last)))
    assert budget.headroom(APP, REGISTER, NOW) == 1.0
    assert fits(budget, REGISTER)
    budget.begin(APP, REGISTER, NOW)
    shortage = budget.shortage(APP, REGISTER, NOW)
    assert shortage is not None
    assert (shortage.seconds, "used up" in shortage.why) == (600.0, True)
    assert budget.headroom(APP, REGISTER, NOW) == 0.0
    budget.begin(APP, REGISTER, NOW)
    assert budget.headroom(APP, REGISTER, NOW) == 0.0, "never below zero"
    assert fits(budget, CHECK), "registrations have a bucket of their own"
    assert fits(budget, REGISTER, NOW + 600), "the hour is over"


def test_requests_in_flight_count_until_they_are_answered_or_lost() -> None:
    budget = Budget(None)
    asked(budget, CHECK, Answer(200, CIMultiDict(reported(103))))
    for _ in range(3):
        assert fits(budget, CHECK)
        budget.begin(APP, CHECK, NOW)
    assert not fits(budget, CHECK)
    budget.finish(APP, CHECK, None, NOW)
    assert fits(budget, CHECK)


def test_the_first_request_of_an_endpoint_counts_while_it_is_in_flight() -> None:
    budget = Budget(None)
    budget.record(APP, Reading("core", 5000, 101, NOW + 600), NOW)
    assert budget.headroom(APP, CHECK, NOW) == 101.0
    assert fits(budget, CHECK)
    budget.begin(APP, REMOVE, NOW)
    assert budget.headroom(APP, CHECK, NOW) == 100.0
    assert not fits(budget, CHECK)


def test_reordered_answers_do_not_raise_the_budget() -> None:
    budget = Budget(None)
    asked(budget, CHECK, Answer(200, CIMultiDict(reported(100))))
    asked(budget, CHECK, Answer(200, CIMultiDict(reported(140))))
    assert not fits(budget, CHECK)
    asked(budget, CHECK, Answer(200, CIMultiDict(reported(4999, reset=3600))), NOW + 601)
    assert fits(budget, CHECK, NOW + 601)


@pytest.mark.case(
    "reports about that bucket's size differ: the controller reads the answers and `/rate_limit`",
    topic="GitHub's REST API",
    source="GAR rate-limits-and-tuning.md",
)
def test_the_answer_names_the_bucket_that_it_uses() -> None:
    budget = Budget(None)
    # An older Enterprise Server: registrations count like everything else.
    asked(budget, REGISTER, Answer(201, CIMultiDict(reported(0))))
    assert not fits(budget, REGISTER)
    assert not fits(budget, CHECK)
    assert budget.resource_of(REGISTER) == "core"


@pytest.mark.case(
    "requests an hour, for each installation",
    topic="GitHub's REST API",
    source="GitHub: rate limits",
)
def test_each_installation_has_a_budget_of_its_own() -> None:
    budget = Budget(900)
    asked(budget, CHECK, Answer(200, CIMultiDict(reported(0))))
    assert budget.shortage("app 1 on umbrella", CHECK, NOW) is None
    assert budget.shortage("app 2 on acme", CHECK, NOW) is None


@pytest.mark.case(
    "900 points a minute for an endpoint: a read costs 1, a write 5",
    topic="GitHub's REST API",
    source="GitHub: rate limits",
)
def test_a_minute_has_900_points_of_which_a_registration_takes_5() -> None:
    budget = Budget(900)
    for second in range(180):
        assert fits(budget, REGISTER, NOW + second / 4)
        asked(budget, REGISTER, answer(201), NOW + second / 4)
    assert budget.headroom(APP, REGISTER, NOW + 45) == 0.0
    shortage = budget.shortage(APP, REGISTER, NOW + 45)
    assert shortage is not None
    assert shortage.seconds == 15.0
    assert not fits(budget, REGISTER, NOW + 59.9)
    assert budget.headroom(APP, REGISTER, NOW + 60) == 4.0, "those of the first second"


def test_points_are_counted_for_each_endpoint_and_a_read_takes_one() -> None:
    budget = Budget(900)
    for _ in range(900):
        asked(budget, CHECK, answer())
    assert not fits(budget, CHECK)
    assert budget.headroom(APP, Request("GET", "/other"), NOW) == 900.0
    assert budget.headroom(APP, REMOVE, NOW) == 180.0


def test_the_headroom_is_the_smaller_of_bucket_and_points() -> None:
    budget = Budget(900)
    bucket = reported(7, 10_000, resource="actions_runner_registration")
    asked(budget, REGISTER, Answer(201, CIMultiDict(bucket)))
    assert budget.headroom(APP, REGISTER, NOW) == 7.0
    asked(budget, REGISTER, answer(429, Retry_After="60"))
    assert budget.headroom(APP, REGISTER, NOW) == 0.0


def test_the_pace_spreads_what_is_left_above_the_reserve_over_the_time_until_the_reset() -> None:
    budget = Budget(None)
    asked(budget, CHECK, Answer(200, CIMultiDict(reported(2500))))
    assert budget.pace(APP, SYNC, NOW, 5000) == (2500 - 1000) / 600
    assert budget.pace(APP, SYNC, NOW + 599.5, 5000) == 1500.0, "in the last second"
    asked(budget, CHECK, Answer(200, CIMultiDict(reported(900))))
    assert budget.pace(APP, SYNC, NOW, 5000) == 0.0
    asked(budget, CHECK, answer(429, Retry_After="60"), NOW + 600)
    assert budget.pace(APP, SYNC, NOW + 600, 5000) == 0.0


def test_the_pace_follows_an_assumed_limit_until_github_reports_one() -> None:
    budget = Budget(None)
    assert budget.pace(APP, SYNC, NOW, 4500) == 1.0, "a fifth of it is reserved"
    assert budget.pace(APP, SYNC, NOW, None) == float("inf")


@pytest.mark.case(
    "a secondary limit without `retry-after`",
    topic="GitHub's REST API",
    source="GitHub: rate limits",
)
def test_secondary_limits_without_retry_after_double_the_hold() -> None:
    budget, now, waits = Budget(None), NOW, []
    for _ in range(8):
        asked(budget, CHECK, answer(429), now)
        waits.append(budget.backoff(APP, CHECK, now))
        now += waits[-1]
    assert waits == [60, 120, 240, 480, 960, 1920, 3600, 3600]
    asked(budget, CHECK, answer(), now)
    asked(budget, CHECK, answer(429), now)
    assert budget.backoff(APP, CHECK, now) == 60.0


def test_refusals_of_requests_in_flight_together_count_once() -> None:
    budget = Budget(None)
    for _ in range(20):
        asked(budget, CHECK, answer(429))
    assert budget.backoff(APP, CHECK, NOW) == 60.0
    asked(budget, CHECK, answer(429), NOW + 60)
    assert budget.backoff(APP, CHECK, NOW + 60) == 120.0


@pytest.mark.parametrize(
    ("headers", "limit"), [({}, "secondary"), (reported(0), "primary"), (reported(9), "secondary")]
)
def test_a_request_that_is_not_sent_names_the_limit_that_stopped_the_app(
    headers: Mapping[str, str], limit: str
) -> None:
    budget = Budget(None)
    asked(budget, CHECK, Answer(403, CIMultiDict({**headers, "Retry-After": "60"})))
    shortage = budget.shortage(APP, CHECK, NOW)
    assert shortage is not None
    assert shortage.why == f"not sent: GitHub's {limit} rate limit stopped this App earlier"
    assert shortage.limit == f"{limit}_rate_limit"


def test_a_shorter_hold_does_not_end_a_longer_one() -> None:
    budget = Budget(None)
    asked(budget, CHECK, answer(429, Retry_After="300"))
    asked(budget, CHECK, answer(429, Retry_After="5"))
    asked(budget, CHECK, answer(200))
    assert budget.backoff(APP, CHECK, NOW) == 300.0


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"X-RateLimit-Remaining": "-1"},
        {"X-RateLimit-Remaining": "many"},
        {"X-RateLimit-Remaining": "٣"},
        {"X-RateLimit-Limit": "5000"},
    ],
)
def test_headers_without_usable_limits_give_no_reading(headers: dict[str, str]) -> None:
    assert reading_of(Answer(200, CIMultiDict(headers)), "core", NOW) is None


@STEADY
@given(st.dictionaries(st.sampled_from(list(reported(0))), st.text(max_size=6000), max_size=4))
def test_arbitrary_headers_give_a_bounded_reading(headers: dict[str, str]) -> None:
    budget = Budget(900)
    asked(budget, CHECK, Answer(429, CIMultiDict(headers)))
    shortage = budget.shortage(APP, CHECK, NOW)
    assert shortage is not None
    assert 1.0 <= shortage.seconds <= 3600.0
    assert fits(budget, CHECK, NOW + 3600)


@pytest.mark.case(
    "900 points a minute for an endpoint: a read costs 1, a write 5",
    topic="GitHub's REST API",
    source="GitHub: rate limits",
)
@pytest.mark.case(
    "GitHub recommends a second between two writes; the points are the limit",
    topic="GitHub's REST API",
    source="GitHub: using the REST API",
)
@STEADY
@given(
    st.lists(st.tuples(st.floats(0, 5), st.sampled_from([REGISTER, CHECK])), max_size=200),
    st.integers(5, 60),
)
def test_no_minute_ever_holds_more_points_than_allowed(
    arrivals: list[tuple[float, Request]], limit: int
) -> None:
    budget, now, sent = Budget(limit), NOW, []
    for pause, request in arrivals:
        now += pause
        shortage = budget.shortage(APP, request, now)
        if shortage is None:
            budget.begin(APP, request, now)
            sent.append((now, request))
        else:
            assert 0 < shortage.seconds <= 60
            assert fits(deepcopy(budget), request, now + shortage.seconds)
    for start, _ in sent:
        for endpoint in (REGISTER, CHECK):
            window = [r for at, r in sent if r is endpoint and start <= at <= start + 59]
            assert sum(request.points for request in window) <= limit
