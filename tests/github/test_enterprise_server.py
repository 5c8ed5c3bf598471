"""GitHub Enterprise Server: its API has another path, and mostly no rate limits."""

import pytest

from autoscaler.github.client import GitHubClient
from autoscaler.github.settings import AppKey, GitHubSettings
from autoscaler.model.identifiers import JobId, RunnerName
from lab.github.settings import LabRunnerGroup, Limits
from tests.github.conftest import World, job_spec
from tests.github.doubles import START

APPS = (AppKey(1, "pem"),)


@pytest.mark.case(
    "an Enterprise Server has its API under `/api/v3`",
    topic="GitHub's REST API",
    source="GitHub Enterprise Server: REST",
)
@pytest.mark.parametrize("ending", ["", "/"])
async def test_all_requests_use_the_path_of_the_api_url(world: World, ending: str) -> None:
    world.administration.shape_lists(2, filters_names=False)
    groups = [LabRunnerGroup(f"group-{n}", id=n) for n in range(2, 6)]
    world.administration.replace_groups("acme", *groups)
    (job,) = world.github.push([job_spec()])
    for n in range(5, 0, -1):
        failed = world.administration.log_delivery(1, f"g{n}", START - n, redelivery=False)
        failed.status_code, failed.status = 502, "Invalid HTTP Response: 502"
    keys = (AppKey(1, world.keys.private_pem),)
    settings = GitHubSettings(world.url + ending, keys)
    client = GitHubClient(settings, world.clock, world.telemetry)
    for number in range(4):
        await client.register("org:acme", "group-5", RunnerName(f"r{number}"), ("gpu",))
    found = await client.find_runner("org:acme", RunnerName("r"))
    assert found is None, "all pages were read"
    assert await client.delete_runner("org:acme", 1) is True
    assert await client.read_job("acme/widgets", JobId(job.id), START) is not None
    assert (await client.redeliver_failed(START - 3600)).asked == 5
    await client.close()
    assert world.traffic.count("runner-groups") == 3
    assert world.traffic.count("GET .*/actions/runners") == 2
    assert world.traffic.count("GET .*/deliveries") == 3
    assert all(call.split(" ")[1].startswith("/api/v3/") for call in world.traffic.calls)
    assert not [call for call in world.traffic.calls if "v3//" in call]


@pytest.mark.parametrize(
    ("api_url", "points"),
    [
        ("https://api.github.com", 900),
        ("https://api.acme.ghe.com", 900),
        ("https://ghe.example.com/api/v3", None),
        ("https://github.com.evil.example/api/v3", None),
    ],
)
def test_the_points_limit_applies_only_to_github_com(api_url: str, points: int | None) -> None:
    assert GitHubSettings(api_url, APPS).points_per_minute == points


@pytest.mark.case(
    "an Enterprise Server has no limits unless its administrator sets them",
    topic="GitHub's REST API",
    source="GitHub Enterprise Server: rate limits; actions/stale#1227",
)
async def test_a_server_without_limits_gets_as_many_requests_as_needed(world: World) -> None:
    world.administration.install(2, "acme", 90)
    async with world.client(apps=(1, 2)) as client:
        for number in range(400):
            await client.register("org:acme", "gpu", RunnerName(f"r{number}"), ("gpu",))
    assert len(world.github.runners) == 400
    reported = {(app, account, resource) for app, account, resource, *_ in world.telemetry.budgets}
    assert (1, "acme", "actions_runner_registration") in reported
    assert {(remaining, limit) for *_, remaining, limit in world.telemetry.budgets} == {
        (None, None)
    }


async def test_the_metrics_show_githubs_budget_by_app_and_bucket(world: World) -> None:
    world.administration.limit(Limits())
    world.administration.leave_registrations(77, 100)
    async with world.client() as client:
        await client.register("org:acme", "gpu", RunnerName("r"), ("gpu",))
    assert world.telemetry.budgets == [
        (1, "", "core", 4999, 5000),
        (1, "", "core", 4998, 5000),
        (1, "acme", "core", 4999, 5000),
        (1, "acme", "actions_runner_registration", 99, 10_000),
    ]
