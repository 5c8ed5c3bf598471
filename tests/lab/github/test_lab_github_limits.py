"""GitHub's rate limits and their answers."""

from collections.abc import Awaitable, Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.github.limits import Bucket
from lab.github.settings import Limits
from tests.lab.github.harness import EPOCH, Client, HandClock

Make = Callable[..., Awaitable[Client]]
RUNNERS = "/orgs/acme/actions/runners"


@pytest.mark.case(
    "requests an hour, for each installation",
    topic="GitHub's REST API",
    source="GitHub: rate limits",
)
async def test_the_hourly_limit_is_counted_shown_and_renewed(make: Make, clock: HandClock) -> None:
    client = await make(limits=Limits(requests_per_hour=3))
    await client.token("globex")
    client.lab.administration.limit(Limits(requests_per_hour=3))
    for remaining in (2, 1, 0):
        answer = await client.ask("GET", RUNNERS)
        assert answer.status == 200
        assert answer.headers["x-ratelimit-remaining"] == str(remaining)
        assert answer.headers["x-ratelimit-resource"] == "core"
        assert answer.headers["x-ratelimit-reset"] == str(int(EPOCH + 3600))
    refused = await client.ask("GET", RUNNERS)
    assert refused.status == 403
    assert "API rate limit exceeded for installation ID" in refused.json["message"]
    assert refused.headers["x-ratelimit-remaining"] == "0"
    assert (await client.ask("GET", "/orgs/globex/actions/runners", org="globex")).status == 200
    await clock.advance(3600)
    assert (await client.ask("GET", RUNNERS)).status == 200


@pytest.mark.case(
    "900 points a minute for an endpoint: a read costs 1, a write 5",
    topic="GitHub's REST API",
    source="GitHub: rate limits",
)
async def test_writes_cost_five_points_of_an_endpoints_minute(make: Make, clock: HandClock) -> None:
    client = await make(limits=Limits(points_per_minute=20))
    statuses = [(await client.register(f"r{number}")).status for number in range(5)]
    assert statuses == [201, 201, 201, 201, 429]
    refused = await client.register("r9")
    assert refused.headers["retry-after"] == "60"
    assert "secondary rate limit" in refused.json["message"]
    assert (await client.ask("GET", RUNNERS)).status == 200
    await clock.advance(60)
    assert (await client.register("r9")).status == 201


@pytest.mark.case(
    "registrations have a bucket of their own, `actions_runner_registration`",
    topic="GitHub's REST API",
    source="GAR rate-limits-and-tuning.md",
)
async def test_registrations_have_a_bucket_of_their_own(make: Make) -> None:
    client = await make(limits=Limits(registrations_per_hour=2))
    answers = [await client.register(f"r{number}") for number in range(3)]
    assert [answer.status for answer in answers] == [201, 201, 403]
    resource = "actions_runner_registration"
    assert {answer.headers["x-ratelimit-resource"] for answer in answers} == {resource}
    limits = (await client.ask("GET", "/rate_limit")).json["resources"]
    assert limits[resource]["remaining"] == 0
    assert limits["core"] == {"limit": 5000, "used": 0, "remaining": 5000, "reset": EPOCH + 3600}


@pytest.mark.case(
    "1,500 registrations in 5 minutes for an organization",
    topic="GitHub's REST API",
    source="GitHub: Actions limits",
)
async def test_registrations_in_five_minutes_are_counted_by_organization(
    make: Make, clock: HandClock
) -> None:
    client = await make(limits=Limits(registrations_per_5_minutes=2))
    assert (await client.register("a")).status == 201
    assert (await client.register("a")).status == 409
    assert (await client.register("b", at="/repos/acme/rocket")).status == 201
    refused = await client.register("c")
    assert (refused.status, refused.headers["retry-after"]) == (429, "300")
    await clock.advance(300)
    assert (await client.register("c")).status == 201


async def test_limits_can_be_switched_off_and_on(make: Make) -> None:
    client = await make()
    free = await client.ask("GET", RUNNERS)
    assert "x-ratelimit-limit" not in free.headers
    assert (await client.ask("GET", "/rate_limit")).status == 404
    client.lab.administration.limit(Limits(requests_per_hour=1))
    assert [(await client.ask("GET", RUNNERS)).status for _ in range(2)] == [200, 403]
    client.lab.administration.limit(None)
    assert (await client.ask("GET", RUNNERS)).status == 200


@given(st.lists(st.tuples(st.integers(1, 5), st.floats(0, 40)), max_size=60))
def test_a_window_never_gives_more_than_its_limit(steps: list[tuple[int, float]]) -> None:
    bucket = Bucket(limit=10, length=60.0)
    now = 0.0
    given_in: dict[float, int] = {}
    for cost, later in steps:
        now += later
        if bucket.take(cost, now):
            given_in[bucket.reset] = given_in.get(bucket.reset, 0) + cost
        assert bucket.reset > now
    assert all(total <= 10 for total in given_in.values())


@pytest.mark.case(
    "304 answers are free",
    topic="GitHub's REST API",
    source="GitHub: rate limits",
)
async def test_a_304_answer_costs_nothing_of_the_hourly_limit(make: Make) -> None:
    client = await make(limits=Limits(requests_per_hour=10))
    first = await client.ask("GET", RUNNERS)
    url = client.lab.api_url + RUNNERS
    headers = {
        "Authorization": f"Bearer {await client.token()}",
        "If-None-Match": first.headers["etag"],
    }
    async with client.session.get(url, headers=headers) as again:
        assert again.status == 304
        assert await again.read() == b""
        assert again.headers["x-ratelimit-remaining"] == first.headers["x-ratelimit-remaining"]
    await client.register("new")
    async with client.session.get(url, headers=headers) as changed:
        assert changed.status == 200
        assert changed.headers["etag"] != first.headers["etag"]
        assert int(changed.headers["x-ratelimit-remaining"]) == 8


@pytest.mark.case(
    "many machines behind one address check GitHub: they call only endpoints that cost nothing",
    topic="Runner and listener",
    source="GitHub: rate limit without authentication",
)
async def test_anonymous_calls_count_except_those_for_the_rate_limit(client: Client) -> None:
    for _ in range(3):
        asked = await client.call("GET", f"{client.lab.api_url}/rate_limit", None)
        assert (asked.status, asked.json["rate"]["limit"]) == (200, 60)
    assert client.lab.anonymous_calls == 0
    assert (await client.call("GET", f"{client.lab.api_url}/", None)).status == 200
    assert (
        await client.call("GET", f"{client.lab.api_url}/orgs/acme/actions/runners", None)
    ).status == 401
    assert client.lab.anonymous_calls == 2
