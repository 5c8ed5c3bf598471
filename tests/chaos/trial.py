"""One schedule played to its end, and what is wrong with the world then."""

from collections import Counter
from dataclasses import dataclass, field

from autoscaler.model.identifiers import Seconds
from autoscaler.model.jobs import Job, JobState
from autoscaler.model.machines import Machine
from autoscaler.simulator.world.schedule import FaultKind, Schedule
from autoscaler.simulator.world.virtual_time import run
from autoscaler.simulator.world.world import Setting, SimulatedWorld
from tests.chaos.fleet import SETTING

PATIENCE: Seconds = 2.5 * 3600.0
"""How long after the last fault all must be over: the longest hold is an hour, a job half of one."""


@dataclass(frozen=True)
class Outcome:
    """What a schedule came to. `events` are things that happened in the world, `hits` its faults."""

    seed: int
    violations: tuple[str, ...]
    events: int
    jobs: int
    hits: Counter[FaultKind] = field(default_factory=Counter)


def play(schedule: Schedule, setting: Setting = SETTING) -> Outcome:
    """Play a schedule on virtual time."""

    async def scenario() -> Outcome:
        world = SimulatedWorld(setting, schedule)
        await world.run(PATIENCE)
        for violation in _left_wrong(world):
            world.witness.note(violation)
        events = world.webhooks.told + sum(len(c.history) for c in world.store.commits)
        return Outcome(
            schedule.seed,
            tuple(world.witness.violations),
            events,
            len(world.actions.jobs),
            world.weather.hits,
        )

    return run(scenario())


def _left_wrong(world: SimulatedWorld) -> list[str]:
    return [*_wrong_jobs(world), *_left_over(world)]


def _wrong_jobs(world: SimulatedWorld) -> list[str]:
    """Every job ran once, or was cancelled, or was killed by a fault; and each is known so."""
    found = []
    kept = {record.id: record for record in world.store.of_kind(Job)}
    for job in world.actions.jobs.values():
        if job.state is not JobState.COMPLETED:
            found.append(f"job {job.id} is {job.state} in the end")
        elif job.conclusion == "failure" and not job.killed:
            found.append(f"job {job.id} failed without a fault")
        record = kept.get(job.id)
        if record is None or (record.state, record.conclusion) != (job.state, job.conclusion):
            found.append(f"job {job.id} ended as {job.conclusion} and is not known so")
        if job.starts > 1:
            found.append(f"job {job.id} ran twice")
    return found


def _left_over(world: SimulatedWorld) -> list[str]:
    found = [f"{instance.id} was left running" for instance in world.machines.running]
    found += [
        f"{seat.registration.name} was left listening"
        for seat in world.machines.seats
        if seat.listens and seat.registration is not None
    ]
    found += [
        f"machine {m.id} is {m.state} in the end"
        for m in world.store.of_kind(Machine)
        if m.occupies
    ]
    return found
