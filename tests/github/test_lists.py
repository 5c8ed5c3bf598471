"""Lists of repositories, runs, jobs and runners, and requests with an ETag."""

from collections.abc import Callable
from typing import Any

import pytest
from structlog.testing import capture_logs

from autoscaler.controller.ports.github import GitHubError, OperatorError, RetryLaterError
from autoscaler.controller.ports.github_lists import ListedRepository, ListedRun, RunStatus
from autoscaler.github.client import GitHubClient
from autoscaler.github.lists.page_cache import MAX_PAGES
from autoscaler.github.lists.reader import FASTEST
from autoscaler.github.requests.outcomes import OUTAGE_DELAY
from autoscaler.model.identifiers import RunnerName
from autoscaler.model.jobs.job import RunOrigin
from lab.github.records import Job
from lab.github.settings import Patience
from tests.github.conftest import World, job_spec
from tests.github.doubles import START
from tests.github.faults import changed, fault
from tests.github.runners import LabRunner

WIDGETS = "acme/widgets"


def push(world: World, run: int, *names: str) -> list[Job]:
    """Queue jobs of a run."""
    return world.github.push([job_spec(name, run_id=run) for name in names or ("test",)])


def each(key: str, changes: Callable[[int], dict[str, Any]]) -> Callable[[Any], Any]:
    """Return a function that changes the items of a list by their index."""
    return lambda page: page | {key: [one | changes(n) for n, one in enumerate(page[key])]}


async def test_the_newest_runs_are_one_page_and_runs_of_a_state_are_all_pages(
    world: World, client: GitHubClient
) -> None:
    world.administration.shape_lists(2)
    for number in range(1, 8):
        for job in push(world, number)[: number > 3]:
            world.github.cancel(job)
    newest = await client.lists.newest_runs(WIDGETS)
    assert [one.id for one in newest.items] == [7, 6]
    assert newest.calls == 1
    queued = await client.lists.runs(WIDGETS, "queued")
    assert [one.id for one in queued.items] == [3, 2, 1]
    assert queued.calls == 2
    assert not any(one.completed for one in queued.items)
    assert all(one.completed for one in newest.items)


@pytest.mark.case(
    "GitHub shows 1,000 runs of a state and no more: all queued runs are seen",
    topic="GitHub's REST API",
    source="GitHub: query results",
)
async def test_all_runs_of_a_state_are_read_although_github_ends_its_list(
    world: World, client: GitHubClient
) -> None:
    world.administration.shape_lists(
        2
    )  # the lab's GitHub then ends its filtered lists after 20 runs
    for number in range(1, 51):
        push(world, number)
        world.clock.at += number % 3  # several runs have the same second
    queued = await client.lists.runs(WIDGETS, "queued")
    assert [one.id for one in queued.items] == list(range(50, 0, -1))
    again = await client.lists.runs(WIDGETS, "queued")
    assert (again.items, again.calls) == (queued.items, 0)


async def test_a_list_that_ends_exactly_where_github_would_cut_it_is_whole(
    world: World, client: GitHubClient
) -> None:
    world.administration.shape_lists(2)
    for number in range(1, 21):
        push(world, number)
        world.clock.at += 5
    queued = await client.lists.runs(WIDGETS, "queued")
    assert [one.id for one in queued.items] == list(range(20, 0, -1))
    assert queued.calls == 11


@pytest.mark.parametrize("changes", [{}, {"created_at": None}, {"created_at": "yesterday"}])
async def test_more_runs_than_github_shows_of_one_second_are_an_error_and_no_part_of_a_list(
    world: World, client: GitHubClient, changes: dict[str, Any]
) -> None:
    world.administration.shape_lists(2)
    for number in range(1, 51):
        push(world, number)
    said = each("workflow_runs", lambda _: changes)
    world.github.inject_faults(changed("/actions/runs", said))
    with pytest.raises(RetryLaterError, match="runs of one second, or without a time"):
        await client.lists.runs(WIDGETS, "queued")


async def test_a_run_is_marked_by_its_state_and_its_attempt(
    world: World, client: GitHubClient
) -> None:
    marks = set()

    async def note() -> None:
        (listed,) = (await client.lists.run(WIDGETS, 1)).items
        marks.add(listed.mark)

    one, other = push(world, 1, "one", "other")
    await note()
    world.github.cancel(one)
    await note()
    world.github.cancel(other)
    world.github.rerun_failed(one.run)
    await note()
    assert len(marks) == 3
    assert (await client.lists.run(WIDGETS, 2)).items == ()


