"""Every route of the lab's GitHub against GitHub's own OpenAPI description."""

import asyncio
import json
import re
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest
from yarl import URL

from lab.github.server import LabGitHub
from lab.github.settings import LabApp, LabGitHubOptions, Limits, Patience
from tests.lab.github.conftest import ORGANIZATIONS
from tests.lab.github.description import Exchange, description
from tests.lab.github.harness import (
    APP,
    SECRET,
    Answer,
    Client,
    HandClock,
    Key,
    Listener,
    job,
)

RUNNERS = "/orgs/acme/actions/runners"
OF_REPOSITORY = "/repos/acme/rocket/actions/runners"
ROCKET = "/repos/acme/rocket/actions"
DELIVERIES = "/app/hook/deliveries"

# Statuses that GitHub's documentation gives to any endpoint, whether its description says so or not.
ANYWHERE = {
    401: "docs.github.com/rest/authentication: no, bad or expired credentials",
    403: "docs.github.com/rest/using-the-rest-api: a rate limit, or a resource out of reach",
    404: "docs.github.com/rest/using-the-rest-api/troubleshooting: also what may not be seen",
    429: "docs.github.com/rest/using-the-rest-api/rate-limits: a secondary limit",
    400: "docs.github.com/rest/using-the-rest-api/troubleshooting: a body that is no JSON",
}
# Where the description is narrower than what GitHub sends.
_NULLABLE = "nullable, yet its enum lacks null, which OpenAPI 3.0.3 wants there too"
KNOWN = {
    ("GET /app/installations", "*/account"): (
        "described as user and enterprise at once (allOf); one installation's own has anyOf"
    ),
    ("GET /repos/{owner}/{repo}/actions/jobs/{job_id}", "conclusion"): _NULLABLE,
    ("GET /repos/{owner}/{repo}/actions/runs/{run_id}/jobs", "jobs/*/conclusion"): _NULLABLE,
}
# Fields that GitHub sends and its description lacks.
_PERMISSION = "an App's permissions have any names (additionalProperties)"
UNNAMED = {
    "/permissions/actions": _PERMISSION,
    "/permissions/administration": _PERMISSION,
    "/permissions/organization_self_hosted_runners": _PERMISSION,
    "/status": "every error has it, as basic-error says; a plain validation error has it too",
    "/*/account/user_view_type": "in simple-user; the list of installations repeats an older one",
}


_NO_API = re.compile(r" /(lab|organizations|settings|\{pages)\b")
"""Routes of the lab, and GitHub's pages for people."""


@dataclass
class Recorder(Client):
    """A client that keeps every exchange."""

    exchanges: list[Exchange] = field(default_factory=list)

    async def call(self, method: str, path: str, secret: str | None, body: Any = None) -> Answer:
        answer = await super().call(method, path, secret, body)
        parts = urlsplit(path)
        reported = parts.path + (f"?{parts.query}" if parts.query else "")
        if not parts.path.startswith("/lab/"):
            exchange = Exchange(method, reported, body, answer.status, answer.headers, answer.json)
            self.exchanges.append(exchange)
        return answer


async def _apps(client: Recorder) -> None:
    await client.as_app("GET", "/app/installations?per_page=1")
    await client.as_app("GET", "/orgs/acme/installation")
    await client.as_app("GET", "/repos/acme/rocket/installation")
    for path in ("/orgs/none/installation", "/repos/acme/none/installation"):
        await client.as_app("GET", path)
    await client.as_app("POST", "/app/installations/1/access_tokens")
    await client.call("GET", "/app/installations", "no.such.jwt")
    await client.call("GET", RUNNERS, None)


