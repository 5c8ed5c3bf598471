"""Several Apps with few points left, and the order of requests with few connections."""

import asyncio
from collections import Counter
from dataclasses import replace
from functools import partial

import pytest

from autoscaler.controller.ports.github import RetryLaterError
from autoscaler.github.apps.authentication import App, Installation
from autoscaler.github.apps.selection import AppSelection
from autoscaler.github.apps.targets import Target
from autoscaler.github.requests.api import Api
from autoscaler.github.requests.budget import Budget
from autoscaler.github.requests.exchange import Effect, Importance, Request
from autoscaler.github.requests.request_queue import RequestQueue
from autoscaler.github.requests.transport import Transport
from autoscaler.github.settings import AppKey, GitHubSettings
from autoscaler.model.identifiers import JobId, RunnerName
from tests.github.conftest import World
from tests.github.doubles import START

REGISTER = "generate-jitconfig"
FIRST, SECOND = 77, 90


@pytest.mark.case(
    "several Apps: each has points of its own",
    topic="GitHub's REST API",
    source="GitHub: rate limits",
)
async def test_used_up_points_of_one_app_do_not_limit_the_others(world: World) -> None:
    budget = Budget(20)  # four registrations a minute
    queue = RequestQueue(budget, world.clock, 10)
    settings = GitHubSettings(world.url, (AppKey(1, "unused"),))
    transport = Transport(settings, world.clock, world.telemetry)
    api = Api(transport, queue, world.clock, world.telemetry)
    apps = [App(AppKey(number, world.keys.private_pem), world.clock.now) for number in (1, 2)]
    world.administration.install(2, "acme", SECOND)
    both = [
        Installation(app, "acme", number, api, world.clock)
        for app, number in zip(apps, (FIRST, SECOND), strict=True)
    ]
    selection = AppSelection(api, apps, budget, world.clock, world.clock)
    request = Request(
        "POST",
        "/orgs/{org}/actions/runners/generate-jitconfig",
        {"org": "acme"},
        effect=Effect.REGISTER,
        importance=Importance.REGISTER,
    )
    for number in range(8):
        body = {"name": f"r{number}", "runner_group_id": 1, "labels": ["gpu"]}
        asked = replace(request, body=body)
        await selection.run(both, Target("acme"), asked, partial(api.ask, asked))
    assert Counter(world.registered_by) == {FIRST: 4, SECOND: 4}
    with pytest.raises(RetryLaterError, match="points of this endpoint are spent") as caught:
        await selection.run(both, Target("acme"), request, partial(api.ask, request))
    assert 59.0 <= caught.value.retry_after <= 60.0
    assert world.traffic.count(REGISTER) == 8
    await selection.close()
    await transport.close()


@pytest.mark.case(
    "registrations, checks and deletions go before lists",
    topic="GitHub's REST API",
    source="GitHub: using the REST API",
)
async def test_requests_that_wait_for_a_connection_go_by_importance(world: World) -> None:
    async with world.client(concurrency=1) as client:
        await client.register("org:acme", "gpu", RunnerName("r1"), ("gpu",))
        await client.redeliver_failed(START)
        old = await client.register("org:acme", "gpu", RunnerName("old"), ("gpu",))
        world.traffic.calls.clear()
        world.traffic.hold = asyncio.Event()
        jobs = [client.read_job("acme/widgets", JobId(number), START) for number in (1, 2)]
        waiting = [
            asyncio.create_task(work)
            for work in (
                jobs[0],
                client.redeliver_failed(START),
                client.delete_runner("org:acme", old.github_id),
                jobs[1],
                client.register("org:acme", "gpu", RunnerName("r2"), ("gpu",)),
            )
        ]
        await world.traffic.until_under_way(1)
        world.traffic.hold.set()
        await asyncio.gather(*waiting)
    paths = [call.split("?")[0].rpartition("/api/v3/")[2] for call in world.traffic.calls]
    assert paths == [
        "repos/acme/widgets/actions/jobs/1",
        "orgs/acme/actions/runners/generate-jitconfig",
        "repos/acme/widgets/actions/jobs/2",
        "orgs/acme/actions/runners/2",
        "app/hook/deliveries",
    ]