async def test_completed_runs_share_one_mark_until_one_is_rerun(
    world: World, client: GitHubClient
) -> None:
    """Most kept runs are completed, and separate marks would double the memory."""
    for number in (1, 2, 3):
        for job in push(world, number):
            world.github.cancel(job)
        world.clock.at += 3600
    for job in world.github.rerun_failed(world.github.jobs[-1].run):
        world.github.cancel(job)
    third, second, first = [one.mark for one in (await client.lists.newest_runs(WIDGETS)).items]
    assert first is second
    assert third != first


async def test_listed_jobs_are_events_marked_as_read(world: World, client: GitHubClient) -> None:
    states = ["queued", "pending", "waiting", "in_progress", "completed", "thinking"]
    push(world, 7, *states)
    said = each("jobs", lambda n: {"status": states[n]})
    world.github.inject_faults(changed("/runs/7/jobs", said))
    listed = await client.lists.jobs(WIDGETS, 7, START)
    assert [one.state.value for one in listed.items] == [
        "queued", "waiting", "waiting", "in_progress", "completed",
    ]  # fmt: skip
    assert all(one.read and one.repository == WIDGETS and one.run_id == 7 for one in listed.items)
    # Only the jobs of the latest attempt.
    assert world.traffic.calls[-1].endswith("/actions/runs/7/jobs?filter=latest&per_page=100")
    unknown = await client.lists.jobs(WIDGETS, 8, START)
    assert (unknown.items, unknown.calls) == ((), 1)


@pytest.mark.case(
    "one job has a new state: the other jobs of the run are seen",
    topic="GitHub's events",
    source="GitHub: choosing runners",
)
@pytest.mark.parametrize("bad", [{"id": "7"}, {"status": "dreaming"}], ids=["id", "status"])
async def test_one_malformed_job_does_not_hide_the_others(
    world: World, client: GitHubClient, bad: dict[str, Any]
) -> None:
    """The list of that run must not be requested for ever."""
    first, _, third = push(world, 7, "one", "two", "three")
    world.github.inject_faults(
        changed("/runs/7/jobs", each("jobs", lambda n: bad if n == 1 else {}))
    )
    with capture_logs() as lines:
        listed = await client.lists.jobs(WIDGETS, 7, START)
    assert [one.id for one in listed.items] == [first.id, third.id]
    found = [(line["event"], line["repository"], line["run"], line["jobs"]) for line in lines]
    assert found == [("jobs_unreadable", WIDGETS, 7, 1)]


@pytest.mark.parametrize(
    "odd", [{"labels": ["a\nb"]}, {"labels": ["x"] * 101}, {"created_at": "yesterday"}]
)
async def test_a_job_with_an_odd_field_is_listed(
    world: World, client: GitHubClient, odd: dict[str, Any]
) -> None:
    """Anyone can write any `runs-on`."""
    jobs = push(world, 7, "one", "two")
    world.github.inject_faults(
        changed("/runs/7/jobs", each("jobs", lambda n: odd if n == 1 else {}))
    )
    listed = await client.lists.jobs(WIDGETS, 7, START)
    assert [one.id for one in listed.items] == [one.id for one in jobs]


async def test_registrations_are_listed_by_scope(world: World, client: GitHubClient) -> None:
    world.administration.shape_lists(2)
    first, second, _ = [
        LabRunner((await client.register("org:acme", "gpu", RunnerName(name), ("gpu",))).jit_config)
        for name in ("r1", "r2", "r3")
    ]
    push(world, 7)
    await second.start()
    world.clock.at += Patience().presence + 1  # it is silent
    await first.connect()
    listed = await client.lists.runners("org:acme")
    assert [(one.name, one.online, one.busy) for one in listed.items] == [
        ("r1", True, False),
        ("r2", False, True),
        ("r3", False, False),
    ]
    assert (await client.lists.runners("repo:acme/widgets")).items == ()