async def _runners(client: Recorder) -> None:
    for at, taken in ((RUNNERS, "a"), (OF_REPOSITORY, "b")):
        register = f"{at}/generate-jitconfig"
        body: dict[str, Any] = {"name": taken, "runner_group_id": 1, "labels": ["gpu", "Linux"]}
        made = await client.ask("POST", register, body)
        await client.ask("POST", register, body)
        await client.ask("POST", register, {**body, "labels": []})
        await client.ask("POST", register, {"labels": ["x"]})
        await client.ask("POST", register, {**body, "name": "c", "runner_group_id": 99})
        await client.ask("POST", register, "no JSON")
        await client.ask("GET", f"{at}?per_page=1&page=1&name={taken}")
        number = made.json["runner"]["id"]
        await client.ask("GET", f"{at}/{number}")
        await client.ask("DELETE", f"{at}/{number}")
        await client.ask("DELETE", f"{at}/{number}")
        await client.ask("GET", f"{at}/{number}")
    await client.ask("GET", "/orgs/acme/actions/runner-groups?per_page=2&page=2")
    for number in (2, 3, 99):
        await client.ask(
            "GET", f"/orgs/acme/actions/runner-groups/{number}/repositories?per_page=1"
        )
    await client.ask("GET", "/orgs/globex/actions/runners")
    client.lab.administration.create_repository("acme/new")
    await client.ask("GET", "/orgs/acme/repos?sort=created&direction=desc&per_page=1")


async def _jobs(client: Recorder) -> None:
    lab = client.lab
    waiting, running, _ = lab.push(
        [job("wait", approval=60.0), job("run"), job("next", needs=("run",))]
    )
    path = f"{ROCKET}/jobs/{running.id}"
    jobs = f"{ROCKET}/runs/{running.run.id}/jobs"
    await client.ask("GET", path)
    await client.ask("GET", f"{ROCKET}/jobs/{waiting.id}")
    await client.ask("GET", f"{ROCKET}/runs?status=queued&per_page=5")
    for at in (RUNNERS, OF_REPOSITORY):
        where = "/orgs/acme" if at == RUNNERS else "/repos/acme/rocket"
        runner = await client.runner(f"busy at {where}", at=where)
        number = await runner.take()
        if number is None:
            (extra,) = lab.push([job("more")])
            number = await runner.take()
            assert number == extra.id
        await runner.send("started", job=number)
        await client.ask("GET", f"{ROCKET}/jobs/{number}")
        await client.ask("GET", f"{at}/{runner.id}")
        await client.ask("GET", at)
        await client.ask("DELETE", f"{at}/{runner.id}")
        await runner.send("completed", job=number, conclusion="failure")
    lab.cancel(waiting)
    await client.ask("GET", path)
    await client.ask("GET", f"{jobs}?filter=all&per_page=2")
    lab.rerun_failed(running.run)
    await client.ask("POST", f"{ROCKET}/jobs/{running.id}/rerun")
    await client.ask("POST", f"{ROCKET}/runs/{running.run.id}/rerun-failed-jobs")
    (alone,) = lab.push([job("alone", fork="stranger/rocket")])
    lab.cancel(alone)
    await client.ask("POST", f"{ROCKET}/jobs/{alone.id}/rerun")
    (failed,) = lab.push([job("failed")])
    lab.cancel(failed)
    await client.ask("POST", f"{ROCKET}/runs/{failed.run.id}/rerun-failed-jobs")
    await client.ask("GET", f"{jobs}?filter=latest")
    await client.ask("GET", f"{ROCKET}/runs")
    await client.ask("GET", f"{ROCKET}/runs/{running.run.id}")
    await client.ask("GET", "/installation/repositories?per_page=1")
    for unknown in ("jobs/1", "runs/1", "runs/1/jobs"):
        await client.ask("GET", f"{ROCKET}/{unknown}")
    for unknown in ("jobs/1/rerun", "runs/1/rerun-failed-jobs"):
        await client.ask("POST", f"{ROCKET}/{unknown}")
    await client.ask("GET", "/repos/acme/none/actions/runs")


