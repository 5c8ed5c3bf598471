"""The job queue: which runner gets which job, what follows from its end, and jobs that GitHub ends."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from lab.github.records import JobStatus
from lab.github.settings import JobSpec, Patience
from tests.lab.github.harness import Client, HandClock, job, until
from tests.patience import PATIENCE

Make = Callable[..., Awaitable[Client]]


async def test_a_job_from_push_to_end(client: Client, clock: HandClock) -> None:
    (pushed,) = client.lab.push([job(seconds=90.0)])
    await clock.advance(10)
    runner = await client.runner("a")
    answer = await runner.post("message", wait=0)
    run = {
        "repository": "acme/rocket",
        "head": "acme/rocket",
        "event": "push",
        "ref": "refs/heads/main",
        "private": True,
    }
    assert answer.json == {"job": {"id": pushed.id, "name": "test", "seconds": 90.0, **run}}
    await clock.advance(5)
    assert await runner.send("started", job=pushed.id) == 204
    assert await runner.send("started", job=pushed.id) == 204
    await clock.advance(90)
    assert await runner.send("renew", job=pushed.id) == 204
    assert await runner.send("completed", job=pushed.id, conclusion="success") == 204
    await asyncio.wait_for(client.lab.settled(), PATIENCE)
    assert (pushed.status, pushed.conclusion) == (JobStatus.COMPLETED, "success")
    assert pushed.queued_at is not None
    assert pushed.started_at == pushed.queued_at + 15
    assert pushed.completed_at == pushed.started_at + 90
    assert (pushed.starts, pushed.assigned) == (["a"], 1)
    assert client.lab.runners == []
    assert client.lab.unfinished == 0


async def test_a_waiting_poll_gets_the_job_that_is_pushed(client: Client) -> None:
    runner = await client.runner("a", ("GPU", "Linux"))
    poll = asyncio.create_task(runner.take(5.0))
    await until(lambda: client.lab._actions.runners.by_id[runner.id].poll is not None)
    (other, wanted) = client.lab.push([job("x", ("arm",)), job("y", ("gpu", "LINUX"))])
    assert await poll == wanted.id
    assert other.status is JobStatus.QUEUED


@pytest.mark.case(
    "all labels must match, and the group too",
    topic="GitHub's events",
    source="GitHub: labels",
)
async def test_labels_group_and_repository_decide_which_runner_gets_a_job(client: Client) -> None:
    pushed = client.lab.push(
        [
            job("group", group="GPU"),
            job("empty", (), group="gpu"),
            job("anvil", repository="acme/anvil"),
        ]
    )
    plain = await client.runner("plain")
    assert await plain.take() == pushed[2].id
    one = await client.runner("one", ("gpu",), group=2)
    two = await client.runner("two", ("gpu",), group=2)
    assert {await one.take(), await two.take()} == {pushed[0].id, pushed[1].id}
    closed = await client.runner("closed", ("gpu",), group=3)
    (rocket, anvil) = client.lab.push([job("r"), job("a", repository="acme/anvil")])
    assert await closed.take() == anvil.id
    (own,) = client.lab.push([job("own", ("special",))])
    of_anvil = await client.runner("of-anvil", ("special",), at="/repos/acme/anvil")
    assert await of_anvil.take() is None
    of_rocket = await client.runner("of-rocket", ("special",), at="/repos/acme/rocket")
    assert await of_rocket.take() == own.id
    assert rocket.status is JobStatus.QUEUED


async def test_a_job_is_queued_after_all_jobs_that_it_needs_succeeded(client: Client) -> None:
    build, lint, test = client.lab.push(
        [
            job("build"),
            job("lint"),
            job("test", ("big",), needs=("build", "lint")),
        ]
    )
    seen = [test.status]
    for name in ("a", "b"):
        await (await client.runner(name)).run()
        seen.append(test.status)
    assert (build.status, lint.status) == (JobStatus.COMPLETED, JobStatus.COMPLETED)
    assert seen == [JobStatus.BLOCKED, JobStatus.BLOCKED, JobStatus.QUEUED]
    (late,) = client.lab.push([job("late", needs=("build",), run_id=build.run.id)])
    assert late.status is JobStatus.QUEUED


async def test_jobs_that_need_a_failed_job_are_skipped_once(client: Client) -> None:
    root, left, right, end = client.lab.push(
        [
            job("root"),
            job("left", needs=("root",)),
            job("right", needs=("root",)),
            job("end", needs=("left", "right")),
        ]
    )
    client.lab.cancel(root)
    assert root.conclusion == "cancelled"
    assert [left.conclusion, right.conclusion, end.conclusion] == ["skipped"] * 3
    assert client.lab.unfinished == 0
    (late,) = client.lab.push([job("late", needs=("left",), run_id=root.run.id)])
    assert late.conclusion == "skipped"
    assert client.lab.unfinished == 0


@pytest.mark.parametrize(
    ("specs", "words"),
    [
        ([job(repository="acme/none")], "no repository"),
        ([job(repository="none")], "no repository"),
        ([job("a"), job("a")], "two jobs named"),
        ([job("a", needs=("b",))], "needs 'b'"),
        ([job("a", needs=("b",)), job("b", needs=("a",))], "circle"),
        ([job("a", run_id=7), job("b", run_id=7, repository="acme/anvil")], "two repositories"),
    ],
)
async def test_invalid_pushes_are_refused(client: Client, specs: list[JobSpec], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        client.lab.push(specs)
    assert client.lab.jobs == []


async def test_a_queued_job_is_cancelled_at_once(client: Client) -> None:
    queued, other = client.lab.push([job("x"), job("y")])
    client.lab.cancel(queued)
    client.lab.cancel(queued)
    assert (queued.conclusion, queued.starts) == ("cancelled", [])
    assert await (await client.runner("a")).run() == other.id


async def test_a_job_cancelled_before_its_start_frees_its_runner(client: Client) -> None:
    first, second = client.lab.push([job("x"), job("y")])
    runner = await client.runner("a")
    assert await runner.take() == first.id
    client.lab.cancel(first)
    assert await runner.send("started", job=first.id) == 404
    assert await runner.take() == second.id


async def test_a_running_job_is_cancelled_through_its_runner(client: Client) -> None:
    (running,) = client.lab.push([job()])
    runner = await client.runner("a")
    assert await runner.take() == running.id
    assert await runner.send("started", job=running.id) == 204
    client.lab.cancel(running)
    assert running.status is JobStatus.IN_PROGRESS
    assert await runner.send("renew", job=running.id) == 410
    assert await runner.send("completed", job=running.id, conclusion="success") == 204
    assert running.conclusion == "cancelled"


@pytest.mark.case(
    "a runner misses several messages, and GitHub cancels the job",
    topic="GitHub's events",
    source="actions/runner#4728",
)
async def test_a_cancelled_job_whose_runner_continues_is_completed(
    client: Client, clock: HandClock
) -> None:
    (running,) = client.lab.push([job()])
    runner = await client.runner("a")
    assert await runner.take() == running.id
    assert await runner.send("started", job=running.id) == 204
    client.lab.cancel(running)
    await clock.advance(299)
    assert running.status is JobStatus.IN_PROGRESS
    await clock.advance(1)
    assert running.conclusion == "cancelled"
    assert await runner.send("completed", job=running.id, conclusion="success") == 404
    assert await runner.send("connect") == 404


@pytest.mark.case(
    "GitHub gives a job to another runner if the first one does not pick it up in 60 seconds",
    topic="GitHub's events",
    source="actions/scaleset",
)
async def test_an_assigned_job_that_does_not_start_goes_to_another_runner(
    client: Client, clock: HandClock
) -> None:
    (pushed,) = client.lab.push([job()])
    slow, quick = await client.runner("slow"), await client.runner("quick")
    assert await slow.take() == pushed.id
    assert await slow.take() == pushed.id, "an answer that was lost is given again"
    assert await quick.take() is None
    await clock.advance(60)
    assert await quick.take() == pushed.id
    assert await slow.send("started", job=pushed.id) == 404
    assert await quick.send("started", job=pushed.id) == 204
    assert (pushed.starts, pushed.assigned) == (["quick"], 2)
    assert await slow.send("completed", job=pushed.id, conclusion="success") == 404
    assert [one.name for one in client.lab.runners] == ["quick"]
    await clock.advance(120)
    assert pushed.status is JobStatus.IN_PROGRESS


async def test_a_job_to_be_ended_is_reported_to_its_runner_at_its_renewal(client: Client) -> None:
    (pushed,) = client.lab.push([job()])
    runner = await client.runner("a")
    assert await runner.take() == pushed.id
    assert await runner.send("started", job=pushed.id) == 204
    assert await runner.send("renew", job=pushed.id) == 204
    client.lab.end(pushed)
    assert await runner.send("renew", job=pushed.id) == 200
    assert pushed.status is JobStatus.IN_PROGRESS


@pytest.mark.case(
    "a job fails 10 minutes after its runner died",
    topic="Runner and listener",
    source="actions/runner#3539",
)
async def test_a_job_whose_runner_vanished_fails_after_ten_minutes(
    client: Client, clock: HandClock
) -> None:
    (pushed,) = client.lab.push([job()])
    runner = await client.runner("a")
    assert await runner.take() == pushed.id
    assert await runner.send("started", job=pushed.id) == 204
    await clock.advance(500)
    assert await runner.send("renew", job=pushed.id) == 204
    await clock.advance(599)
    assert pushed.status is JobStatus.IN_PROGRESS
    await clock.advance(1)
    assert pushed.conclusion == "failure"
    (left,) = client.lab.runners
    assert (left.online, left.job) == (False, None)
    assert await runner.send("renew", job=pushed.id) == 404
    path = f"/orgs/acme/actions/runners/{runner.id}"
    assert (await client.ask("DELETE", path)).status == 204


@pytest.mark.case(
    "GitHub fails a job that was queued for a day: the controller reads the job before it "
    "launches for it",
    topic="GitHub's events",
    source="GitHub: Actions limits",
)
async def test_a_job_queued_for_a_day_fails(client: Client, clock: HandClock) -> None:
    (pushed,) = client.lab.push([job()])
    await clock.advance(86_399)
    assert pushed.status is JobStatus.QUEUED
    await clock.advance(1)
    assert pushed.conclusion == "failure"


async def test_an_approval_holds_a_job_back(client: Client, clock: HandClock) -> None:
    (pushed,) = client.lab.push([job(approval=30.0)])
    runner = await client.runner("a")
    assert pushed.status is JobStatus.WAITING
    assert await runner.take() is None
    await clock.advance(30)
    assert await runner.take() == pushed.id


async def test_a_lost_job_never_runs_and_never_ends(make: Make, clock: HandClock) -> None:
    client = await make(lose_jobs=1)
    lost, kept, also = client.lab.push([job("x"), job("y"), job("z")])
    runner = await client.runner("a")
    assert client.lab.lose(also)
    assert await runner.run() == kept.id
    assert not client.lab.lose(kept)
    assert await (await client.runner("b")).take() is None
    await clock.advance(2 * 86_400)
    assert [lost.status, also.status] == [JobStatus.QUEUED, JobStatus.QUEUED]
    assert client.lab.unfinished == 2


@pytest.mark.case(
    "GitHub removes an offline ephemeral runner after a day",
    topic="GitHub's REST API",
    source="GitHub: removal of self-hosted runners",
)
async def test_silent_runners_go_offline_and_are_removed_after_a_day(
    client: Client, clock: HandClock
) -> None:
    await client.register("never-connected")
    runner = await client.runner("a")
    assert [one.online for one in client.lab.runners] == [False, True]
    await clock.advance(300)
    assert [one.online for one in client.lab.runners] == [False, False]
    assert await runner.take() is None
    assert client.lab.runners[1].online
    await clock.advance(86_200)
    assert [one.name for one in client.lab.runners] == ["a"]
    await clock.advance(400)
    assert client.lab.runners == []


@pytest.mark.case(
    "a runner stops by itself when its registration is deleted",
    topic="GitHub's REST API",
    source="ARC runner_graceful_stop.go",
)
async def test_a_deleted_registration_ends_its_poll(client: Client) -> None:
    runner = await client.runner("a")
    poll = asyncio.create_task(runner.send("message", wait=5.0))
    await until(lambda: client.lab._actions.runners.by_id[runner.id].poll is not None)
    deleted = await client.ask("DELETE", f"/orgs/acme/actions/runners/{runner.id}")
    assert deleted.status == 204
    assert await poll == 404


async def test_a_disconnected_runner_gets_no_job(client: Client) -> None:
    runner = await client.runner("a")
    record = client.lab._actions.runners.by_id[runner.id]
    poll = asyncio.create_task(runner.take(30.0))
    await until(lambda: record.poll is not None)
    poll.cancel()
    await until(lambda: record.poll is None)
    (pushed,) = client.lab.push([job()])
    assert pushed.assigned == 0


async def test_wrong_secrets_and_malformed_messages_are_refused(client: Client) -> None:
    runner = await client.runner("a")
    url = f"{client.lab.api_url}/lab/runners/{runner.id}/message"
    for secret in (None, "wrong", "wr\udce9ng"):
        assert (await client.call("POST", url, secret, {"wait": 0})).status == 401
    token = runner.config["token"]
    for body in ("{", "[]", '{"wait": "1"}', '{"wait": NaN}'):
        assert (await client.call("POST", url, token, body)).status == 400, body
    assert await runner.send("started", job="1") == 400
    assert await runner.send("started", job=1) == 404
    assert await runner.send("completed", job=1, conclusion="splendid") == 400
    registered = await client.register("unconnected")
    client.lab.push([job()])
    assert registered.status == 201
    assert client.lab.protocol_calls["message", 401] == 3


async def test_jobs_and_runs_over_rest(client: Client) -> None:
    first, blocked = client.lab.push([job("one"), job("two", ("big",), needs=("one",))])
    (other,) = client.lab.push([job("three", repository="acme/anvil")])
    path = "/repos/acme/rocket/actions"
    shown = (await client.ask("GET", f"{path}/jobs/{first.id}")).json
    assert (shown["status"], shown["runner_id"], shown["labels"]) == ("queued", None, ["gpu"])
    assert (await client.ask("GET", f"{path}/jobs/{blocked.id}")).status == 404
    assert (await client.ask("GET", f"{path}/jobs/{other.id}")).status == 404
    listed = (await client.ask("GET", f"{path}/runs/{first.run.id}/jobs")).json
    assert (listed["total_count"], listed["jobs"]) == (1, [shown])
    runs = (await client.ask("GET", f"{path}/runs?status=queued")).json
    assert [run["id"] for run in runs["workflow_runs"]] == [first.run.id]
    client.lab.cancel(other)
    runner = await client.runner("a")
    await runner.run()
    done = (await client.ask("GET", f"{path}/jobs/{first.id}")).json
    assert (done["status"], done["conclusion"], done["runner_name"]) == (
        "completed",
        "success",
        "a",
    )
    assert (await client.ask("GET", f"{path}/runs?status=queued")).json["total_count"] == 0
    assert (await client.ask("GET", f"{path}/runs?status=in_progress")).json["total_count"] == 1
    assert (await client.ask("GET", f"{path}/runs/{other.run.id}/jobs")).status == 404


def test_a_fast_lab_clock_does_not_shorten_real_seconds_of_runners() -> None:
    fast = Patience(real_floor=5.0).at(300.0)
    assert (fast.start, fast.lock, fast.queue) == (1500.0, 1500.0, 86_400.0)
    assert Patience().at(1.0) == Patience()


async def test_a_busy_runner_that_polls_gets_no_second_job(client: Client) -> None:
    (first,) = client.lab.push([job("x")])
    runner = await client.runner("a")
    assert await runner.take() == first.id
    assert await runner.send("started", job=first.id) == 204
    poll = asyncio.create_task(runner.take(0.3))
    await until(lambda: client.lab._actions.runners.by_id[runner.id].poll is not None)
    (second,) = client.lab.push([job("y")])
    assert (second.assigned, await poll, await runner.take()) == (0, None, None)
    assert await runner.send("completed", job=first.id, conclusion="success") == 204
    assert (first.starts, second.starts) == (["a"], [])


@pytest.mark.parametrize(
    ("version", "status"), [("2.328.9", 403), ("2.329.0", 204), ("3.0.0", 204), ("2.x", 400)]
)
async def test_a_runner_of_an_old_version_gets_no_job(
    client: Client, version: str, status: int
) -> None:
    """It can register and connect; GitHub refuses its request for a job (BrokerHttpClient.cs)."""
    runner = await client.runner("old")
    answer = await runner.post("message", wait=0, version=version)
    assert answer.status == status
    if status == 403:
        said = f"Runner version v{version} is deprecated and cannot receive messages."
        assert answer.json["message"] == said