async def test_repositories_are_those_of_the_installation_without_archived_ones(
    world: World, client: GitHubClient
) -> None:
    said: list[dict[str, Any]] = [
        {"full_name": "acme/widgets", "pushed_at": "2026-11-01T10:00:00Z", "archived": False},
        {"full_name": "acme/old", "pushed_at": None, "archived": True},
        {"full_name": "acme/new", "pushed_at": None, "archived": False},
    ]
    world.github.inject_faults(changed("/repositories", each("repositories", lambda n: said[n])))
    listed = await client.lists.repositories("org:acme")
    assert [one.name for one in listed.items] == ["acme/widgets", "acme/new"]
    assert listed.items[0].pushed_at == 1793527200.0
    alone = await client.lists.repositories("repo:acme/widgets")
    assert list(alone.items) == [ListedRepository("acme/widgets")]
    assert alone.calls == 0


@pytest.mark.case(
    "one of an account's Apps is suspended, limited or not permitted: the repositories that the "
    "other Apps see are found",
    topic="GitHub's events",
    source="GitHub: suspending an installation",
)
@pytest.mark.parametrize(
    ("route", "status", "body"),
    [
        (
            "installation/repositories",
            403,
            {"message": "You have exceeded a secondary rate limit."},
        ),
        ("installation/repositories", 403, {"message": "Resource not accessible by integration"}),
        ("installation/repositories", 502, {}),
        ("installation/repositories", 404, {"message": "Not Found"}),
        ("78/access_tokens", 403, {"message": "This installation has been suspended"}),
    ],
    ids=["limit", "permission", "outage", "hidden", "suspended"],
)
async def test_one_failing_app_does_not_hide_the_repositories_of_another(
    world: World, route: str, status: int, body: dict[str, Any]
) -> None:
    world.administration.install(2, "acme", 78)
    by = None if "tokens" in route else 78
    world.github.inject_faults(fault(route, status, body, times=100, by=by))
    async with world.client(apps=(1, 2)) as client:
        listed = await client.lists.repositories("org:acme")
        assert [one.name for one in listed.items] == ["acme/widgets", "acme/lab", "acme/old"]
        assert (listed.calls, listed.whole) == (1, False)
        world.github.inject_faults()
        world.clock.at += 3600.0
        assert (await client.lists.repositories("org:acme")).whole
        world.github.inject_faults(fault("installation/repositories", status, body, times=100))
        with pytest.raises((OperatorError, RetryLaterError)):
            await client.lists.repositories("org:acme")


async def test_a_list_whose_pages_link_in_a_circle_is_an_error(
    world: World, client: GitHubClient
) -> None:
    link = {"Link": f'<{world.url}/orgs/acme/actions/runners?page=1>; rel="next"'}
    none = {"total_count": 0, "runners": []}
    world.github.inject_faults(fault("GET .*/actions/runners", 200, none, link, times=9))
    with pytest.raises(RetryLaterError, match="never end") as caught:
        await client.lists.runners("org:acme")
    assert caught.value.retry_after == OUTAGE_DELAY


@pytest.mark.case(
    "a list with more pages than the controller reads does not count as complete",
    topic="GitHub's events",
    source="GitHub: pagination",
)
@pytest.mark.parametrize("too_many", [False, True])
async def test_a_list_with_too_many_pages_is_incomplete(
    world: World, client: GitHubClient, too_many: bool
) -> None:
    """An incomplete list of runners would show that the other runners are not busy."""
    world.administration.shape_lists(1)
    count = MAX_PAGES + too_many
    for number in range(count - 3):
        world.administration.create_repository(f"acme/w{number}")
    with capture_logs() as lines:
        listed = await client.lists.repositories("org:acme")
    assert (len(listed.items), listed.whole) == (MAX_PAGES, not too_many)
    reported = [(line["event"], line["app"], line["scope"], line["shown"]) for line in lines]
    assert reported == [("repositories_cut", "app 1 on acme", "org:acme", MAX_PAGES)] * too_many
    url = f"{world.url}/orgs/acme/actions/runners?page="
    pages = [
        fault(
            "GET .*/actions/runners",
            200,
            {"runners": [{"id": n, "name": f"r{n}", "status": "online", "busy": False}]},
            {"Link": f'<{url}{n + 1}>; rel="next"'} if n < count else {},
        )
        for n in range(1, count + 1)
    ]
    world.github.inject_faults(*pages)
    if too_many:
        with pytest.raises(RetryLaterError, match="more than 200 pages") as caught:
            await client.lists.runners("org:acme")
        assert caught.value.retry_after == OUTAGE_DELAY
    else:
        assert len((await client.lists.runners("org:acme")).items) == MAX_PAGES