async def _deliveries(client: Recorder) -> None:
    await client.lab.delivered()
    listed = await client.as_app("GET", f"{DELIVERIES}?per_page=2&status=success")
    assert listed.next_url is not None
    await client.as_app("GET", listed.next_url)
    number = listed.json[0]["id"]
    await client.as_app("GET", f"{DELIVERIES}/{number}")
    await client.as_app("POST", f"{DELIVERIES}/{number}/attempts")
    await client.as_app("GET", f"{DELIVERIES}/7")
    await client.as_app("POST", f"{DELIVERIES}/7/attempts")
    await client.as_app("GET", f"{DELIVERIES}?cursor=3")
    await client.as_app("GET", f"{DELIVERIES}?status=odd")


async def _setup(client: Recorder) -> None:
    """What `autoscaler init` asks for."""
    await client.as_app("GET", "/app")
    hook = {"url": "https://h.example/webhook", "content_type": "json", "insecure_ssl": "0"}
    await client.as_app("PATCH", "/app/hook/config", {**hook, "secret": SECRET})
    await client.as_app("GET", "/app/hook/config")
    client.lab.point_webhook(None)
    found = await client.ask("GET", "/repos/acme/rocket")
    group = {
        "name": "new",
        "visibility": "selected",
        "selected_repository_ids": [found.json["id"]],
        "allows_public_repositories": False,
    }
    await client.ask("POST", "/orgs/acme/actions/runner-groups", group)
    manifest = {"name": "new", "url": "https://h.example", "redirect_url": "http://127.0.0.1:1/"}
    form = {
        "manifest": json.dumps(manifest),
        "name": "new",
        "state": "s",
        "began": str(time.time()),
    }
    page = f"{client.lab.api_url}/organizations/acme/settings/apps"
    async with client.session.post(page, data=form, allow_redirects=False) as answer:
        code = URL(answer.headers["Location"]).query["code"]
    for _ in range(2):
        await client.call("POST", f"/app-manifests/{code}/conversions", None)


async def _itself(client: Recorder) -> None:
    await client.call("GET", "/", None)
    await client.call("GET", "/meta", None)
    await client.call("GET", "/versions", None)
    await client.ask("GET", "/rate_limit")
    client.lab.administration.limit(Limits(points_per_minute=2, registrations_per_hour=1))
    await client.ask("GET", "/rate_limit")
    for name in ("x", "y"):
        await client.register(name)
    for _ in range(3):
        await client.ask("GET", RUNNERS)


SCENES: Iterable[Callable[[Recorder], Awaitable[None]]] = (
    _apps, _runners, _jobs, _deliveries, _setup, _itself,
)  # fmt: skip


async def _record(key: Key) -> tuple[list[Exchange], set[str]]:
    listener = Listener()
    await listener.start()
    apps = [LabApp(APP, key.public, SECRET, listener.url)]
    lab = LabGitHub(
        apps, ORGANIZATIONS, HandClock(), LabGitHubOptions(patience=Patience(real_floor=0.0))
    )
    await lab.start()
    try:
        async with aiohttp.ClientSession() as session:
            client = Recorder(lab, key, session)
            for scene in SCENES:
                await scene(client)
        assert lab._server is not None
        assert lab._server.app is not None
        routes = {
            f"{route.method} {route.resource.canonical}"
            for route in lab._server.app.router.routes()
            if route.resource is not None and route.method not in {"HEAD", "*"}
        }
    finally:
        await lab.close()
        await listener.close()
    return client.exchanges, {route for route in routes if not _NO_API.search(route)}


@pytest.fixture(scope="module")
def recorded(key: Key) -> tuple[list[Exchange], set[str]]:
    """A conversation in which every route answers with every status it has, and the routes."""
    return asyncio.run(_record(key))


def _route(exchange: Exchange) -> str:
    return description().route(exchange.method, exchange.path)


NEWER_ROUTES = {
    f"GET {scope}/actions/runners/deprecations/{{version}}"
    for scope in ("/orgs/{org}", "/repos/{owner}/{repo}")
}
"""Routes of 2026-09-03 that version 23.0.2 of the description lacks (`test_lab_github_product`)."""


