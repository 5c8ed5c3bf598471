"""Several Apps for one account: which App is used first, and when another takes over."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from structlog.testing import capture_logs

from autoscaler.controller.ports.github import (
    OperatorError,
    RegistrationOutcomeUnknownError,
    RetryLaterError,
)
from autoscaler.github.apps.selection import _LIMITS_TIMEOUT
from autoscaler.github.client import GitHubClient
from autoscaler.model.identifiers import JobId, RunnerName
from lab.github.settings import AnswerFault, LabRunnerGroup, Limits
from lab.github.workflows import FIRST_JOB
from tests.github.conftest import World, job_spec
from tests.github.doubles import START
from tests.github.faults import changed, cut, fault, hang
from tests.patience import PATIENCE

REGISTER = "generate-jitconfig"
FIRST, SECOND = 77, 90
NO_ACCESS = {"message": "Resource not accessible by integration"}
JOB, UNKNOWN = JobId(FIRST_JOB), JobId(FIRST_JOB + 1)
LIMIT_HEADERS = [
    f"X-RateLimit-{name}" for name in ("Limit", "Remaining", "Used", "Reset", "Resource")
]


@pytest_asyncio.fixture
async def two(world: World) -> AsyncIterator[GitHubClient]:
    """A client of two Apps, both installed on acme."""
    world.administration.install(2, "acme", SECOND)
    async with world.client(apps=(1, 2)) as client:
        yield client


def leave(world: World, registrations: dict[int, int]) -> None:
    """Limit requests, and leave each installation so many registrations until the reset."""
    world.administration.limit(Limits())
    for installation, remaining in registrations.items():
        world.administration.leave_registrations(installation, remaining)


async def register(client: GitHubClient, *numbers: int) -> None:
    for number in numbers:
        await client.register("org:acme", "gpu", RunnerName(f"r{number}"), ("gpu",))


@pytest.mark.case(
    "several Apps share the registrations",
    topic="GitHub's REST API",
    source="GAR rate-limits-and-tuning.md",
)
async def test_a_registration_uses_the_app_with_the_most_headroom(
    world: World, two: GitHubClient
) -> None:
    leave(world, {FIRST: 100, SECOND: 5000})
    await register(two, *range(5))
    assert world.registered_by == [SECOND] * 5


@pytest.mark.case(
    "several Apps share the registrations",
    topic="GitHub's REST API",
    source="GAR rate-limits-and-tuning.md",
)
async def test_headroom_is_read_from_the_answers_and_used_evenly(
    world: World, two: GitHubClient
) -> None:
    leave(world, {FIRST: 3, SECOND: 5})
    await register(two, *range(8))
    assert world.registered_by[:2] == [SECOND, SECOND]
    assert Counter(world.registered_by) == {FIRST: 3, SECOND: 5}
    with pytest.raises(RetryLaterError, match="actions_runner_registration is used up") as caught:
        await register(two, 9)
    assert caught.value.retry_after == 3600.0
    assert world.traffic.count(REGISTER) == 8
    world.clock.at += 3600
    await register(two, 9)


@pytest.mark.case(
    "reports about that bucket's size differ: the controller reads the answers and `/rate_limit`",
    topic="GitHub's REST API",
    source="GAR rate-limits-and-tuning.md",
)
async def test_the_registration_limit_is_read_once_before_the_first_registration(
    world: World, two: GitHubClient
) -> None:
    leave(world, {FIRST: 10, SECOND: 20})
    await two.find_runner("org:acme", RunnerName("r"))
    assert world.traffic.count("/rate_limit") == 0
    await register(two, *range(4))
    assert world.traffic.count("/rate_limit") == 2


async def test_one_app_alone_needs_no_comparison(world: World, client: GitHubClient) -> None:
    await register(client, 1)
    assert world.traffic.count("/rate_limit") == 0


@pytest.mark.parametrize(
    "fault",
    [
        fault("/rate_limit", 500, times=9),
        fault("/rate_limit", 200, {"resources": {"core": 1}}),
        fault("/rate_limit", 403, NO_ACCESS, times=9),
    ],
    ids=["500", "malformed", "403"],
)
async def test_an_unreadable_rate_limit_stops_no_registration(
    world: World, two: GitHubClient, fault: AnswerFault
) -> None:
    leave(world, {FIRST: 10, SECOND: 20})
    world.github.inject_faults(fault)
    await register(two, 1, 2)
    assert len(world.registered_by) == 2


@pytest.mark.case(
    "`/rate_limit` does not answer",
    topic="GitHub's REST API",
    source="GitHub: rate limit",
)
async def test_a_hanging_rate_limit_read_delays_only_the_first_registration_by_a_second(
    world: World, two: GitHubClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The waits are counted, not measured: both reads hang until the end of the test."""
    leave(world, {FIRST: 10, SECOND: 20})
    world.github.inject_faults(hang("/rate_limit", times=2))
    loop, waits = asyncio.get_running_loop(), list[float]()
    call_later = loop.call_later

    def note(delay: float, *arguments: Any, **options: Any) -> asyncio.TimerHandle:
        waits.append(delay)
        return call_later(delay, *arguments, **options)

    monkeypatch.setattr(loop, "call_later", note)
    await register(two, 1)
    assert waits.count(_LIMITS_TIMEOUT) == 1
    await register(two, *range(2, 5))
    assert waits.count(_LIMITS_TIMEOUT) == 1
    assert len(world.registered_by) == 4
    assert world.traffic.count("/rate_limit") == 2


