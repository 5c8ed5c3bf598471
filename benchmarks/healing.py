"""How soon a lost webhook is made up for, and how many of GitHub's calls that and the rest takes.

Run: `PYTHONPATH=. python benchmarks/healing.py [--load heal|lossy|fleet] [--seconds 1800]`. A whole
controller on virtual time beside a GitHub in memory that counts every call. Prints one JSON object a
row. `heal`: no webhook ever arrives and no answer is ever 304, the worst case; jobs of 20 repositories
are queued one by one, a third of them in a run that takes another's place. `lossy`: a fifth of the
webhooks is lost. `fleet`: 8,500 jobs an hour on 3,500 machines with all webhooks, runs of 12 builds
and then 67 tests as PyTorch's; takes minutes.
"""

import argparse
import asyncio
import itertools
import json
import random
from collections.abc import Coroutine, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from autoscaler.model.identifiers import Instant, JobId, Seconds
from autoscaler.model.jobs.job import JobState
from autoscaler.simulator.world.virtual_time import run
from benchmarks.hosted_actions import HostedJob
from benchmarks.steady_fleet import Hour, Steady, steady
from benchmarks.virtual_fleet import LABEL, REPOSITORIES, Setting, VirtualFleet
from benchmarks.waits import Waits, waits_of

ELSEWHERE = "elsewhere"
LOOK: Seconds = 0.5
WARM_UP: Seconds = 600.0
LONGEST: Seconds = 7200.0
OF_NEW_RUNS = 1 / 3

LOADS = ((5_000, 9), *((15_000, runs) for runs in (10, 25, 50, 75, 150, 300)))
"""Calls an hour, and active runs."""

FLEETS = ((5_000, 2.5), (15_000, 5.0))
"""Calls an hour, and registrations a second: one App's, and two Apps' of an enterprise."""


@dataclass(frozen=True, slots=True)
class Healing:
    """One load. `staleness` is the highest value of the metric.

    `calls` is the rate of an hour while it was measured, `most_in_an_hour` what counted in one.
    """

    limit: int
    active_runs: int
    webhooks_lost: float
    all_jobs: Waits
    in_new_runs: Waits
    staleness: Seconds
    calls: int
    most_in_an_hour: int


@dataclass(frozen=True, slots=True)
class Load:
    """What is measured: a job every `every` seconds, for `seconds`, beside so many active runs."""

    limit: int
    active_runs: int
    lost: float = 1.0
    every: Seconds = 4.0
    seconds: Seconds = 1800.0
    warm_up: Seconds = WARM_UP
    seed: int = 1


@dataclass
class _Pushes:
    """Jobs queued one by one, and how long each waited until there was a machine for it."""

    fleet: VirtualFleet
    chance: random.Random
    waits: dict[int, Seconds] = field(default_factory=dict)
    of_new_runs: set[int] = field(default_factory=set)
    queued: dict[int, Instant] = field(default_factory=dict)
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def begin(self, runs: int) -> None:
        """Runs with jobs for other runners, spread over the repositories."""
        for number in range(runs):
            repository = REPOSITORIES[number % len(REPOSITORIES)]
            self.fleet.actions.queue(repository, next(self.numbers), ELSEWHERE)

    async def go_on(self, every: Seconds, seconds: Seconds) -> None:
        """Queue, until all that was queued has its machine. Raises TimeoutError."""
        clock = self.fleet.clock
        until = next_at = clock.now()
        until += seconds
        while clock.now() < until or self.queued:
            now = clock.now()
            if next_at <= now < until:
                next_at = now + every
                self._push(now)
            self._look(now)
            if now > until + LONGEST:
                raise TimeoutError(f"{len(self.queued)} jobs have no machine")
            await asyncio.sleep(LOOK)

    def _push(self, now: Instant) -> None:
        at_work = [
            r for runs in self.fleet.actions.runs.values() for r in runs.values() if r.open_jobs
        ]
        # One whose jobs are still looked for is not ended: its place may be taken later.
        ready = [one for one in at_work if not one.jobs.keys() & self.queued.keys()]
        old = self.chance.choice(at_work)
        if ready and self.chance.random() < OF_NEW_RUNS:
            self.fleet.actions.end(self.chance.choice(ready))
            job = self._queue(self.chance.choice(REPOSITORIES), next(self.numbers))
            self.of_new_runs.add(job.id)
        else:
            job = self._queue(old.repository, old.id)
        self.queued[job.id] = now

    def _queue(self, repository: str, run_id: int) -> HostedJob:
        return self.fleet.actions.queue(repository, run_id, LABEL)

    def _look(self, now: Instant) -> None:
        state = self.fleet.process.state
        ours = [job for job in state.jobs.values() if job.demand is not None]
        known = sum(job.state is JobState.QUEUED for job in ours)
        if state.machines_used < known:
            return
        for job in [job for job in self.queued if JobId(job) in state.jobs]:
            self.waits[job] = now - self.queued.pop(job)


async def heal(load: Load) -> Healing:
    """Measure one load. Raises TimeoutError where a job never gets a machine."""
    setting = Setting(
        load.limit, REPOSITORIES, load.lost, always_counts=True, machines_boot=False, seed=load.seed
    )
    fleet = VirtualFleet(setting)
    pushes = _Pushes(fleet, random.Random(load.seed))
    async with fleet.at_work():
        pushes.begin(load.active_runs)
        await asyncio.sleep(load.warm_up)
        began, before = fleet.clock.now(), fleet.github.calls.total()
        fleet.recorded.staleness.clear()
        await pushes.go_on(load.every, load.seconds)
        spent, calls = fleet.clock.now() - began, fleet.github.calls.total() - before
    return Healing(
        load.limit,
        load.active_runs,
        load.lost,
        waits_of(list(pushes.waits.values())),
        waits_of([pushes.waits[job] for job in pushes.of_new_runs]),
        round(max(fleet.recorded.staleness), 1),
        round(calls * 3600.0 / spent),
        fleet.github.most_used,
    )


def main() -> None:
    """Print a row for each load."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--load", choices=("heal", "lossy", "fleet"), action="append")
    parser.add_argument("--seconds", type=float, default=1800.0, help="of virtual time, a row")
    options = parser.parse_args()
    wanted = options.load or ["heal", "lossy", "fleet"]
    rows: list[Coroutine[Any, Any, Healing | Hour]] = []
    if "heal" in wanted:
        rows += [heal(Load(limit, runs, seconds=options.seconds)) for limit, runs in LOADS]
    if "lossy" in wanted:
        rows += [heal(Load(limit, runs, 0.2, seconds=options.seconds)) for limit, runs in LOADS]
    if "fleet" in wanted:
        rows += [
            steady(Steady(limit, seconds=options.seconds, registrations=registrations))
            for limit, registrations in FLEETS
        ]
    for row in rows:
        print(json.dumps(asdict(run(row))), flush=True)


if __name__ == "__main__":
    main()
