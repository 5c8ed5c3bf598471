"""The task that reads GitHub's lists: an error affects one read only; which registrations are removed."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest
from structlog.testing import capture_logs

from autoscaler.controller.github.orphans import CONFIRMED_AFTER
from autoscaler.controller.github.synchronizer import (
    AT_ONCE,
    LISTED_AT_ONCE,
    PAID_BACK,
    _AccountSync,
    synchronize,
)
from autoscaler.controller.ports.github import OperatorError, RegisteredRunner, RetryLaterError
from autoscaler.controller.ports.github_lists import Listing
from autoscaler.controller.ports.store import StoreError
from autoscaler.model.catalogue import Scope
from autoscaler.model.events import Event, JobObserved, RunnersListed
from autoscaler.model.identifiers import Instant, JobId, RunnerName, Seconds
from autoscaler.model.jobs.job import QUEUED_AT_MOST, JobState
from tests.controller.controllers import Controller, World, cancelled
from tests.controller.fakes_lists import FakeLists
from tests.controller.virtual_time import on_virtual_time
from tests.planner.fleets import EAST, catalogue

OURS = RunnerName("ci-0badcafe-00000000000000aa-1")


def synchronizing(controller: Controller, lists: FakeLists) -> Coroutine[Any, Any, None]:
    world = controller.world
    return synchronize(
        controller.journal,
        lists,
        world.github,
        controller.intake.load_pruned_job,
        world.telemetry,
        world.clock,
    )


async def begin(world: World) -> tuple[Controller, FakeLists]:
    controller = Controller(world)
    await controller.resume()
    return controller, FakeLists(world.clock.now, since=world.clock.now())


async def watch(controller: Controller, lists: FakeLists, seconds: Seconds) -> None:
    """Run the synchronizer for some seconds."""
    task = asyncio.create_task(synchronizing(controller, lists))
    await asyncio.sleep(seconds)
    if task.done():
        await task
    await cancelled(task)


@on_virtual_time
async def test_a_repository_that_cannot_be_read_does_not_stop_the_others() -> None:
    controller, lists = await begin(World())
    for n in (1, 2):
        lists.queue(f"acme/r{n}", n, n, controller.journal.now)
    lists.broken["acme/r1"] = OperatorError("404 not yours")
    with capture_logs() as logs:
        await watch(controller, lists, 60.0)
    line = next(one for one in logs if one["event"] == "list_not_read")
    assert (line["account"], line["of"], line["times"]) == ("acme", "acme/r1", 1)
    assert line["error"] == "404 not yours"
    assert list(controller.state.jobs) == [JobId(2)]
    del lists.broken["acme/r1"]
    await watch(controller, lists, 60.0)
    assert set(controller.state.jobs) == {JobId(1), JobId(2)}


@on_virtual_time
async def test_during_an_outage_an_account_is_not_read_until_githubs_retry_after() -> None:
    scopes = (Scope("acme", None), Scope("globex", None))
    controller, lists = await begin(World(catalogue=replace(catalogue(), scopes=scopes)))
    for n in range(10):
        lists.queue(f"acme/r{n}", n, n, controller.journal.now)
    await watch(controller, lists, 5.0)
    for n in range(10):
        lists.broken[f"acme/r{n}"] = RetryLaterError("502", 300.0)
    task = asyncio.create_task(synchronizing(controller, lists))
    with capture_logs() as logs:
        await asyncio.sleep(30.0)
    paused = {(one["account"], one["error"]) for one in logs if one["event"] == "sync_delayed"}
    assert paused == {("acme", "502")}
    asked, newest = lists.asked.total(), lists.asked_of["created org:globex"]
    await asyncio.sleep(240.0)
    newest = lists.asked_of["created org:globex"] - newest
    assert newest == 12
    assert lists.asked.total() - asked <= 2 + newest  # the other account's
    lists.broken.clear()
    await asyncio.sleep(60.0)
    assert lists.asked["jobs"] >= 10
    await cancelled(task)


@on_virtual_time
async def test_a_refused_read_is_not_an_outage_and_the_longest_pause_applies() -> None:
    controller, lists = await begin(World())
    for n in range(6):
        lists.queue(f"acme/r{n}", n, n, controller.journal.now)
    for n in range(4):
        lists.broken[f"acme/r{n}"] = OperatorError("404")
    lists.broken["acme/r4"] = RetryLaterError("502", 300.0)
    await watch(controller, lists, 5.0)
    assert list(controller.state.jobs) == [JobId(5)], "one 502 after four 404"
    lists.broken = {f"acme/r{n}": RetryLaterError("502", 300.0 - 50.0 * n) for n in range(6)}
    lists.broken["created org:acme"] = RetryLaterError("502", 50.0)
    task = asyncio.create_task(synchronizing(controller, lists))
    await asyncio.sleep(30.0)
    asked = lists.asked.total()
    await asyncio.sleep(150.0)
    assert lists.asked.total() == asked
    await cancelled(task)


@on_virtual_time
async def test_a_store_error_ends_the_synchronizer() -> None:
    world = World()
    controller, lists = await begin(world)
    lists.queue("acme/widgets", 1, 1, controller.journal.now)
    controller.journal.broken = StoreError("disk full")
    with pytest.raises(ExceptionGroup) as caught:
        await watch(controller, lists, 60.0)
    assert caught.group_contains(StoreError)


@on_virtual_time
async def test_a_listed_job_that_completed_long_ago_is_not_added_again() -> None:
    world = World()
    controller, lists = await begin(world)
    lists.queue("acme/widgets", 7, 1, controller.journal.now)
    await watch(controller, lists, 30.0)
    await asyncio.sleep(QUEUED_AT_MOST)
    await controller.turn()
    job = controller.state.jobs[JobId(1)]
    assert (job.state, job.conclusion) == (JobState.COMPLETED, "stale")
    await asyncio.sleep(3600.0)
    await controller.turn()
    assert JobId(1) not in controller.state.jobs
    await watch(controller, lists, 60.0)
    assert controller.state.jobs[JobId(1)].state is JobState.COMPLETED


@on_virtual_time
async def test_a_job_missing_from_the_list_of_its_run_is_read_by_itself() -> None:
    world = World()
    controller, lists = await begin(world)
    lists.queue("acme/widgets", 7, 1, controller.journal.now)
    lists.queue("acme/widgets", 7, 2, controller.journal.now)
    await watch(controller, lists, 30.0)
    seen = lists.active["acme/widgets"][7].jobs.pop(JobId(1))
    world.github.show(replace(seen, state=JobState.COMPLETED))
    await asyncio.sleep(120.0)
    await watch(controller, lists, 60.0)
    assert controller.state.jobs[JobId(1)].state is JobState.COMPLETED
    assert controller.state.jobs[JobId(2)].state is JobState.QUEUED


@pytest.mark.case(
    "GitHub shows a job as queued for ever although its run is completed",
    topic="GitHub's events",
    source="runs-on#539",
)
@on_virtual_time
async def test_a_queued_job_of_a_completed_run_that_lists_do_not_show_is_abandoned() -> None:
    controller, lists = await begin(World())
    lists.queue("acme/widgets", 7, 1, controller.journal.now)
    await watch(controller, lists, 30.0)
    lists.active["acme/widgets"][7].status = "completed"
    lists.hidden.add(7)  # a hundred newer runs stand before it
    await watch(controller, lists, 1800.0)
    assert lists.asked["run"] >= 1
    assert controller.state.jobs[JobId(1)].state is JobState.COMPLETED


@pytest.mark.case(
    "registrations that are in no record, and whose machine is gone",
    topic="GitHub's REST API",
    source="actions/runner#3669",
)
@pytest.mark.parametrize("busy", [False, True])
@on_virtual_time
async def test_a_registration_without_a_machine_is_removed_unless_github_refuses(
    busy: bool,
) -> None:
    world = World()
    controller, lists = await begin(world)
    registered = world.github.actions.register("org:acme", OURS, ("gpu",))
    lists.registrations = [RegisteredRunner(registered.id, OURS, online=False, busy=False)]
    if busy:
        world.github.occupy(OURS)
    task = asyncio.create_task(synchronizing(controller, lists))
    await asyncio.sleep(CONFIRMED_AFTER / 2)
    await controller.machine_lists.list_machines(EAST)
    assert world.github.deleted == []
    await asyncio.sleep(CONFIRMED_AFTER)
    assert not task.done()
    await cancelled(task)
    assert world.github.asked.count("delete_runner") == 1
    assert (OURS in world.github.registrations) is busy


class ManyPages(FakeLists):
    """Its list of registrations takes 100 calls. The first list of a run's jobs takes a minute."""

    most = 0
    open = 0

    def __init__(self, now: Callable[[], Instant]) -> None:
        super().__init__(now, since=now(), steady=10.0)
        self.slow_once: set[int] = set()

    async def runners(self, scope: str) -> Listing[RegisteredRunner]:
        return replace(await super().runners(scope), calls=100)

    async def jobs(self, repository: str, run_id: int, now: Instant) -> Listing[JobObserved]:
        self.open += 1
        self.most = max(self.most, self.open)
        if run_id not in self.slow_once:
            self.slow_once.add(run_id)
            await asyncio.sleep(60.0)
        self.open -= 1
        return await super().jobs(repository, run_id, now)