async def test_a_late_rate_limit_answer_is_used_for_later_registrations(
    world: World, two: GitHubClient
) -> None:
    bucket = {"limit": 10_000, "remaining": 10, "reset": int(START) + 600}
    reported = {"resources": {"actions_runner_registration": bucket}}
    leave(world, {SECOND: 5000})
    over = asyncio.Event()
    world.github.inject_faults(
        fault("/rate_limit", 200, reported, by=FIRST, until=over),
        changed(REGISTER, headers=dict.fromkeys(LIMIT_HEADERS), by=FIRST),
    )
    await register(two, 1, 2)
    assert world.registered_by == [FIRST, FIRST], "no limit is known of it"
    over.set()
    for number in range(3, 100):
        await register(two, number)
        if SECOND in world.registered_by:
            break
    assert world.registered_by[-1] == SECOND


async def test_without_limits_the_load_is_shared_evenly(world: World, two: GitHubClient) -> None:
    await register(two, *range(10))
    assert Counter(world.registered_by) == {FIRST: 5, SECOND: 5}
    assert world.traffic.count("/rate_limit") == 2


@pytest.mark.case(
    "an App that is not installed, suspended, or refused",
    topic="GitHub's REST API",
    source="GitHub: REST, Apps",
)
async def test_an_app_without_an_installation_is_not_used(world: World) -> None:
    world.administration.uninstall(1, "acme")
    world.administration.install(2, "acme", SECOND)
    async with world.client(apps=(1, 2)) as client:
        await register(client, *range(4))
        assert world.registered_by == [SECOND] * 4
        assert world.traffic.count("installation$") == 2
        world.administration.install(1, "acme", FIRST)
        world.clock.at += 300
        await register(client, 4)  # starts the read of the limit, and does not wait for it
        await world.traffic.until_called("installation$", 3)
        for number in range(5, 100):
            await register(client, number)
            if FIRST in world.registered_by:
                break
    assert world.registered_by[-1] == FIRST
    assert world.traffic.count("installation$") == 3


async def test_each_app_looks_up_each_scope(world: World) -> None:
    world.administration.install(2, "umbrella", SECOND)
    async with world.client(apps=(1, 2)) as client:
        await register(client, 1)
        await client.register("repo:umbrella/lab", "Default", RunnerName("r2"), ("gpu",))
    assert world.registered_by == [FIRST, SECOND]
    assert world.traffic.count("/orgs/acme/installation") == 2
    assert world.traffic.count("/repos/umbrella/lab/installation") == 2


async def test_another_scope_of_the_account_is_looked_up_too(world: World) -> None:
    async with world.client(apps=(1, 2)) as client:
        await register(client, 1)
        world.administration.install(2, "acme", SECOND)
        for number in range(2, 5):
            await client.register("repo:acme/lab", "Default", RunnerName(f"r{number}"), ("gpu",))
    assert world.traffic.count("/repos/acme/lab/installation") == 1
    assert SECOND in world.registered_by


