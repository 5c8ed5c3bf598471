"""Reads: which are retried, when they fail, and the effect of rate limits on all callers."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from autoscaler.controller.ports.github import OperatorError, RetryLaterError
from autoscaler.github.client import GitHubClient
from autoscaler.github.requests.outcomes import OUTAGE_DELAY
from autoscaler.github.requests.transport import MAX_ANSWER, _origin
from autoscaler.github.settings import AppKey, GitHubSettings
from autoscaler.model.cooldowns import RateLimit
from autoscaler.model.events import JobObserved
from autoscaler.model.identifiers import JobId, RunnerName
from autoscaler.model.jobs.job import JobState
from lab.github.job_shapes import head_sha
from lab.github.settings import AnswerFault
from lab.github.workflows import FIRST_JOB, FIRST_RUN
from tests.github.conftest import World, job_spec
from tests.github.doubles import START
from tests.github.faults import changed, cut, fault, hang
from tests.github.runners import LabRunner

JOB = JobId(FIRST_JOB)
GET_JOB = "GET .*/actions/jobs/"
HTML = {"Content-Type": "text/html"}
JSON = {"Content-Type": "application/json; charset=utf-8"}


@pytest.fixture
def asked(world: World) -> World:
    """A world with one job of acme/widgets."""
    world.github.push([job_spec(workflow="trunk")])
    return world


async def read(client: GitHubClient) -> JobObserved | None:
    return await client.read_job("acme/widgets", JOB, START)


async def test_a_job_read_at_github_is_an_event(asked: World, client: GitHubClient) -> None:
    (pushed,) = asked.github.jobs
    asked.clock.at += 600
    registered = await client.register("org:acme", "gpu", RunnerName("r1"), ("gpu",))
    assert await LabRunner(registered.jit_config).start() == JOB
    assert await read(client) == JobObserved(
        at=START,
        id=JOB,
        state=JobState.IN_PROGRESS,
        repository="acme/widgets",
        labels=("gpu",),
        queued_at=START,
        name="test",
        workflow="trunk",
        run_id=FIRST_RUN,
        runner_name=RunnerName("r1"),
        runner_id=registered.github_id,
        started_at=START + 600,
        read=True,
        head_sha=head_sha(pushed.run),
        head_branch="main",
    )


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ("queued", JobState.QUEUED),
        ("waiting", JobState.WAITING),
        ("pending", JobState.WAITING),
        ("requested", JobState.WAITING),
        ("completed", JobState.COMPLETED),
    ],
)
async def test_a_jobs_status_is_its_state(
    asked: World, client: GitHubClient, status: str, state: JobState
) -> None:
    asked.github.inject_faults(changed(GET_JOB, lambda shown: shown | {"status": status}))
    observed = await read(client)
    assert observed is not None
    assert observed.state is state


@pytest.mark.parametrize("changes", [{"status": "dreaming"}, {"id": 43}, {"id": "42"}])
async def test_an_answer_that_is_no_job_raises(
    asked: World, client: GitHubClient, changes: dict[str, Any]
) -> None:
    asked.github.inject_faults(changed(GET_JOB, lambda shown: shown | changes))
    with pytest.raises(RetryLaterError):
        await read(client)


async def test_a_job_that_does_not_exist_is_none(world: World, client: GitHubClient) -> None:
    assert await read(client) is None


@pytest.mark.parametrize(
    "fault",
    [
        fault(GET_JOB, 500),
        fault(GET_JOB, 502, b"<html>", HTML),
        fault(GET_JOB, 520, b"", HTML),
        fault(GET_JOB, 999, b"\xff"),
        fault(GET_JOB, 200, b"<html>", JSON),
        fault(GET_JOB, 200, b"<html>", HTML),
        fault(GET_JOB, 200, b"\xff", JSON),
    ],
    ids=["500", "502", "520", "999", "html as json", "html", "not utf-8"],
)
async def test_a_failed_read_is_retried_with_backoff(
    asked: World, client: GitHubClient, fault: AnswerFault
) -> None:
    asked.github.inject_faults(replace(fault, times=2))
    assert await read(client) is not None
    assert asked.clock.slept == [1.0, 3.0]


@pytest.mark.parametrize(("runner_id", "known"), [(17, 17), (0, None), (None, None)])
async def test_a_job_has_the_id_of_its_runner(
    asked: World, client: GitHubClient, runner_id: int | None, known: int | None
) -> None:
    changes = {"status": "in_progress", "runner_name": "r1", "runner_id": runner_id}
    asked.github.inject_faults(changed(GET_JOB, lambda shown: shown | changes))
    found = await read(client)
    assert found is not None
    assert found.runner_id == known


async def test_a_read_fails_after_three_attempts(asked: World, client: GitHubClient) -> None:
    asked.github.inject_faults(fault(GET_JOB, 503, headers={"Retry-After": "7"}, times=9))
    with pytest.raises(RetryLaterError) as caught:
        await read(client)
    assert caught.value.retry_after == 7.0
    assert asked.traffic.count(GET_JOB) == 3


async def test_an_outage_with_a_used_up_limit_lasts_until_its_reset(
    asked: World, client: GitHubClient
) -> None:
    reset = int(START) + 500
    spent = {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": str(reset)}
    asked.github.inject_faults(fault(GET_JOB, 503, headers=spent, times=9))
    with pytest.raises(RetryLaterError) as caught:
        await read(client)
    assert caught.value.retry_after == reset - asked.clock.at


class SettingsOfCloud(GitHubSettings):
    """Two points a minute for each endpoint: github.com has such a limit, an Enterprise Server none."""

    @property
    def points_per_minute(self) -> int | None:
        """Return the limit."""
        return 2


async def test_the_points_limit_of_an_endpoint_is_kept(asked: World) -> None:
    settings = SettingsOfCloud(asked.url, (AppKey(1, asked.keys.private_pem),))
    client = GitHubClient(settings, asked.clock, asked.telemetry)
    try:
        for _ in range(2):
            assert await read(client) is not None
        with pytest.raises(RetryLaterError, match="the points of this endpoint are spent"):
            await read(client)
    finally:
        await client.close()


async def test_several_choices_are_no_unreadable_answer(asked: World, client: GitHubClient) -> None:
    asked.github.inject_faults(fault(GET_JOB, 300, b"{}", JSON, times=9))
    with pytest.raises(OperatorError, match="300"):
        await read(client)
    assert asked.traffic.count(GET_JOB) == 1


async def test_a_connection_that_breaks_at_each_attempt_is_an_outage(
    asked: World, client: GitHubClient
) -> None:
    asked.github.inject_faults(cut(GET_JOB, times=9))
    with pytest.raises(RetryLaterError, match="disconnected"):
        await read(client)
    assert asked.clock.slept == [1.0, 3.0]


async def test_a_read_without_any_answer_fails(asked: World) -> None:
    asked.github.inject_faults(hang(GET_JOB, times=9))
    async with asked.client(patience=0.2) as client:
        with pytest.raises(RetryLaterError, match="timeout"):
            await read(client)


async def test_an_answer_above_the_size_limit_is_not_read(
    asked: World, client: GitHubClient
) -> None:
    asked.github.inject_faults(fault(GET_JOB, 200, b" " * (MAX_ANSWER + 1), JSON, times=3))
    with pytest.raises(RetryLaterError, match="more than 8388608 bytes"):
        await read(client)


async def test_a_text_in_place_of_json_is_reported_as_such(
    asked: World, client: GitHubClient
) -> None:
    text = {"Content-Type": "text/plain"}
    asked.github.inject_faults(fault(GET_JOB, 200, b"it works", text, times=3))
    with pytest.raises(RetryLaterError, match="status 200 with a body that is not JSON"):
        await read(client)


async def test_a_refused_connection_to_github_is_an_outage(asked: World) -> None:
    async with asked.client() as client:
        assert await read(client) is not None
    asked.url = "http://127.0.0.1:1/api/v3"
    async with asked.client() as client:
        with pytest.raises(RetryLaterError, match="not_connected"):
            await read(client)
    route = "GET /repos/{owner}/{repo}/installation"
    assert asked.telemetry.calls[route, "not_connected"] == 3


LIMITS = [
    (429, {}, {"message": "Too many requests"}, 60.0),
    (429, {"Retry-After": "17"}, {}, 17.0),
    (403, {"Retry-After": "17"}, {"message": "Forbidden"}, 17.0),
    (403, {}, {"message": "You have exceeded a secondary rate limit. Wait."}, 60.0),
    (403, {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": str(int(START) + 500)}, {}, 500.0),
    (403, {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "soon"}, {}, 60.0),
    (403, {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "5"}, {}, 1.0),
    (429, {"Retry-After": "9" * 30}, {}, 3600.0),
    (429, {"Retry-After": "Fri, 01 Jan 2027 00:00:00 GMT"}, {}, 60.0),
]


@pytest.mark.case(
    "403 or 429 with `retry-after`",
    topic="GitHub's REST API",
    source="GitHub: rate limits",
)
@pytest.mark.parametrize(("status", "headers", "body", "delay"), LIMITS)
async def test_all_callers_wait_until_a_rate_limit_is_over(
    asked: World,
    client: GitHubClient,
    status: int,
    headers: dict[str, str],
    body: dict[str, Any],
    delay: float,
) -> None:
    await read(client)
    asked.github.inject_faults(fault(GET_JOB, status, body, headers))
    with pytest.raises(RetryLaterError) as caught:
        await read(client)
    assert caught.value.retry_after == delay
    limit = RateLimit.PRIMARY if "X-RateLimit-Remaining" in headers else RateLimit.SECONDARY
    assert caught.value.limit is limit
    asked.clock.at += delay * 0.75
    with pytest.raises(RetryLaterError) as held:
        await client.find_runner("org:acme", RunnerName("r"))
    assert (held.value.retry_after, held.value.limit) == (delay / 4, limit)
    assert asked.traffic.count(GET_JOB) == 2
    assert asked.traffic.count("GET .*/actions/runners") == 0
    asked.clock.at += delay / 4
    assert await read(client) is not None


@pytest.mark.case(
    "a limit on registrations does not stop reads",
    topic="GitHub's REST API",
    source="GAR rate-limits-and-tuning.md",
)
async def test_a_limit_on_registrations_does_not_stop_reads(
    asked: World, client: GitHubClient
) -> None:
    asked.github.inject_faults(fault("generate-jitconfig", 429, {}, {"Retry-After": "60"}, times=9))
    for _ in range(3):
        with pytest.raises(RetryLaterError):
            await client.register("org:acme", "gpu", RunnerName("r"), ("gpu",))
    assert asked.traffic.count("generate-jitconfig") == 1
    assert await read(client) is not None


async def test_no_request_is_sent_after_an_answer_showed_a_used_up_budget(
    asked: World, client: GitHubClient
) -> None:
    spent = {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": str(int(START) + 30)}
    asked.github.inject_faults(changed(GET_JOB, headers=spent, times=1))
    assert await read(client) is not None
    with pytest.raises(RetryLaterError, match="not sent: the rate limit core is used up") as caught:
        await read(client)
    assert caught.value.limit is RateLimit.PRIMARY
    asked.clock.at += 30
    assert await read(client) is not None


async def test_the_rate_limit_of_one_account_does_not_stop_another(
    asked: World, client: GitHubClient
) -> None:
    asked.administration.install(1, "umbrella", 78)
    asked.github.inject_faults(fault("orgs/acme/actions", 429))
    for _ in range(2):  # GitHub refuses the first request, and the second is not sent.
        with pytest.raises(RetryLaterError) as caught:
            await client.find_runner("org:acme", RunnerName("r"))
        assert caught.value.limit is RateLimit.SECONDARY
    assert await client.find_runner("org:umbrella", RunnerName("r")) is None


@pytest.mark.parametrize("status", [403, 401])
async def test_a_refused_request_raises_operator_error(
    asked: World, client: GitHubClient, status: int
) -> None:
    asked.github.inject_faults(
        fault(GET_JOB, status, {"message": "Must have\x1b admin" * 50}, times=2)
    )
    with pytest.raises(OperatorError, match="Must have  admin") as caught:
        await read(client)
    assert len(str(caught.value)) < 300


@pytest.mark.case(
    "redirects: followed for reads, and only within the API's origin",
    topic="GitHub's REST API",
    source="GitHub: using the REST API",
)
async def test_redirects_of_a_renamed_repository_are_followed_only_for_reads(
    asked: World, client: GitHubClient
) -> None:
    there = {"Location": "/api/v3/repos/acme/widgets/actions/jobs/" + str(JOB)}
    asked.github.inject_faults(fault("GET .*/old/actions", 301, {"message": "Moved"}, there))
    observed = await client.read_job("acme/old", JOB, START)
    assert observed is not None
    asked.github.inject_faults(fault("DELETE", 307, {"message": "Moved"}, there))
    with pytest.raises(OperatorError, match="renamed"):
        await client.delete_runner("org:acme", 1)
    assert asked.traffic.count("DELETE") == 1


@pytest.mark.case(
    "redirects: followed for reads, and only within the API's origin",
    topic="GitHub's REST API",
    source="GitHub: using the REST API",
)
async def test_the_token_never_goes_to_another_origin(asked: World, client: GitHubClient) -> None:
    await read(client)
    other_host = asked.url.replace("127.0.0.1", "localhost")
    assert other_host != asked.url
    for place in (
        *("http://127.0.0.1:1/steal", "http://[", "//evil.example/x", "file:///etc"),
        f"{other_host}/steal",
    ):
        asked.github.inject_faults(fault(GET_JOB, 302, b"", {"Location": place}))
        with pytest.raises(OperatorError, match="foreign_url"):
            await read(client)
    link = {"Link": '<https://evil.example/next>; rel="next"'}
    asked.github.inject_faults(fault("GET .*/actions/runners", 200, {"runners": []}, link))
    with pytest.raises(OperatorError, match="api_url"):
        await client.find_runner("org:acme", RunnerName("r"))


@pytest.mark.parametrize(("scheme", "port"), [("http", 80), ("https", 443)])
def test_an_origin_without_a_port_has_that_of_its_scheme(scheme: str, port: int) -> None:
    assert _origin(f"{scheme}://github.example/x") == _origin(f"{scheme}://github.example:{port}/")
    assert _origin(f"{scheme}://github.example/x") != _origin(f"{scheme}://github.example:1/")


async def test_pages_that_link_in_a_circle_are_an_error(asked: World, client: GitHubClient) -> None:
    link = {"Link": f'<{asked.url}/orgs/acme/actions/runners?page=1>; rel="next"'}
    asked.github.inject_faults(
        fault("GET .*/actions/runners", 200, {"runners": []}, link, times=99)
    )
    with pytest.raises(RetryLaterError, match="never end") as caught:
        await client.find_runner("org:acme", RunnerName("r"))
    assert caught.value.retry_after == OUTAGE_DELAY
    assert asked.traffic.count("GET .*/actions/runners") == 2


@pytest.mark.case(
    "at most 100 requests at the same time",
    topic="GitHub's REST API",
    source="GitHub: rate limits",
)
async def test_the_number_of_requests_in_flight_is_bounded(asked: World) -> None:
    async with asked.client(concurrency=4) as client:
        await read(client)
        asked.traffic.hold = asyncio.Event()
        reads = [asyncio.create_task(read(client)) for _ in range(20)]
        await asked.traffic.until_under_way(4)
        asked.traffic.hold.set()
        assert all(await asyncio.gather(*reads))
    assert asked.traffic.most_under_way == 4


async def test_close_can_be_called_twice_and_ends_requests_in_flight(asked: World) -> None:
    async with asked.client() as client:
        asked.traffic.hold = asyncio.Event()
        pending = asyncio.create_task(read(client))
        await asked.traffic.until_under_way(1)
        await client.close()
        with pytest.raises(asyncio.CancelledError):
            await pending
        await client.close()
        asked.traffic.hold.set()
        with pytest.raises(RetryLaterError, match=r"closed: this client is closed"):
            await read(client)
