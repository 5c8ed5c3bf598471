"""Counts the calls to GitHub, by kind, of a large fleet at work for hours.

Jobs arrive as in PyTorch's repository: the builds of a push, and its tests when the builds are done.
`healing.py` runs this.
"""

import asyncio
import itertools
import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from autoscaler.model.catalogue import RegistrationRate
from autoscaler.model.identifiers import Instant, Seconds
from benchmarks.counted_github import CountedGitHub
from benchmarks.virtual_fleet import LABEL, REPOSITORIES, Setting, VirtualFleet
from benchmarks.waits import Waits, waits_of

HOUR: Seconds = 3600.0
LOOK: Seconds = 60.0
BUILDS, TESTS = 12, 67
"""Jobs of a push to PyTorch's trunk: the tests are queued when the builds are done."""


@dataclass(frozen=True, slots=True)
class Steady:
    """The load: jobs an hour, each of `works` seconds on average, for `seconds` after a warm-up.

    `registrations` is the number of registrations a second: 2.5 for each App, 5 at most.
    """

    limit: int
    jobs_an_hour: float = 8500.0
    works: Seconds = 1400.0
    warm_up: Seconds = 4500.0
    seconds: Seconds = HOUR
    lost: float = 0.0
    seed: int = 1
    registrations: float = 2.5


@dataclass(frozen=True, slots=True)
class Hour:
    """A fleet's calls in an hour, by kind: counted, free (304) and refused.

    `counted` is the maximum that GitHub's hourly limit of the installation counts: all calls but registrations,
    which have their own bucket.
    """

    limit: int
    registrations_a_second: float
    webhooks_lost: float
    machines: int
    jobs: int
    active_runs: int
    counted: int
    calls: Mapping[str, int]
    unchanged: Mapping[str, int]
    refused: Mapping[str, int]
    queued_to_started: Waits
    staleness: Seconds


async def steady(load: Steady) -> Hour:
    """Measure a fleet at work."""
    setting = Setting(
        load.limit,
        REPOSITORIES,
        load.lost,
        always_counts=False,
        machines_boot=True,
        seed=load.seed,
        registrations=RegistrationRate(round(10 * load.registrations), load.registrations),
    )
    fleet = VirtualFleet(setting)
    async with fleet.at_work():
        pushing = asyncio.create_task(_push_for_ever(fleet, load))
        try:
            await asyncio.sleep(load.warm_up)
            began, before, machines = fleet.clock.now(), _counts(fleet.github), []
            fleet.recorded.staleness.clear()
            while fleet.clock.now() < began + load.seconds:
                machines.append(fleet.machines)
                await asyncio.sleep(LOOK)
        finally:
            pushing.cancel()
        spent = [now - then for now, then in zip(_counts(fleet.github), before, strict=True)]
    return _hour(fleet, load, began, spent, round(sum(machines) / len(machines)))


def _counts(github: CountedGitHub) -> list[Counter[str]]:
    return [Counter(github.calls), Counter(github.unchanged), Counter(github.refused)]


def _hour(
    fleet: VirtualFleet, load: Steady, began: Instant, spent: list[Counter[str]], machines: int
) -> Hour:
    hours = load.seconds / HOUR
    calls, unchanged, refused = (
        {kind: round(count / hours) for kind, count in sorted(counter.items())} for counter in spent
    )
    jobs = [job for job in fleet.actions.jobs.values() if job.queued_at >= began]
    waits = [job.started_at - job.queued_at for job in jobs if job.started_at is not None]
    runs = [one for of_one in fleet.actions.runs.values() for one in of_one.values()]
    return Hour(
        limit=load.limit,
        registrations_a_second=load.registrations,
        webhooks_lost=load.lost,
        machines=machines,
        jobs=round(len(jobs) / hours),
        active_runs=sum(one.open_jobs > 0 for one in runs),
        counted=sum(count for kind, count in calls.items() if kind != "register"),
        calls=calls,
        unchanged=unchanged,
        refused=refused,
        queued_to_started=waits_of(waits),
        staleness=round(max(fleet.recorded.staleness), 1),
    )


async def _push_for_ever(fleet: VirtualFleet, load: Steady) -> None:
    chance = random.Random(load.seed)
    async with asyncio.TaskGroup() as pushes:
        for number in itertools.count(1):
            pushes.create_task(_push(fleet, number, load.works, chance))
            await asyncio.sleep(chance.expovariate(load.jobs_an_hour / (BUILDS + TESTS) / HOUR))


async def _push(fleet: VirtualFleet, number: int, works: Seconds, chance: random.Random) -> None:
    repository = chance.choice(REPOSITORIES)

    def queue(count: int) -> None:
        for _ in range(count):
            fleet.actions.queue(repository, number, LABEL, works * chance.uniform(0.5, 1.5))

    queue(BUILDS)
    await fleet.actions.runs[repository][number].over.wait()
    queue(TESTS)
