"""Faults of REST answers, and whether the request was carried out."""

import asyncio
from collections.abc import Awaitable, Callable

import aiohttp
import pytest

from lab.github.settings import AnswerFault, Limits
from tests.lab.github.harness import Client, HandClock, job, until

Make = Callable[..., Awaitable[Client]]
RUNNERS = "/orgs/acme/actions/runners"
REGISTER = "POST /orgs/{org}/actions/runners/generate-jitconfig"


def _names(client: Client) -> list[str]:
    return [one.name for one in client.lab.runners]


@pytest.mark.case(
    "HTML, 5xx, 401, 403, 404, 409, 422, 429, broken, cut and malformed answers each have a policy",
    topic="GitHub's REST API",
    source="GitHub: troubleshooting the REST API",
)
@pytest.mark.parametrize(
    ("status", "retry_after"), [(500, None), (503, 7), (403, 30), (429, 60), (404, None)]
)
async def test_a_refused_request_has_githubs_answer_and_no_effect(
    client: Client, status: int, retry_after: int | None
) -> None:
    await client.token()
    client.lab.inject_faults(AnswerFault("status", status=status, retry_after=retry_after))
    refused = await client.register("a")
    assert (refused.status, _names(client)) == (status, [])
    assert isinstance(refused.json["message"], str)
    assert refused.headers.get("retry-after") == (str(retry_after) if retry_after else None)
    assert (await client.register("a")).status == 201
    assert client.lab.calls[REGISTER, status] == 1
    assert client.lab.spoiled == {"status": 1}


@pytest.mark.case(
    "a page of HTML with JSON's content type",
    topic="GitHub's REST API",
    source="gidgethub",
)
async def test_html_is_sent_with_the_type_of_html_and_of_json(client: Client) -> None:
    secret = await client.token()
    client.lab.inject_faults(AnswerFault("html"), AnswerFault("html_as_json", status=200))
    for status, kind in ((502, "text/html"), (200, "application/json")):
        url = client.lab.api_url + RUNNERS
        headers = {"Authorization": f"Bearer {secret}"}
        async with client.session.get(url, headers=headers) as answer:
            assert (answer.status, answer.content_type) == (status, kind)
            assert (await answer.text()).startswith("<!DOCTYPE html>")


@pytest.mark.case(
    "a registration request without a clear answer: 5xx, HTML, broken JSON, timeout, connection "
    "closed or cut",
    topic="GitHub's REST API",
    source="runs-on#30",
)
async def test_a_registration_can_be_carried_out_without_an_answer(client: Client) -> None:
    await client.token()
    client.lab.inject_faults(
        AnswerFault("dropped", REGISTER, done=True), AnswerFault("status", REGISTER, done=True)
    )
    with pytest.raises(aiohttp.ServerDisconnectedError):
        await client.register("a")
    assert (await client.register("b")).status == 502
    assert _names(client) == ["a", "b"]
    assert (await client.register("a")).status == 409


async def test_a_dropped_request_has_no_effect(client: Client) -> None:
    await client.token()
    client.lab.inject_faults(AnswerFault("dropped", REGISTER))
    with pytest.raises(aiohttp.ServerDisconnectedError):
        await client.register("a")
    assert _names(client) == []
    assert client.lab.calls[REGISTER, 0] == 1


async def test_a_callback_runs_when_a_fault_happens(client: Client) -> None:
    await client.token()
    seen: list[list[str]] = []
    client.lab.inject_faults(
        AnswerFault("dropped", REGISTER, then=lambda: seen.append(_names(client))),
        AnswerFault("dropped", REGISTER, done=True, then=lambda: seen.append(_names(client))),
        AnswerFault("cut", REGISTER, then=lambda: seen.append(_names(client))),
    )
    for name in ("a", "b", "c"):
        with pytest.raises(aiohttp.ClientError):
            await client.register(name)
    assert seen == [[], ["b"], ["b", "c"]]
    assert client.lab.names_registered == {"b": 1, "c": 1}


