"""Random steps of runners, users and time: the Actions service stays consistent."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from lab.github.actions import (
    Actions,
    JobCancelledError,
    NotTheirJobError,
    RunnerBusyError,
)
from lab.github.directory import Directory
from lab.github.matching import Matching, fits
from lab.github.records import Job, JobStatus, Runner
from lab.github.runners import RunnerGoneError, RunnerScope
from lab.github.settings import LabOrganization, Patience
from lab.github.timers import Timers
from lab.github.workflows import Workflows
from tests.lab.github.harness import HandClock, job, settle

REFUSALS = (NotTheirJobError, RunnerGoneError, JobCancelledError, RunnerBusyError)
LABELS = st.sampled_from([("a",), ("b",), ("a", "b")])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("push"), LABELS, st.booleans()),
        st.tuples(st.just("runner"), LABELS, st.just(0)),
        st.tuples(
            st.sampled_from(["poll", "poll", "started", "started", "renew", "completed"]),
            st.integers(0, 2),
            st.integers(0, 5),
        ),
        st.tuples(st.sampled_from(["delete", "cancel"]), st.integers(0, 5), st.just(0)),
        st.tuples(st.just("advance"), st.sampled_from([1.0, 60.0, 600.0, 90_000.0]), st.just(0)),
    ),
    min_size=20,
    max_size=60,
)


@dataclass
class World:
    """One service, and all its runners and jobs."""

    clock: HandClock = field(default_factory=HandClock)
    runners: list[Runner] = field(default_factory=list)
    polls: list[asyncio.Task[Job | None]] = field(default_factory=list)
    reported: list[tuple[int, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.directory = Directory([], [LabOrganization("acme", ("rocket",))])
        self.timers = Timers(self.clock)
        self.workflows = Workflows(self.directory.organizations)
        self.actions = Actions(
            self.clock,
            self.timers,
            Matching(),
            self.workflows,
            Patience(),
            lambda job, action: self.reported.append((job.id, action)),
        )

    async def step(self, what: str, first: object, second: object) -> None:
        jobs = list(self.workflows.jobs.values())
        if what == "push" and isinstance(first, tuple):
            needs = tuple(one.spec.name for one in jobs[-3:]) if second else ()
            self.actions.push([job(f"job {len(jobs)}", first, run_id=5, needs=needs)])
        elif what == "runner" and isinstance(first, tuple):
            acme = self.directory.organizations["acme"]
            scope = RunnerScope(acme, None)
            name = f"r{len(self.runners)}"
            self.runners.append(self.actions.runners.add(scope, acme.groups[1], name, first, 1))
            self.actions.connect(self.runners[-1])
        elif what == "advance" and isinstance(first, float):
            await self.clock.advance(first)
        elif what == "cancel" and isinstance(first, int) and jobs:
            self.actions.cancel(jobs[first % len(jobs)])
        elif isinstance(first, int) and isinstance(second, int) and self.runners:
            with suppress(*REFUSALS):
                self._speak(what, self.runners[-1 - first % len(self.runners)], second)
        await settle()

    def _speak(self, what: str, runner: Runner, which: int) -> None:
        """Let a runner report about its own job, or about another one if it has none."""
        jobs = list(self.workflows.jobs)
        number = runner.job.id if runner.job is not None else ([*jobs, 0] * 6)[which]
        if what == "poll":
            self.polls.append(asyncio.create_task(self.actions.message(runner, 1000.0)))
        elif what == "started":
            self.actions.started(runner, number)
        elif what == "renew":
            self.actions.renew(runner, number)
        elif what == "completed":
            self.actions.completed(runner, number, "success", stepped=True)
        elif what == "delete":
            self.actions.delete(runner)

    def check(self) -> None:
        jobs = self.workflows.jobs.values()
        assert self.actions.unfinished == sum(j.status is not JobStatus.COMPLETED for j in jobs)
        assert self.actions.settled.is_set() == (self.actions.unfinished == 0)
        for runner in self.runners:
            if runner.job is not None:
                assert runner.job.runner is runner
                assert runner.job.status in {JobStatus.QUEUED, JobStatus.IN_PROGRESS}
                assert not runner.gone
        idle = [r for r in self.runners if r.poll is not None and r.job is None]
        for one in jobs:
            assert len(one.starts) <= 1
            if one.status is not JobStatus.COMPLETED and one.runner is not None:
                assert one.runner.job is one
            if one.status is JobStatus.QUEUED and one.runner is None:
                assert not any(fits(runner.kind, one.kind) for runner in idle)
        ended = [number for number, action in self.reported if action == "completed"]
        assert len(ended) == len(set(ended)) == len(jobs) - self.actions.unfinished


async def _play(steps: list[tuple[str, object, object]]) -> None:
    world = World()
    timing = asyncio.create_task(world.timers.run())
    for step in steps:
        await world.step(*step)
        assert not timing.done()
        world.check()
    world.actions.runners.close_polls()
    await asyncio.gather(*world.polls, return_exceptions=True)
    await world.clock.advance(90_000.0)
    await world.clock.advance(90_000.0)
    world.check()
    assert world.actions.unfinished == 0, "nothing hangs for ever"
    timing.cancel()
    await asyncio.gather(timing, return_exceptions=True)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(STEPS)
def test_every_job_is_started_at_most_once_and_ends_once(
    steps: list[tuple[str, object, object]],
) -> None:
    asyncio.run(_play(steps))