@pytest.mark.parametrize("pushed_at", ["soon", "2026-11-01T10:00:00+99:00"])
async def test_an_invalid_push_time_makes_the_list_an_error(
    world: World, client: GitHubClient, pushed_at: str
) -> None:
    said = each("repositories", lambda _: {"pushed_at": pushed_at})
    world.github.inject_faults(changed("/repositories", said))
    with pytest.raises(RetryLaterError):
        await client.lists.repositories("org:acme")


async def test_a_malformed_list_raises_retry_later(world: World, client: GitHubClient) -> None:
    world.github.inject_faults(fault("/runs", status=200, body={"workflow_runs": [{"id": -1}]}))
    with pytest.raises(RetryLaterError):
        await client.lists.newest_runs(WIDGETS)
    assert ListedRun(1, RunStatus(False), "") not in (await client.lists.newest_runs(WIDGETS)).items


async def test_the_pace_of_lists_is_what_is_left_of_the_hourly_limit_above_the_reserve(
    world: World, client: GitHubClient
) -> None:
    assert client.lists.pace("org:acme") == 1.0
    await client.lists.newest_runs(WIDGETS)
    assert client.lists.pace("org:acme") == FASTEST  # a server without limits
    limits = {
        "x-ratelimit-limit": "5000",
        "x-ratelimit-remaining": "4600",
        "x-ratelimit-reset": str(int(world.clock.now()) + 1800),
        "x-ratelimit-resource": "core",
    }
    body: dict[str, Any] = {"workflow_runs": []}
    world.github.inject_faults(fault("/runs", status=200, body=body, headers=limits))
    await client.lists.newest_runs(WIDGETS)
    assert client.lists.pace("org:acme") == pytest.approx(3600 / 1800)
    limits["x-ratelimit-remaining"] = "1000"
    world.github.inject_faults(fault("/runs", status=200, body=body, headers=limits))
    await client.lists.newest_runs(WIDGETS)
    assert client.lists.pace("org:acme") == 0.0
    calls = len(world.traffic.calls)
    with pytest.raises(RetryLaterError):
        await client.lists.newest_runs(WIDGETS)
    assert await client.find_runner("org:acme", RunnerName("unknown")) is None
    assert len(world.traffic.calls) == calls + 1


OWN = {"id": 1, "private": True}
QUEUE = "gh-readonly-queue/main/pr-104-929f8209d40f77f4abc622a499c93a83babdbe64"
"""The branch of a merge group, as in GitHub's example of `merge_group` (@octokit/webhooks-examples)."""


@pytest.mark.parametrize(
    ("said", "origin"),
    [
        ({}, RunOrigin(False, False, "main")),
        ({"repository": {"id": 1, "private": False}}, RunOrigin(False, True, "main")),
        ({"head_branch": None}, RunOrigin(False, False, None)),
        ({"head_branch": "x" * 1025}, RunOrigin(False, False, None)),
        ({"event": "pull_request"}, RunOrigin(False, False, None)),
        ({"event": "pull_request_target"}, RunOrigin(False, False, None)),
        ({"event": "merge_group", "head_branch": QUEUE}, RunOrigin(False, False, QUEUE)),
        ({"head_repository": {"id": 2}}, RunOrigin(True, False, None)),
        ({"head_repository": None}, RunOrigin(True, False, None)),
        ({"head_repository": ...}, None),
        ({"head_branch": ...}, None),
        ({"event": ...}, None),
        ({"repository": ...}, None),
        ({"repository": {"id": 1}}, None),
    ],
)
async def test_a_run_shows_where_it_comes_from(
    world: World, client: GitHubClient, said: dict[str, Any], origin: RunOrigin | None
) -> None:
    """The run of a deleted fork has no head repository. `...` is a key that an answer lacks."""
    usual = {"event": "push", "head_branch": "main", "repository": OWN, "head_repository": OWN}

    def say(run: dict[str, Any]) -> dict[str, Any]:
        if "workflow_runs" in run:
            return run | {"workflow_runs": [say(one) for one in run["workflow_runs"]]}
        return {key: value for key, value in {**run, **usual, **said}.items() if value is not ...}

    push(world, 7)
    world.github.inject_faults(changed("/runs", say))
    assert await client.run_origin(WIDGETS, 7) == origin
    (listed,) = (await client.lists.newest_runs(WIDGETS)).items
    assert listed.origin == origin
    assert await client.run_origin(WIDGETS, 8) is None