@pytest.mark.case(
    "bodies that break off, and bodies that are not JSON",
    topic="GitHub's REST API",
    source="RFC 9112, 8",
)
async def test_a_cut_body_is_incomplete_and_a_garbled_body_is_not_json(client: Client) -> None:
    await client.token()
    client.lab.inject_faults(AnswerFault("cut", REGISTER), AnswerFault("garbled", REGISTER))
    with pytest.raises(aiohttp.ClientPayloadError):
        await client.register("a")
    with pytest.raises(ValueError, match=r"JSON|Unterminated|Expecting"):
        await client.register("b")
    assert _names(client) == ["a", "b"]


@pytest.mark.case(
    "no answer before the timeout",
    topic="GitHub's REST API",
    source="GitHub: troubleshooting the REST API",
)
async def test_a_stalled_request_is_given_up_by_its_caller(client: Client) -> None:
    await client.token()
    client.lab.inject_faults(AnswerFault("stall", "GET /orgs/{org}/actions/runners"))
    asking = asyncio.create_task(client.ask("GET", RUNNERS))
    await until(lambda: client.lab.spoiled["stall"] == 1)
    asking.cancel()
    assert (await client.ask("GET", RUNNERS)).status == 200


async def test_faults_apply_only_to_their_route_number_and_share(make: Make) -> None:
    lasting = AnswerFault("status", REGISTER, times=None)
    client = await make(answer_faults=(lasting,))
    assert [(await client.register("a")).status for _ in range(3)] == [502] * 3
    assert (await client.ask("GET", RUNNERS)).status == 200
    client.lab.inject_faults(AnswerFault("status", times=3, share=0.5))
    statuses = [(await client.ask("GET", RUNNERS)).status for _ in range(40)]
    assert statuses.count(502) == 3
    assert statuses[:3] != [502] * 3
    client.lab.inject_faults(lasting)
    client.lab.inject_faults()
    assert (await client.register("a")).status == 201


@pytest.mark.case(
    "at most 100 requests at the same time",
    topic="GitHub's REST API",
    source="GitHub: rate limits",
)
async def test_too_many_at_once_are_refused(make: Make) -> None:
    client = await make(limits=Limits(concurrent=2))
    token = await client.token()
    client.lab._limits.enter("installation 51000001")
    client.lab._limits.enter("installation 51000001")
    refused = await client.call("GET", RUNNERS, token)
    assert (refused.status, refused.headers["retry-after"]) == (429, "60")
    assert (await client.ask("GET", "/orgs/globex/actions/runners", org="globex")).status == 200
    client.lab._limits.leave("installation 51000001")
    assert [(await client.call("GET", RUNNERS, token)).status for _ in range(3)] == [200] * 3


@pytest.mark.case(
    "an Enterprise Server has its API under `/api/v3`",
    topic="GitHub's REST API",
    source="GitHub Enterprise Server: REST",
)
async def test_an_enterprise_server_has_its_paths_behind_its_base(make: Make) -> None:
    client = await make(base_path="/api/v3")
    origin = client.lab.api_url.removesuffix("/api/v3")
    assert client.lab.api_url == f"{origin}/api/v3"
    for name in ("a", "b"):
        assert (await client.register(name)).status == 201
    listed = await client.ask("GET", f"{RUNNERS}?per_page=1")
    assert listed.next_url == f"{client.lab.api_url}{RUNNERS}?per_page=1&page=2"
    assert "x-github-enterprise-version" in listed.headers
    assert (await client.ask("GET", listed.next_url)).json["runners"][0]["name"] == "b"
    (pushed,) = client.lab.push([job()])
    shown = await client.ask("GET", f"/repos/acme/rocket/actions/jobs/{pushed.id}")
    assert shown.json["url"].startswith(client.lab.api_url)
    assert shown.json["html_url"].startswith(f"{origin}/acme/rocket/")
    runner = await client.runner("c")
    assert runner.config["server"] == origin
    assert await runner.run() == pushed.id
    assert (await client.call("GET", origin + RUNNERS, await client.token())).status == 404


