"""An independent client, githubkit, whose models are strict, drives the lab from App to redelivery."""

from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest
from githubkit import AppAuthStrategy, AppInstallationAuthStrategy, GitHub
from githubkit.cache import MemCacheStrategy
from githubkit.exception import RequestFailed, SecondaryRateLimitExceeded

from lab.github.settings import Limits
from tests.lab.github.harness import APP, EPOCH, Client, Key, Listener, StandIn, job

Make = Callable[..., Awaitable[Client]]
App = GitHub[AppAuthStrategy]
Installation = GitHub[AppInstallationAuthStrategy]


@pytest.fixture(params=["", "/api/v3"], ids=["github.com", "enterprise server"])
async def client(request: pytest.FixtureRequest, make: Make, listener: Listener) -> Client:
    return await make(listener.url, base_path=request.param)


@pytest.fixture
async def app(client: Client, key: Key) -> AsyncIterator[App]:
    # Left to itself it would repeat a registration that a 502 answered.
    auth = AppAuthStrategy(str(APP), key.private.decode())
    github = GitHub(
        auth,
        base_url=client.lab.api_url,
        auto_retry=False,
        http_cache=False,
        cache_strategy=MemCacheStrategy(),
    )
    async with github:
        yield github


@pytest.fixture
async def acme(app: App) -> AsyncIterator[Installation]:
    found = (await app.rest.apps.async_get_org_installation("acme")).parsed_data
    assert (found.app_id, found.target_type) == (APP, "Organization")
    async with app.with_auth(app.auth.as_installation(found.id)) as github:
        yield github


async def test_installations_and_their_tokens(app: App) -> None:
    listed = (await app.rest.apps.async_list_installations(per_page=1)).parsed_data
    (first,) = listed
    assert first.app_id == APP
    answer = await app.rest.apps.async_create_installation_access_token(first.id)
    assert answer.status_code == 201
    assert answer.parsed_data.token.startswith("ghs_")
    with pytest.raises(RequestFailed) as refused:
        await app.rest.apps.async_create_installation_access_token(1)
    assert refused.value.response.status_code == 404


@pytest.mark.case(
    "a client library repeats a registration request after a 502",
    topic="GitHub's REST API",
    source="githubkit",
)
async def test_runners_from_registration_to_removal(acme: Installation, client: Client) -> None:
    actions = acme.rest.actions
    register = partial(
        actions.async_generate_runner_jitconfig_for_org,
        "acme",
        name="kit-1",
        runner_group_id=2,
        labels=["gpu", "linux"],
    )
    registered = (await register()).parsed_data
    assert (registered.runner.name, registered.runner.status) == ("kit-1", "offline")
    with pytest.raises(RequestFailed) as taken:
        await register()
    assert taken.value.response.status_code == 409
    stand_in = StandIn(client, registered.runner.id, registered.encoded_jit_config)
    assert await stand_in.send("connect") == 204
    listed = (
        await actions.async_list_self_hosted_runners_for_org("acme", name="kit-1")
    ).parsed_data
    assert [(one.id, one.status, one.busy) for one in listed.runners] == [
        (registered.runner.id, "online", False)
    ]
    (pushed,) = client.lab.push([job(group="gpu")])
    assert await stand_in.take() == pushed.id
    one = await actions.async_get_self_hosted_runner_for_org("acme", registered.runner.id)
    assert one.parsed_data.busy
    with pytest.raises(RequestFailed) as busy:
        await actions.async_delete_self_hosted_runner_from_org("acme", registered.runner.id)
    assert busy.value.response.status_code == 422
    client.lab.cancel(pushed)
    gone = await actions.async_delete_self_hosted_runner_from_org("acme", registered.runner.id)
    assert gone.status_code == 204
    for call in (
        actions.async_get_self_hosted_runner_for_org,
        actions.async_delete_self_hosted_runner_from_org,
    ):
        with pytest.raises(RequestFailed) as unknown:
            await call("acme", registered.runner.id)
        assert unknown.value.response.status_code == 404


async def test_runner_groups(acme: Installation) -> None:
    listed = await acme.rest.actions.async_list_self_hosted_runner_groups_for_org("acme")
    groups = listed.parsed_data
    assert [group.name for group in groups.runner_groups] == ["Default", "gpu", "anvils"]


async def test_jobs_of_a_run(acme: Installation, client: Client) -> None:
    actions = acme.rest.actions
    first, second = client.lab.push([job("one"), job("two")])
    runner = await client.runner("a")
    await runner.run()
    client.lab.cancel(second)
    runs = (await actions.async_list_workflow_runs_for_repo("acme", "rocket")).parsed_data
    assert [(run.id, run.status, run.conclusion) for run in runs.workflow_runs] == [
        (first.run.id, "completed", "cancelled")
    ]
    listed = await actions.async_list_jobs_for_workflow_run("acme", "rocket", first.run.id)
    jobs = listed.parsed_data.jobs
    assert [(one.id, one.conclusion, one.runner_name) for one in jobs] == [
        (first.id, "success", "a"),
        (second.id, "cancelled", None),
    ]
    assert jobs[0].started_at == datetime.fromtimestamp(EPOCH, UTC)
    one = (await actions.async_get_job_for_workflow_run("acme", "rocket", first.id)).parsed_data
    assert (one.labels, one.run_attempt) == (["gpu"], 1)


@pytest.mark.case(
    "a redelivery keeps its `X-GitHub-Delivery`",
    topic="GitHub's events",
    source="GitHub: redelivering",
)
async def test_deliveries_are_read_and_sent_again(
    app: App, client: Client, listener: Listener
) -> None:
    await client.lab.delivered()
    listener.status = 500
    client.lab.push([job()])
    await client.lab.delivered()
    apps = app.rest.apps
    (failed,) = (await apps.async_list_webhook_deliveries(status="failure")).parsed_data
    assert (failed.event, failed.action, failed.status_code) == ("workflow_job", "queued", 500)
    details = (await apps.async_get_webhook_delivery(failed.id)).parsed_data
    assert details.guid == failed.guid
    listener.status = 200
    assert (await apps.async_redeliver_webhook_delivery(failed.id)).status_code == 202
    await client.lab.delivered()
    newest = (await apps.async_list_webhook_deliveries(per_page=1)).parsed_data[0]
    assert (newest.guid, newest.redelivery, newest.status_code) == (failed.guid, True, 200)


async def test_limits_are_read_and_met(acme: Installation, client: Client) -> None:
    with pytest.raises(RequestFailed) as lifted:
        await acme.rest.rate_limit.async_get()
    assert lifted.value.response.status_code == 404
    client.lab.administration.limit(Limits(points_per_minute=4, registrations_per_hour=7))
    limits = (await acme.rest.rate_limit.async_get()).parsed_data.resources
    assert limits.core.limit == 5000
    assert limits.actions_runner_registration
    assert limits.actions_runner_registration.remaining == 7
    with pytest.raises(SecondaryRateLimitExceeded) as hit:
        await acme.rest.actions.async_generate_runner_jitconfig_for_org(
            "acme", name="a", runner_group_id=1, labels=["gpu"]
        )
    assert hit.value.retry_after == timedelta(seconds=60)
