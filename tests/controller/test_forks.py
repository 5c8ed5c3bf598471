"""Jobs of runs from forks: each run is read once, and nothing is launched before the answer."""

import json
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from autoscaler.agent.hooks.job_access import refusal_of_job
from autoscaler.controller.github.single_reads import RUN_READS_AT_ONCE
from autoscaler.controller.machines.bootstrap import job_parameters
from autoscaler.controller.ports.github import GitHubError, OperatorError, RetryLaterError
from autoscaler.controller.reporting.fleet_counts import fleet_counts
from autoscaler.model.catalogue import Access, Catalogue
from autoscaler.model.events import JobObserved
from autoscaler.model.identifiers import JobId
from autoscaler.model.jobs.job import JobState
from tests.controller.controllers import Controller, World
from tests.controller.fakes_lists import FakeLists
from tests.controller.test_github_synchronizer import watch
from tests.controller.virtual_time import on_virtual_time
from tests.ledger.builders import GPU_CLASS
from tests.ledger.builders import World as LedgerWorld
from tests.planner.fleets import catalogue, sku

RUN = 7


def closed() -> Catalogue:
    """One SKU that takes no jobs of forks."""
    return catalogue(replace(sku(), access=Access(forks=False)))


async def queued(controller: Controller, *jobs: int, run: int = RUN) -> None:
    """Webhooks report jobs of one run."""
    now = controller.journal.now
    for job in jobs:
        controller.journal.note(
            JobObserved(now, JobId(job), JobState.QUEUED, "acme/widgets", ("gpu",), now, run_id=run)
        )
    await controller.turn(0.0)


async def begin(world: World) -> Controller:
    controller = Controller(world)
    await controller.resume()
    return controller


@on_virtual_time
async def test_jobs_of_one_run_share_one_read_and_wait_for_it() -> None:
    world = World(closed())
    world.github.queue_run(RUN)
    controller = await begin(world)
    await queued(controller, 1, 2, 3)
    assert world.east.prepared == []
    await controller.turn()
    assert world.github.asked.count("run_origin") == 1
    await controller.turn()
    assert len(world.east.running) == 3
    await queued(controller, 4)
    await controller.turn()
    assert len(world.east.running) == 4
    assert world.github.asked.count("run_origin") == 1


@pytest.mark.case(
    "a job of a pull request from a fork, before and after its run's head repository is known",
    topic="GitHub's events",
    source="GitHub: secure use; GitHub: get a workflow run",
)
@on_virtual_time
async def test_a_job_of_a_fork_gets_no_machine_is_counted_and_logged() -> None:
    world = World(closed())
    world.github.queue_run(RUN, fork=True)
    controller = await begin(world)
    with capture_logs() as logs:
        await queued(controller, 1)
        for _ in range(5):
            await controller.turn()
    assert world.east.prepared == []
    assert world.telemetry.said.count(("job_refused", "gpu", "fork_not_allowed")) == 1
    refused = [line for line in logs if line["event"] == "job_refused"]
    said = "the job's run comes from a fork, and access.forks is false"
    assert [(line["code"], line["reason"], line["repository"]) for line in refused] == [
        ("fork_not_allowed", said, "acme/widgets")
    ]
    waits = [(line["sku"], line.get("code")) for line in logs if line["event"] == "jobs_wait"]
    assert waits == [("gpu", "run_unknown"), ("gpu", "fork_not_allowed")]
    assert fleet_counts(controller.state, controller.journal.now).jobs_waiting == {"gpu": 0}