@pytest.mark.case(
    "lists of runners are up to 60 seconds old: `busy` may be wrong",
    topic="GitHub's REST API",
    source="ARC runner_graceful_stop.go",
)
async def test_lists_can_be_as_old_as_their_cache(make: Make, clock: HandClock) -> None:
    client = await make(list_cache=60.0)
    runner = await client.runner("a")
    before = (await client.ask("GET", RUNNERS)).json
    assert [one["busy"] for one in before["runners"]] == [False]
    (pushed,) = client.lab.push([job()])
    assert await runner.take() == pushed.id
    assert await runner.send("started", job=pushed.id) == 204
    await client.register("b")
    await clock.advance(59)
    assert (await client.ask("GET", RUNNERS)).json == before
    assert (await client.ask("GET", f"{RUNNERS}/{runner.id}")).json["busy"] is True
    assert (await client.ask("DELETE", f"{RUNNERS}/{runner.id}")).status == 422
    await clock.advance(1)
    after = (await client.ask("GET", RUNNERS)).json["runners"]
    assert [(one["name"], one["busy"]) for one in after] == [("a", True), ("b", False)]


async def test_every_call_takes_at_least_the_latency(make: Make) -> None:
    client = await make(latency=0.05)
    began = asyncio.get_running_loop().time()
    await client.token()
    assert asyncio.get_running_loop().time() - began >= 0.05


async def test_a_request_without_a_user_agent_is_refused(client: Client) -> None:
    headers = {"Authorization": f"Bearer {await client.token()}"}
    url = client.lab.api_url + RUNNERS
    async with client.session.get(url, headers=headers, skip_auto_headers=["User-Agent"]) as answer:
        assert answer.status == 403
        assert "administrative rules" in (await answer.json())["message"]


async def test_an_answer_can_be_given_word_for_word(client: Client) -> None:
    await client.token()
    client.lab.inject_faults(
        AnswerFault("answer", status=201, body=b"<html>", headers={"Content-Type": "text/html"}),
        AnswerFault("answer", status=422, body={"message": "no"}),
    )
    first = await client.register("a")
    assert (first.status, first.headers["content-type"]) == (201, "text/html")
    second = await client.register("a")
    assert (second.status, second.json) == (422, {"message": "no"})
    assert _names(client) == []


async def test_githubs_own_answer_can_be_changed(client: Client) -> None:
    await client.register("a")
    client.lab.inject_faults(
        AnswerFault(
            "changed",
            change=lambda shown: {**shown, "runners": []},
            headers={"ETag": None, "X-More": "1"},
        )
    )
    listed = await client.ask("GET", RUNNERS)
    assert listed.json == {"total_count": 1, "runners": []}
    assert "etag" not in listed.headers
    assert listed.headers["x-more"] == "1"
    assert "etag" in (await client.ask("GET", RUNNERS)).headers
    client.lab.inject_faults(AnswerFault("changed", change=lambda shown: {}))
    missing = await client.ask("GET", f"{RUNNERS}/99")
    assert (missing.status, missing.json["message"]) == (404, "Not Found")


async def test_a_fault_can_hit_some_requests_or_one_installation_alone(client: Client) -> None:
    await client.token()
    number = (await client.as_app("GET", "/orgs/globex/installation")).json["id"]
    client.lab.inject_faults(
        AnswerFault("status", request=r"GET .*/runners\?name=b$"),
        AnswerFault("status", status=503, by=number),
    )
    asked = [RUNNERS, f"{RUNNERS}?name=a", f"{RUNNERS}?name=b"]
    assert [(await client.ask("GET", path)).status for path in asked] == [200, 200, 502]
    other = "/orgs/globex/actions/runners"
    assert [(await client.ask("GET", other, org="globex")).status for _ in (1, 2)] == [503, 200]


async def test_an_answer_can_wait_for_an_event(client: Client) -> None:
    await client.token()
    go = asyncio.Event()
    client.lab.inject_faults(AnswerFault("answer", status=201, body={}, done=True, until=go))
    asked = asyncio.create_task(client.register("a"))
    await until(lambda: _names(client) == ["a"])
    assert not asked.done()
    go.set()
    assert (await asked).json == {}