@pytest.mark.systems
def test_every_route_is_tested_and_exists_at_github(
    recorded: tuple[list[Exchange], set[str]],
) -> None:
    exchanges, routes = recorded
    described = routes - NEWER_ROUTES
    assert routes > NEWER_ROUTES
    assert {_route(exchange) for exchange in exchanges} == described
    answered = {_route(exchange) for exchange in exchanges if exchange.status < 300}
    assert answered == described
    assert len(exchanges) > 70


@pytest.mark.systems
@pytest.mark.case(
    "the controller's requests and the lab's answers conform to GitHub's OpenAPI description",
    topic="GitHub's REST API",
    source="@octokit/openapi",
)
def test_every_answer_matches_githubs_description(
    recorded: tuple[list[Exchange], set[str]],
) -> None:
    wrong, excused = set(), set()
    for exchange in recorded[0]:
        route = _route(exchange)
        if exchange.status not in description().described(route):
            continue
        for fault in description().answer_faults(exchange):
            place = (route, fault.partition(":")[0])
            excused.add(place)
            if place not in KNOWN:
                wrong.add(f"{route} {exchange.status}: {fault}")
    assert not wrong
    assert excused == set(KNOWN), "an exception that is none any more"


@pytest.mark.systems
def test_no_answer_has_a_key_that_github_does_not_know(
    recorded: tuple[list[Exchange], set[str]],
) -> None:
    met = set()
    for exchange in recorded[0]:
        if exchange.status not in description().described(_route(exchange)):
            continue
        unnamed = description().invented(exchange)
        if exchange.status >= 400 or exchange.path == "/app" or "account" in "".join(unnamed):
            met |= unnamed
            unnamed -= set(UNNAMED)
        # Every status must be described for its own route.
        assert not unnamed, exchange
    assert met == set(UNNAMED), "an exception that is none any more"


@pytest.mark.systems
def test_undescribed_statuses_are_those_of_any_endpoint(
    recorded: tuple[list[Exchange], set[str]],
) -> None:
    met = set()
    for exchange in recorded[0]:
        if exchange.status in description().described(_route(exchange)):
            continue
        met.add(exchange.status)
        assert exchange.status in ANYWHERE, exchange
        error = "#/components/schemas/basic-error"
        assert description().schema_faults(error, exchange.data) == [], exchange
    assert met == set(ANYWHERE), "an exception that is none any more"


@pytest.mark.systems
def test_the_lab_accepts_described_requests_and_refuses_others(
    recorded: tuple[list[Exchange], set[str]],
) -> None:
    refused = 0
    for exchange in recorded[0]:
        faults = description().request_faults(exchange)
        if exchange.status < 300:
            assert faults == [], exchange
        if exchange.status == 422 and exchange.method == "POST":
            refused += 1
            assert faults, exchange
    assert refused >= 4


@pytest.mark.systems
def test_the_check_finds_a_wrong_answer(recorded: tuple[list[Exchange], set[str]]) -> None:
    registered = next(one for one in recorded[0] if one.method == "POST" and one.status == 201)
    listed = next(one for one in recorded[0] if "name=a" in one.path and one.status == 200)
    (runner,) = listed.data["runners"]
    broken: tuple[dict[str, Any], ...] = (
        {**listed.data, "total_count": "1"},
        {"runners": []},
        {**listed.data, "runners": [{**runner, "labels": None}]},
    )
    for data in broken:
        spoiled = Exchange("GET", listed.path, None, 200, {}, data)
        assert description().answer_faults(spoiled), data
    extra = Exchange("GET", listed.path, None, 200, {}, {**listed.data, "colour": "red"})
    assert description().invented(extra) == {"/colour"}
    bare = Exchange("POST", registered.path, registered.body, 201, {}, {})
    assert description().answer_faults(bare)
    with pytest.raises(LookupError):
        description().route("GET", "/no/such/thing")
