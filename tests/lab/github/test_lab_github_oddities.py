"""Unusual webhooks that GitHub sends, and reruns of failed jobs."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from lab.github.settings import JobSpec, Oddity, Patience
from tests.lab.github.harness import Client, HandClock, Listener, job

Make = Callable[..., Awaitable[Client]]
WAITS = {"approval": 60.0}


def _odd(*oddities: Oddity, **more: Any) -> JobSpec:
    return job(oddities=frozenset(oddities), **more)


async def _said(client: Client, clock: HandClock, listener: Listener) -> list[tuple[str, str]]:
    """Action and status of each event of the one job, from its push to its end."""
    await clock.advance(60)
    await (await client.runner("a")).run()
    await client.lab.delivered()
    return [(event["action"], event["workflow_job"]["status"]) for event in listener.events()]


@pytest.mark.case(
    "environments send `waiting` twice",
    topic="GitHub's events",
    source="community#63097",
)
@pytest.mark.case(
    "`waiting` overtakes `queued`: the job is not stuck",
    topic="GitHub's events",
    source="runs-on#539",
)
@pytest.mark.case(
    "`queued` with `status: waiting`",
    topic="GitHub's events",
    source="octokit/webhooks schemas",
)
@pytest.mark.case(
    "`queued` never arrives: `in_progress` makes the job known at the latest",
    topic="GitHub's events",
    source="ARC#2788; ubicloud#1042",
)
@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (_odd(**WAITS), "queued/queued waiting/waiting queued/queued"),
        (
            _odd("waiting_twice", **WAITS),
            "queued/queued waiting/waiting waiting/waiting queued/queued",
        ),
        (_odd("waiting_first", **WAITS), "waiting/waiting queued/queued queued/queued"),
        (_odd("queued_as_waiting", **WAITS), "queued/waiting waiting/waiting queued/queued"),
        (
            _odd("queued_as_waiting", "waiting_first", "waiting_twice", **WAITS),
            "waiting/waiting waiting/waiting queued/waiting queued/queued",
        ),
        (_odd("unannounced"), ""),
    ],
    ids=lambda value: " ".join(sorted(value.oddities)) if isinstance(value, JobSpec) else "",
)
async def test_a_job_has_the_right_events_before_it_starts(
    make: Make, clock: HandClock, listener: Listener, spec: JobSpec, said: str
) -> None:
    client = await make(listener.url, delivery_concurrency=1)
    client.lab.push([spec])
    received = await _said(client, clock, listener)
    assert [f"{action}/{status}" for action, status in received[:-2]] == said.split()
    assert received[-2:] == [("in_progress", "in_progress"), ("completed", "completed")]


@pytest.mark.case(
    "`in_progress` with `status: queued`",
    topic="GitHub's events",
    source="octokit/webhooks schemas",
)
async def test_an_in_progress_event_may_have_the_status_queued(
    make: Make, clock: HandClock, listener: Listener
) -> None:
    client = await make(listener.url, delivery_concurrency=1)
    client.lab.push([_odd("started_as_queued")])
    received = await _said(client, clock, listener)
    assert received == [("queued", "queued"), ("in_progress", "queued"), ("completed", "completed")]
    assert listener.events()[1]["workflow_job"]["runner_name"] == "a"


@pytest.mark.case(
    "`completed` with empty labels",
    topic="GitHub's events",
    source="ARC#1370",
)
async def test_completed_may_come_first_and_without_labels(
    make: Make, clock: HandClock, listener: Listener
) -> None:
    client = await make(listener.url, delivery_concurrency=1)
    (pushed,) = client.lab.push([_odd("completed_first", "completed_without_labels")])
    received = await _said(client, clock, listener)
    assert [action for action, _ in received] == ["completed", "queued", "in_progress"]
    assert [event["workflow_job"]["labels"] for event in listener.events()] == [
        [],
        ["gpu"],
        ["gpu"],
    ]
    reported = await client.ask("GET", f"/repos/acme/rocket/actions/jobs/{pushed.id}")
    assert (reported.json["status"], reported.json["labels"]) == ("completed", ["gpu"])


@pytest.mark.case(
    "a re-run sends `completed` again for jobs of the earlier attempt",
    topic="GitHub's events",
    source="ARC#4315; ARC#4594",
)
async def test_a_rerun_of_failed_jobs_repeats_the_completed_events_of_the_others(
    make: Make, listener: Listener
) -> None:
    client = await make(listener.url, delivery_concurrency=1)
    good, bad, after = client.lab.push([job("good"), job("bad"), job("after", needs=("bad",))])
    for name, conclusion in (("a", "success"), ("b", "failure")):
        runner = await client.runner(name)
        number = await runner.take()
        await runner.send("started", job=number)
        await runner.send("completed", job=number, conclusion=conclusion)
    assert (bad.conclusion, after.conclusion) == ("failure", "skipped")
    await client.lab.delivered()
    listener.got.clear()
    again, later = client.lab.rerun_failed(good.run)
    await client.lab.delivered()
    reported = [(event["action"], event["workflow_job"]["id"]) for event in listener.events()]
    assert reported == [("queued", again.id), ("completed", good.id)]
    assert {again.id, later.id}.isdisjoint({good.id, bad.id, after.id})
    with pytest.raises(ValueError, match="has not ended"):
        client.lab.rerun_failed(good.run)
    for name in ("c", "d"):
        await (await client.runner(name)).run()
    assert (again.conclusion, later.conclusion, client.lab.unfinished) == ("success", "success", 0)
    path = f"/repos/acme/rocket/actions/runs/{good.run.id}/jobs"
    latest = (await client.ask("GET", path)).json["jobs"]
    assert [(one["id"], one["run_attempt"]) for one in latest] == [
        (good.id, 1),
        (again.id, 2),
        (later.id, 2),
    ]
    every = (await client.ask("GET", f"{path}?filter=all")).json
    assert (every["total_count"], every["jobs"][0]["id"]) == (5, bad.id)
    assert client.lab.rerun_failed(good.run) == []


@pytest.mark.case(
    "GitHub removes idle JIT runners after minutes: a machine is ready without a registration, and "
    "gets one when a job waits",
    topic="Runner and listener",
    source="actions/runner#4726",
)
async def test_idle_runners_are_removed_in_minutes(make: Make, clock: HandClock) -> None:
    client = await make(patience=Patience(real_floor=0.0, idle=120.0))
    idle, busy = await client.runner("idle", ("none",)), await client.runner("busy")
    client.lab.push([job()])
    await busy.take()
    await clock.advance(30)
    assert await busy.send("started", job=client.lab.jobs[0].id) == 204
    await clock.advance(89)
    assert [one.name for one in client.lab.runners] == ["idle", "busy"]
    await clock.advance(1)
    assert [one.name for one in client.lab.runners] == ["busy"]
    assert await idle.send("message", wait=0) == 404
