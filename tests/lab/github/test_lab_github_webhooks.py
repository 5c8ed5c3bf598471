"""Webhooks: what is sent, how it is answered, and what the App can list and redeliver."""

import hashlib
import hmac
import json
from collections.abc import Awaitable, Callable

import pytest

from lab.github.settings import DeliveryFaults
from tests.lab.github.harness import APP, SECRET, Client, HandClock, Listener, job, until

Make = Callable[..., Awaitable[Client]]
DELIVERIES = "/app/hook/deliveries"
# The keys that GitHub's schema of workflow_job requires.
REQUIRED = {
    "id", "run_id", "run_url", "run_attempt", "node_id", "head_sha", "url", "html_url", "status",
    "conclusion", "started_at", "completed_at", "name", "steps", "check_run_url", "labels",
    "runner_id", "runner_name", "runner_group_id", "runner_group_name", "workflow_name",
    "head_branch", "created_at",
}  # fmt: skip


async def test_a_job_causes_events_from_queued_to_completed(make: Make, listener: Listener) -> None:
    client = await make(listener.url)
    (pushed,) = client.lab.push([job(labels=("GPU",))])
    await client.lab.delivered()
    await (await client.runner("a", ("gpu",), group=2)).run()
    await client.lab.delivered()
    assert listener.actions() == [
        ("test", "queued"),
        ("test", "in_progress"),
        ("test", "completed"),
    ]
    for event in listener.events():
        assert set(event) == {
            "action",
            "workflow_job",
            "repository",
            "organization",
            "sender",
            "installation",
        }
        assert set(event["workflow_job"]) == REQUIRED
        assert event["workflow_job"]["id"] == pushed.id
        assert event["workflow_job"]["labels"] == ["GPU"]
        assert event["workflow_job"]["status"] == event["action"]
        assert event["repository"]["full_name"] == "acme/rocket"
        assert event["organization"]["login"] == "acme"
    queued, started, ended = (event["workflow_job"] for event in listener.events())
    assert (queued["runner_id"], queued["runner_name"]) == (None, None)
    assert (started["runner_name"], started["runner_group_name"]) == ("a", "gpu")
    assert (ended["conclusion"], ended["runner_name"]) == ("success", "a")
    assert ended["completed_at"] is not None


async def test_deliveries_are_signed_and_named(make: Make, listener: Listener) -> None:
    client = await make(listener.url)
    client.lab.push([job()])
    await client.lab.delivered()
    (ping, said), (headers, body) = listener.got
    assert ping["x-github-event"] == "ping"
    assert {"zen", "hook_id", "hook"} <= set(json.loads(said))
    digest = hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
    assert headers["x-hub-signature-256"] == f"sha256={digest}"
    assert headers["x-github-event"] == "workflow_job"
    assert headers["content-type"] == "application/json"
    assert headers["x-github-hook-installation-target-id"] == str(APP)
    assert headers["x-github-hook-installation-target-type"] == "integration"
    assert headers["x-github-hook-id"] == ping["x-github-hook-id"]
    assert headers["user-agent"].startswith("GitHub-Hookshot/")
    assert headers["x-github-delivery"] != ping["x-github-delivery"]
    assert len(body) > 6000


