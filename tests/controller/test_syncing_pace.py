"""Jobs that no webhook tells of: how soon a machine is asked for, within how many calls.

Nothing is ever unchanged here, so that every answer counts: the worst case.
"""

import asyncio
import itertools
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

import pytest

from autoscaler.controller.syncing import Syncing
from autoscaler.model.catalogue import Deadlines
from autoscaler.model.identifiers import Instant, JobId, Seconds
from autoscaler.model.jobs import JobState
from tests.controller.controllers import Controller, World, cancelled, delivery
from tests.controller.fakes_lists import KEPT_BACK, FakeLists, FakeRun
from tests.controller.virtual_time import on_virtual_time
from tests.planner.fleets import catalogue, sku

LOOK: Seconds = 0.5
WARM_UP: Seconds = 90.0


@dataclass
class Bench:
    """A controller that syncs with lists, and jobs whose time to a machine is taken."""

    world: World
    controller: Controller
    lists: FakeLists
    seed: int = 1
    waits: dict[int, Seconds] = field(default_factory=dict)
    of_new_runs: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._numbers = itertools.count(1000)
        self._queued: dict[JobId, Instant] = {}

    def begin(self, repositories: int, runs: int) -> None:
        """Runs of somebody else's jobs, spread over the repositories."""
        names = [f"acme/r{n}" for n in range(repositories)]
        for name in names:
            self.lists.active[name] = {}
        for number in range(runs):
            name = names[number % repositories]
            self.lists.queue(name, next(self._numbers), next(self._numbers), 0.0, "elsewhere")

    async def push(self, for_: Seconds, every: Seconds, told: float = 0.0) -> None:
        """A job now and then, a third of them in a run that takes another's place."""
        until = self.world.clock.now() + for_
        next_at = self.world.clock.now()
        while self.world.clock.now() < until or self._queued:
            now = self.world.clock.now()
            if next_at <= now < until:
                next_at = now + every
                await self._push(now, told)
            self._look(now)
            assert now < until + 3600.0, f"{len(self._queued)} jobs have no machine"
            await asyncio.sleep(LOOK)

    async def _push(self, now: Instant, told: float) -> None:
        repository = self._random.choice(list(self.lists.active))
        job = next(self._numbers)
        served = [
            (name, run) for name, run in self._at_work() if not run.jobs.keys() & self._queued
        ]
        if served and self._random.random() < 1 / 3:
            self._end(self._random.choice(served)[1])
            self.of_new_runs.add(job)
            number = next(self._numbers)
        else:
            repository, run = self._random.choice(self._at_work())
            number = run.id
        self.lists.queue(repository, number, job, now)
        self._queued[JobId(job)] = now
        if self._random.random() < told:
            webhook = delivery(job, job, JobState.QUEUED, now)
            await self.controller.intake.accept(webhook)

    def _at_work(self) -> list[tuple[str, FakeRun]]:
        of_all = self.lists.active.items()
        return [
            (name, r) for name, runs in of_all for r in runs.values() if r.status != "completed"
        ]

    def _end(self, run: FakeRun) -> None:
        run.status = "completed"
        for job, seen in run.jobs.items():
            run.jobs[job] = replace(seen, state=JobState.COMPLETED)

    def _look(self, now: Instant) -> None:
        state = self.controller.state
        known = [job for job in state.jobs.values() if job.state is JobState.QUEUED]
        if state.machines_used < len(known):
            return
        for job in [job for job in self._queued if job in state.jobs]:
            self.waits[job] = now - self._queued.pop(job)


@asynccontextmanager
async def bench(
    limit: int, repositories: int, runs: int, warm_up: Seconds = WARM_UP
) -> AsyncIterator[Bench]:
    """A controller at work, which has had time to read everything once."""
    patient = replace(sku(), deadlines=Deadlines(boot=86_400.0))  # no machine here ever boots
    world = World(catalogue=catalogue(patient))
    controller = Controller(world)
    await controller.resume()
    lists = FakeLists(world.clock.now, limit, since=world.clock.now())
    syncing = Syncing(
        controller.journal,
        lists,
        world.github,
        controller.intake.recall,
        world.telemetry,
        world.clock,
    )
    made = Bench(world, controller, lists)
    made.begin(repositories, runs)
    tasks = [asyncio.create_task(controller.loop.run()), asyncio.create_task(syncing.run())]
    await asyncio.sleep(warm_up)
    try:
        yield made
    finally:
        for task in tasks:
            assert not task.done()
            await cancelled(task)


def percentile(waits: list[Seconds], share: float) -> Seconds:
    return sorted(waits)[min(len(waits) - 1, int(len(waits) * share))]


@pytest.mark.parametrize(("limit", "runs"), [(15_000, 75), (5_000, 9)])
def test_without_any_webhook_a_job_has_its_machine_asked_for_within_a_minute(
    limit: int, runs: int
) -> None:
    @on_virtual_time
    async def of_an_hour() -> None:
        async with bench(limit, 20, runs) as made:
            await made.push(for_=900.0, every=4.0)
            assert len(made.waits) > 200
            assert max(made.waits.values()) <= 60.0
            began, used = made.world.clock.now(), made.lists.used
            await asyncio.sleep(600.0)
            an_hour = (made.lists.used - used) * 3600.0 / (made.world.clock.now() - began)
            assert 0 < an_hour <= limit * (1.0 - KEPT_BACK)
            assert made.world.telemetry.staleness["acme"] <= WARM_UP

    of_an_hour()


@on_virtual_time
async def test_with_a_fifth_of_the_webhooks_lost_nearly_every_job_is_seen_within_a_minute() -> None:
    async with bench(15_000, 20, 75) as made:
        await made.push(for_=900.0, every=2.0, told=0.8)
        waits = list(made.waits.values())
        assert len(waits) >= 400
        assert percentile(waits, 0.5) <= 2.0
        assert percentile(waits, 0.99) <= 60.0


@on_virtual_time
async def test_beyond_the_budget_new_runs_come_first_and_the_rest_in_turn() -> None:
    async with bench(5_000, 20, 300, warm_up=600.0) as made:
        await made.push(for_=900.0, every=15.0)
        new = [wait for job, wait in made.waits.items() if job in made.of_new_runs]
        old = [wait for job, wait in made.waits.items() if job not in made.of_new_runs]
        assert len(new) > 10
        assert max(new) <= 60.0
        assert 60.0 < max(old) <= 900.0
        assert made.world.telemetry.staleness["acme"] > 120.0
        assert made.lists.used <= 5_000 * (1.0 - KEPT_BACK)