@pytest.mark.case(
    "an App that is not installed, suspended, or refused",
    topic="GitHub's REST API",
    source="GitHub: REST, Apps",
)
@pytest.mark.parametrize(
    "fault",
    [
        fault("installations/77/access_tokens", 500, times=99),
        fault("installations/77/access_tokens", 403, {"message": "suspended"}, times=99),
        fault("installations/77/access_tokens", 404, {"message": "Not Found"}, times=99),
        fault(REGISTER, 403, NO_ACCESS, by=FIRST, times=99),
        fault(REGISTER, 404, {"message": "Not Found"}, by=FIRST, times=99),
        fault(REGISTER, 401, {"message": "Bad credentials"}, times=2, by=FIRST),
        fault(REGISTER, 429, {}, {"Retry-After": "600"}, by=FIRST, times=99),
    ],
    ids=["token 500", "suspended", "uninstalled", "403", "404", "401", "429"],
)
async def test_another_app_takes_over_from_a_failing_one(
    world: World, two: GitHubClient, fault: AnswerFault
) -> None:
    world.github.inject_faults(fault)
    with capture_logs() as lines:
        await register(two, *range(4))
    assert world.registered_by == [SECOND] * 4
    failing = [line for line in lines if line["event"] == "app_failing"]
    assert all((one["app"], one["scope"]) == ("app 1 on acme", "acme") for one in failing)
    tried = world.traffic.count("installations/77/access_tokens")
    await register(two, 5)
    assert world.traffic.count("installations/77/access_tokens") == tried


async def test_a_failing_app_is_tried_again_after_a_minute(world: World, two: GitHubClient) -> None:
    leave(world, {FIRST: 5000, SECOND: 50})
    world.github.inject_faults(fault(REGISTER, 403, NO_ACCESS, by=FIRST))
    with capture_logs() as lines:
        await register(two, 1)
    (line,) = [line for line in lines if line["event"] == "app_failing"]
    assert (line["app"], line["scope"]) == ("app 1 on acme", "acme")
    assert NO_ACCESS["message"] in line["error"]
    world.clock.at += 59
    await register(two, 2)
    world.clock.at += 1
    await register(two, 3)
    assert world.registered_by == [SECOND, SECOND, FIRST]


async def test_an_app_with_a_refused_key_does_not_affect_the_other_app(world: World) -> None:
    world.administration.install(2, "acme", SECOND)
    world.administration.delete_app(1)
    async with world.client(apps=(1, 2)) as client:
        await register(client, 1, 2)
    assert world.registered_by == [SECOND, SECOND]
    assert world.traffic.count("installation$") == 3, "401 is asked once more with a new JWT"


@pytest.mark.case(
    "a registration that may exist is not requested by another App",
    topic="GitHub's REST API",
    source="ubicloud#692",
)
@pytest.mark.parametrize(
    "fault",
    [
        fault(REGISTER, 502),
        cut(REGISTER, done=True),
        fault(REGISTER, 201, {}, done=True),
    ],
    ids=["502", "cut", "malformed"],
)
async def test_a_registration_that_may_have_been_made_is_not_sent_by_another_app(
    world: World, two: GitHubClient, fault: AnswerFault
) -> None:
    world.github.inject_faults(fault)
    with pytest.raises(RegistrationOutcomeUnknownError):
        await register(two, 1)
    assert world.traffic.count(REGISTER) == 1


@pytest.mark.parametrize("status", [409, 422])
async def test_a_refused_request_is_not_repeated_with_another_app(
    world: World, two: GitHubClient, status: int
) -> None:
    world.github.inject_faults(fault(REGISTER, status, {"message": "Validation failed"}))
    with pytest.raises(Exception, match="Validation failed"):
        await register(two, 1)
    assert world.traffic.count(REGISTER) == 1


async def test_if_all_apps_are_on_hold_the_earliest_end_is_reported(
    world: World, two: GitHubClient
) -> None:
    world.github.inject_faults(
        fault(REGISTER, 429, {}, {"Retry-After": "500"}, by=FIRST),
        fault(REGISTER, 429, {}, {"Retry-After": "40"}, by=SECOND),
    )
    with pytest.raises(RetryLaterError) as caught:
        await register(two, 1)
    assert caught.value.retry_after == 40.0
    assert world.traffic.count(REGISTER) == 2
    world.clock.at += 40
    await register(two, 1)
    assert world.registered_by == [SECOND]


async def test_if_no_app_is_allowed_operator_error_is_raised(
    world: World, two: GitHubClient
) -> None:
    world.github.inject_faults(fault(REGISTER, 403, NO_ACCESS, times=9))
    with pytest.raises(OperatorError, match="not accessible"):
        await register(two, 1)
    assert world.traffic.count(REGISTER) == 2


async def test_if_one_app_is_on_hold_and_the_other_not_allowed_the_error_is_retry_later(
    world: World, two: GitHubClient
) -> None:
    world.github.inject_faults(
        fault(REGISTER, 403, NO_ACCESS, by=FIRST),
        fault(REGISTER, 429, {}, {"Retry-After": "40"}, by=SECOND),
    )
    with pytest.raises(RetryLaterError):
        await register(two, 1)