async def test_a_refused_delivery_is_repeated_only_on_request(
    make: Make, listener: Listener, clock: HandClock
) -> None:
    client = await make(listener.url)
    await client.lab.delivered()
    listener.status = 503
    client.lab.push([job()])
    await client.lab.delivered()
    await clock.advance(3600)
    assert len(listener.got) == 2
    (failed,) = (await client.as_app("GET", f"{DELIVERIES}?status=failure")).json
    assert (failed["status"], failed["status_code"]) == ("Invalid HTTP Response: 503", 503)
    assert (failed["event"], failed["action"], failed["redelivery"]) == (
        "workflow_job",
        "queued",
        False,
    )
    listener.status = 200
    answer = await client.as_app("POST", f"{DELIVERIES}/{failed['id']}/attempts")
    assert (answer.status, answer.json) == (202, {})
    await client.lab.delivered()
    newest = (await client.as_app("GET", DELIVERIES)).json[0]
    assert newest["guid"] == failed["guid"]
    assert newest["id"] > failed["id"]
    assert (newest["redelivery"], newest["status"], newest["status_code"]) == (True, "OK", 200)
    (first, body), (second, again) = listener.got[1:]
    assert first["x-github-delivery"] == second["x-github-delivery"] == failed["guid"]
    assert body == again
    details = (await client.as_app("GET", f"{DELIVERIES}/{newest['id']}")).json
    assert details["request"]["payload"] == json.loads(body)
    assert details["request"]["headers"]["X-GitHub-Delivery"] == failed["guid"]
    assert details["response"]["payload"] == "thanks"
    assert set(newest) == {
        "id", "guid", "delivered_at", "redelivery", "duration", "status", "status_code", "event",
        "action", "installation_id", "repository_id", "throttled_at",
    }  # fmt: skip
    assert client.lab.deliveries == {"ok": 2, "failed": 1, "redelivered": 1}


async def test_deliveries_are_paged_by_cursor(make: Make, listener: Listener) -> None:
    client = await make(listener.url)
    client.lab.push([job(f"job {number}") for number in range(6)])
    await client.lab.delivered()
    ids: list[int] = []
    url: str | None = f"{DELIVERIES}?per_page=3"
    sizes = []
    while url is not None:
        page = await client.as_app("GET", url)
        ids += [delivery["id"] for delivery in page.json]
        sizes.append(len(page.json))
        url = page.next_url
    assert sizes == [3, 3, 1]
    assert ids == sorted(ids, reverse=True)
    assert ids == [entry.id for entry in reversed(client.lab.delivery_log(APP))]


@pytest.mark.case(
    "GitHub redelivers for three days only",
    topic="GitHub's events",
    source="GitHub: failed deliveries",
)
async def test_deliveries_are_pruned_after_three_days(
    make: Make, listener: Listener, clock: HandClock
) -> None:
    client = await make(listener.url)
    await client.lab.delivered()
    (ping,) = (await client.as_app("GET", DELIVERIES)).json
    await clock.advance(3 * 86_400)
    assert (await client.as_app("GET", DELIVERIES)).json == []
    assert (await client.as_app("POST", f"{DELIVERIES}/{ping['id']}/attempts")).status == 404


async def test_invalid_requests_about_deliveries_are_refused(
    make: Make, listener: Listener
) -> None:
    client = await make(listener.url)
    assert (await client.as_app("GET", f"{DELIVERIES}?cursor=3")).status == 400
    assert (await client.as_app("GET", f"{DELIVERIES}?cursor=v1_x")).status == 400
    assert (await client.as_app("GET", f"{DELIVERIES}?status=odd")).status == 422
    assert (await client.as_app("GET", f"{DELIVERIES}/7")).status == 404
    assert (await client.as_app("POST", f"{DELIVERIES}/7/attempts")).status == 404
    assert (await client.ask("GET", DELIVERIES)).status == 401


@pytest.mark.case(
    "GitHub waits 10 seconds for a 2xx, and does not retry",
    topic="GitHub's events",
    source="GitHub: respond within 10 seconds",
)
async def test_a_delivery_to_an_unreachable_or_silent_receiver_fails(
    make: Make, listener: Listener
) -> None:
    client = await make(delivery_timeout=0.05)
    client.lab.push([job("unheard")])
    assert client.lab.delivery_log(APP) == []
    client.lab.point_webhook("http://127.0.0.1:1/webhook")
    await client.lab.delivered()
    listener.stall.clear()
    client.lab.point_webhook(listener.url)
    await client.lab.delivered()
    ends = [(entry.status, entry.status_code) for entry in client.lab.delivery_log(APP)]
    assert ends == [("failed to connect to host", 502), ("timed out", 504)]