@pytest.mark.case(
    "a job of a pull request from a fork, before and after its run's head repository is known",
    topic="GitHub's events",
    source="GitHub: secure use; GitHub: get a workflow run",
)
@pytest.mark.parametrize("answer", [RetryLaterError("503", 1.0), OperatorError("403"), None])
@on_virtual_time
async def test_without_an_answer_nothing_is_launched(answer: GitHubError | None) -> None:
    """After an outage, a missing permission or a 404 the job waits."""

    world = World(closed())
    if answer is not None:
        world.github.script("run_origin", *[answer] * 5)
    controller = await begin(world)
    with capture_logs() as logs:
        await queued(controller, 1)
        for _ in range(5):
            await controller.turn(60.0)
    assert world.github.asked.count("run_origin") == 5
    lines = [line for line in logs if line["event"] == "run_not_read"]
    assert [(line["code"], line["run"], line["times"]) for line in lines] == [
        ("run_unknown", RUN, times) for times in (1, 2, 4)
    ]
    said = "GitHub answers 404, or shows the run without its origin" if answer is None else answer
    assert {line["error"] for line in lines} == {str(said)}
    (waits,) = [line["reason"] for line in logs if line["event"] == "jobs_wait"]
    assert "run_not_read in the log has GitHub's answer" in waits
    assert world.east.prepared == []
    assert controller.crashes == []
    world.github.queue_run(RUN)
    await controller.turn(300.0)
    await controller.turn()
    assert len(world.east.running) == 1


@on_virtual_time
async def test_a_queued_read_of_a_run_that_becomes_known_is_not_sent() -> None:
    world = World(closed())
    controller = await begin(world)
    now = controller.journal.now
    for job in range(1, 3 * RUN_READS_AT_ONCE):
        world.github.queue_run(job)
        controller.journal.note(
            JobObserved(now, JobId(job), JobState.QUEUED, "acme/widgets", ("gpu",), now, run_id=job)
        )
    world.github.latency = 40.0  # a read is due again after 15 s
    for _ in range(30):
        await controller.turn(10.0)
    assert controller.state.unread == {}
    asked = world.github.asked.count("run_origin")
    assert asked <= 3 * RUN_READS_AT_ONCE + RUN_READS_AT_ONCE, "those under way were asked again"


@pytest.mark.parametrize("fork", [False, True])
@on_virtual_time
async def test_a_list_of_runs_shows_the_fork_without_another_call(fork: bool) -> None:
    world = World(closed())
    controller = await begin(world)
    lists = FakeLists(world.clock.now, since=world.clock.now())
    lists.queue("acme/widgets", RUN, 1, controller.journal.now)
    lists.active["acme/widgets"][RUN].fork = fork
    await watch(controller, lists, 10.0)
    await controller.turn()
    assert len(world.east.running) == (not fork)
    assert world.github.asked.count("run_origin") == 0


@on_virtual_time
async def test_a_job_outside_the_access_of_its_sku_is_counted_and_logged() -> None:
    world = World(closed())
    world.github.queue_run(RUN)
    controller = await begin(world)
    await queued(controller, 1)
    for _ in range(3):
        await controller.turn()
    (machine,) = controller.state.machines.values()
    with capture_logs() as logs:
        controller.state.note(
            machine, world.clock.now(), "job_outside_access", "fork: job 2 of a/b"
        )
        await controller.turn()
    assert world.telemetry.said.count(("job_outside_access", "gpu", "fork")) == 1
    (line,) = [line for line in logs if line["event"] == "job_ran_outside_access"]
    assert (line["machine"], line["detail"]) == (machine.id, "fork: job 2 of a/b")


@pytest.mark.parametrize("change", ["none", "reload removes the SKU", "no event"])
def test_the_hook_refuses_what_the_controller_refuses_with_the_parameters_of_its_assignment(
    change: str,
) -> None:
    """GitHub may give the job of a fork to any idle runner, whatever left it idle."""
    restricted = replace(sku(), access=Access(("acme/*",), forks=False))
    world = LedgerWorld(catalogue(restricted))
    (machine,) = world.make_ready()
    world.assignment(machine)
    world.after(600.0)  # idle for long: no job waits for it any more
    if change == "reload removes the SKU":
        world.ledger.change_catalogue(catalogue(sku("other")))
    sent = job_parameters(world.state, world.machine(machine), GPU_CLASS, world.now)
    received = json.loads(json.dumps(sent)).get("access", {})
    head = {"head": {"repo": {"full_name": "stranger/widgets"}}}
    event = None if change == "no event" else {"pull_request": head}
    job = {"GITHUB_REPOSITORY": "acme/widgets", "GITHUB_EVENT_NAME": "pull_request"}
    assert refusal_of_job(received, job, event) is not None