@pytest.mark.parametrize("blind", [FIRST, SECOND])
async def test_a_job_that_one_app_cannot_see_is_read_by_the_other(
    world: World, two: GitHubClient, blind: int
) -> None:
    world.github.push([job_spec()])
    not_found = {"message": "Not Found"}
    world.github.inject_faults(fault("/actions/jobs/", 404, not_found, by=blind, times=99))
    assert await two.read_job("acme/widgets", JOB, START) is not None
    assert await two.read_job("acme/widgets", UNKNOWN, START) is None


async def test_a_job_is_not_reported_missing_while_another_app_is_on_hold(
    world: World, two: GitHubClient
) -> None:
    world.github.inject_faults(fault("/actions/jobs/", 429, {}, {"Retry-After": "40"}, by=SECOND))
    with pytest.raises(RetryLaterError):
        await two.read_job("acme/widgets", UNKNOWN, START)


async def test_an_app_that_may_not_read_a_job_is_reported_with_the_repository(
    world: World, two: GitHubClient
) -> None:
    world.github.push([job_spec()])
    world.github.inject_faults(fault("/actions/jobs/", 403, NO_ACCESS, by=FIRST, times=99))
    with capture_logs() as lines:
        await two.read_job("acme/widgets", JOB, START)
    (line,) = [line for line in lines if line["event"] == "app_failing"]
    assert (line["app"], line["scope"]) == ("app 1 on acme", "acme/widgets")


async def test_any_app_with_access_looks_up_and_deletes_a_registration(
    world: World, two: GitHubClient
) -> None:
    await register(two, 1)
    world.github.inject_faults(fault("/actions/runners", 403, NO_ACCESS, by=FIRST, times=99))
    found = await two.find_runner("org:acme", RunnerName("r1"))
    assert found is not None
    assert await two.delete_runner("org:acme", found.github_id) is True


@pytest.mark.case(
    "one App may not read runner groups, or does not see one",
    topic="GitHub's REST API",
    source="GitHub: runner groups in REST",
)
async def test_a_refusal_of_one_app_does_not_answer_another_apps_registration(
    world: World, two: GitHubClient
) -> None:
    """Both Apps read the runner groups at the same time, independently."""
    over = asyncio.Event()
    world.github.inject_faults(
        fault("/runner-groups", 403, NO_ACCESS, by=FIRST, until=over),
        fault(r"GET .*/actions/runners\?", 403, NO_ACCESS, by=FIRST),
    )
    refused = asyncio.create_task(register(two, 1))
    await world.traffic.until_called("/runner-groups", 1)
    await two.find_runner("org:acme", RunnerName("r"))  # from now on the first App is tried last
    async with asyncio.timeout(PATIENCE):
        await register(two, 2)
    assert not refused.done()
    over.set()
    await refused
    assert world.registered_by == [SECOND, SECOND]


@pytest.mark.case(
    "one App may not read runner groups, or does not see one",
    topic="GitHub's REST API",
    source="GitHub: runner groups in REST",
)
@pytest.mark.parametrize("blind", [FIRST, SECOND])
async def test_a_group_that_one_app_does_not_see_is_used_by_the_other(
    world: World, two: GitHubClient, blind: int
) -> None:
    none = {"total_count": 1, "runner_groups": [{"id": 1, "name": "Default"}]}
    world.github.inject_faults(fault("/runner-groups", 200, none, by=blind, times=99))
    await register(two, *range(4))
    assert set(world.registered_by) == {FIRST + SECOND - blind}
    assert world.traffic.count("/runner-groups") <= 2
    with pytest.raises(
        OperatorError, match=r"no runner group 'none'.* or correct runner_group of the scope"
    ):
        await two.register("org:acme", "none", RunnerName("r9"), ("gpu",))


async def test_a_recreated_runner_group_is_read_again_by_every_app(
    world: World, two: GitHubClient
) -> None:
    await register(two, 1, 2)
    assert set(world.registered_by) == {FIRST, SECOND}
    world.administration.replace_groups("acme", LabRunnerGroup("gpu", id=9))
    world.github.inject_faults(fault(REGISTER, 422, {"message": "Invalid runner group"}))
    with pytest.raises(OperatorError):
        await register(two, 3)
    await register(two, 4, 5)
    assert [runner.group_id for runner in world.github.runners] == [5, 5, 9, 9]