async def test_a_slow_receiver_does_not_delay_the_others(make: Make, listener: Listener) -> None:
    client = await make(listener.url, delivery_concurrency=4)
    await client.lab.delivered()
    listener.stall.clear()
    client.lab.push([job(f"job {number}") for number in range(10)])
    await until(lambda: client.lab._webhooks[APP]._queue.qsize() == 6)
    listener.stall.set()
    await client.lab.delivered()
    assert len(listener.got) == 11


async def test_faults_fail_drop_duplicate_and_delay_deliveries(
    make: Make, listener: Listener, clock: HandClock
) -> None:
    client = await make(listener.url)
    await client.lab.delivered()
    for faults in (
        DeliveryFaults(drop=1.0),
        DeliveryFaults(fail=1.0),
        DeliveryFaults(duplicate=1.0),
        DeliveryFaults(reorder=1.0, hold=20.0),
        DeliveryFaults(),
    ):
        client.lab.disturb(faults)
        client.lab.push([job(str(faults))])
    await client.lab.delivered()
    twice, plain = str(DeliveryFaults(duplicate=1.0)), str(DeliveryFaults())
    held = str(DeliveryFaults(reorder=1.0, hold=20.0))
    assert [name for name, _ in listener.actions()] == [twice, twice, plain]
    guids = [headers["x-github-delivery"] for headers, _ in listener.got[1:3]]
    assert guids[0] == guids[1]
    await clock.advance(20)
    await client.lab.delivered()
    assert [name for name, _ in listener.actions()] == [twice, twice, plain, held]
    assert client.lab.deliveries == {
        "ok": 5,
        "failed": 1,
        "broken": 1,
        "dropped": 1,
        "duplicated": 1,
        "held": 1,
    }
    (broken,) = (await client.as_app("GET", f"{DELIVERIES}?status=failure")).json
    assert (await client.as_app("POST", f"{DELIVERIES}/{broken['id']}/attempts")).status == 202
    await client.lab.delivered()
    assert listener.actions()[-1] == (str(DeliveryFaults(fail=1.0)), "queued")


async def test_shares_are_the_same_for_the_same_seed(make: Make, listener: Listener) -> None:
    received = []
    for seed in (1, 1, 2):
        client = await make(listener.url, seed=seed, faults=DeliveryFaults(drop=0.5))
        client.lab.push([job(f"job {number}") for number in range(40)])
        await client.lab.delivered()
        received.append(sorted(name for name, _ in listener.actions()))
        listener.got.clear()
    assert received[0] == received[1] != received[2]
    assert all(5 < len(names) < 35 for names in received)


@pytest.mark.case(
    "environments send `queued`, `waiting`, `queued`",
    topic="GitHub's events",
    source="cdk-github-runners#416",
)
async def test_jobs_of_protected_environments_are_queued_waiting_queued(
    make: Make, listener: Listener, clock: HandClock
) -> None:
    client = await make(listener.url, delivery_concurrency=1)
    client.lab.push([job(approval=60.0)])
    await clock.advance(60)
    await client.lab.delivered()
    assert [action for _, action in listener.actions()] == ["queued", "waiting", "queued"]
    assert [event["workflow_job"]["status"] for event in listener.events()] == [
        "queued",
        "waiting",
        "queued",
    ]


@pytest.mark.case(
    "`completed` first, for a job that was skipped",
    topic="GitHub's events",
    source="ARC#836",
)
async def test_a_job_that_never_started_ends_without_runner_and_steps(
    make: Make, listener: Listener
) -> None:
    client = await make(listener.url, delivery_concurrency=1)
    first, _ = client.lab.push([job("one"), job("two", needs=("one",))])
    client.lab.cancel(first)
    await client.lab.delivered()
    assert listener.actions() == [("one", "queued"), ("one", "completed"), ("two", "completed")]
    cancelled, skipped = (event["workflow_job"] for event in listener.events()[1:])
    assert (cancelled["conclusion"], skipped["conclusion"]) == ("cancelled", "skipped")
    assert (cancelled["runner_id"], cancelled["steps"]) == (None, [])