@on_virtual_time
async def test_the_number_of_simultaneous_reads_is_bounded_and_long_lists_are_read_less_often() -> (
    None
):
    controller, _ = await begin(World())
    now = controller.world.clock.now
    lists = ManyPages(now)
    for n in range(60):
        lists.queue(f"acme/r{n}", n, n, now())
    await watch(controller, lists, 1100.0)
    assert lists.most == AT_ONCE
    assert lists.asked["runners"] == 2, "each call that it took leaves it alone for 6 s"
    states = {of for of in lists.asked_of if of.startswith("acme/")}
    assert states == {f"acme/r{n}" for n in range(60)}


@on_virtual_time
async def test_a_long_list_of_runners_is_recorded_in_pieces() -> None:
    controller, lists = await begin(World())
    lists.registrations = [
        RegisteredRunner(number, RunnerName(f"other-{number}"), online=True, busy=False)
        for number in range(LISTED_AT_ONCE + 1)
    ]
    received: list[RunnersListed] = []

    def receive(event: Event) -> None:
        if isinstance(event, RunnersListed):
            received.append(event)

    controller.journal.on_event(receive)
    await watch(controller, lists, 600.0)
    first, second = received[:2]
    assert (len(first.at_work), first.more) == (LISTED_AT_ONCE, True)
    assert (len(second.at_work), second.more) == (1, False)
    assert first.began_at == second.began_at < first.at <= second.at


@on_virtual_time
async def test_calls_beyond_the_first_are_paid_back_with_a_share_of_the_rate() -> None:
    controller, lists = await begin(World())
    world = controller.world
    account = _AccountSync(
        "acme",
        ["org:acme"],
        controller.journal,
        lists,
        world.github,
        controller.intake.load_pruned_job,
        world.clock,
    )
    account._owed = 100.0
    now = account._filled_at + 4.0
    gained = 4.0 * lists.pace("org:acme")
    account._refill(now)
    assert account._owed == pytest.approx(100.0 - gained * PAID_BACK)
    assert account._level == pytest.approx(gained * (1.0 - PAID_BACK))