async def test_an_answer_about_another_run_is_an_error(world: World, client: GitHubClient) -> None:
    answer = {"id": 8, "repository": {"id": 1}, "head_repository": {"id": 1}}
    world.github.inject_faults(fault("actions/runs/7", 200, answer))
    with pytest.raises(RetryLaterError, match="another run"):
        await client.run_origin(WIDGETS, 7)


async def test_the_newest_repositories_of_an_organization_take_one_call(
    world: World, client: GitHubClient
) -> None:
    for number in range(31):
        world.clock.at += 86_400.0
        world.administration.create_repository(f"acme/r{number:02}")
    world.github.inject_faults(
        changed(
            "/orgs/acme/repos",
            lambda page: [one | {"archived": one["name"] == "r30"} for one in page],
        )
    )
    found = await client.lists.newest_repositories("org:acme")
    assert found.calls == 1
    assert [one.name for one in found.items] == [f"acme/r{n:02}" for n in range(29, 0, -1)]
    newest = found.items[0].created_at
    assert newest is not None
    assert newest - (found.items[1].created_at or 0.0) == 86_400.0
    assert world.traffic.count(r"GET /api/v3/orgs/acme/repos") == 1
    link = {
        "Link": f'<{world.url}/orgs/acme/repos?page=2>; rel="next"',
        "Content-Type": "application/json",
    }
    world.github.inject_faults(fault("/orgs/acme/repos", 200, b"[]", link))
    assert (await client.lists.newest_repositories("org:acme")).calls == 1


async def test_a_list_that_no_app_can_see_is_named(world: World, client: GitHubClient) -> None:
    not_found = {"message": "Not Found"}
    world.github.inject_faults(fault("/orgs/acme/actions/runners", 404, not_found, times=9))
    with pytest.raises(GitHubError, match=r"/actions/runners: 404 Not Found"):
        await client.lists.runners("org:acme")


@pytest.mark.parametrize("scope", ["org:acme", "repo:acme/widgets"])
@pytest.mark.parametrize(
    ("runtime", "changes", "end"),
    [
        (1793527200.0, {}, 1793527200.0),
        (None, {}, None),
        (1793527200.0, {"registration_deprecates_at": "2026-10-01T00:00:00Z"}, 1790812800.0),
        (None, {"registration_deprecates_at": "2026-10-01T00:00:00Z"}, 1790812800.0),
        (1793527200.0, {"registration_deprecates_at": None}, 1793527200.0),
        (1793527200.0, {"runtime_deprecates_at": "0001-01-01T00:00:00Z"}, None),
    ],
)
async def test_the_end_of_a_runner_version_is_the_earlier_of_githubs_times(
    world: World,
    client: GitHubClient,
    scope: str,
    runtime: float | None,
    changes: dict[str, Any],
    end: float | None,
) -> None:
    world.github.end_runner_version("2.338.0", runtime)
    world.github.inject_faults(changed("/deprecations/", lambda shown: shown | changes))
    assert await client.lists.runner_version_end(scope, "2.338.0") == end


async def test_an_unknown_runner_version_is_an_error_and_not_one_without_an_end(
    world: World, client: GitHubClient
) -> None:
    """A GitHub Enterprise Server without the route gives the same answer."""
    with pytest.raises(OperatorError, match="404 Not Found"):
        await client.lists.runner_version_end("org:acme", "2.1.0")


@pytest.mark.parametrize(
    ("status", "body", "error"),
    [
        (403, b'{"message": "Resource not accessible by integration"}', OperatorError),
        (404, b'{"message": "Not Found"}', OperatorError),
        (502, b"<html>", RetryLaterError),
        (200, b'{"message": "a dictionary"}', RetryLaterError),
        (200, b'{"runner_version": "2", "runtime_deprecates_at": "yesterday"}', RetryLaterError),
        (200, b"<html>", RetryLaterError),
    ],
)
async def test_a_runner_version_that_cannot_be_read_disturbs_no_other_request(
    world: World, client: GitHubClient, status: int, body: bytes, error: type[Exception]
) -> None:
    world.github.inject_faults(fault("/deprecations/", status=status, body=body, times=100))
    with capture_logs() as lines, pytest.raises(error):
        await client.lists.runner_version_end("org:acme", "2.338.0")
    # An App that is refused comes last for a minute, at this repository only.
    assert {line["scope"] for line in lines} <= {"actions/runner"}
    with capture_logs() as lines:
        assert (await client.lists.runners("org:acme")).items == ()
    assert lines == []
