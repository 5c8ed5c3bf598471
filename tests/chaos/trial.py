"""Plays one schedule to its end, and checks the world afterwards."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from autoscaler.model.identifiers import Instant, Seconds
from autoscaler.model.jobs.job import Job, JobState
from autoscaler.model.machines.interruptions import Rerun, RerunOutcome
from autoscaler.model.machines.machine import Machine
from autoscaler.simulator.world.controller.shared_store import SharedMemoryStore
from autoscaler.simulator.world.instances import INJECTED, MAY_KILL, RETIRED_FOR
from autoscaler.simulator.world.jobs import SimulatedJob
from autoscaler.simulator.world.schedule import FaultKind, Schedule
from autoscaler.simulator.world.setting import Setting
from autoscaler.simulator.world.virtual_time import EPOCH, run
from autoscaler.simulator.world.world import SimulatedWorld
from tests.chaos.cluster_fleets import SETTINGS
from tests.chaos.fleet import SETTING_OF_REPLICAS

PATIENCE: Seconds = 2.5 * 3600.0
"""Seconds after the last fault within which everything must end. An operator looks after an hour.

The longest hold is an hour, and a job runs for an hour and a quarter at most.
"""

SHOWN_AGAIN_WITHIN: Seconds = 120.0
"""Seconds after a restore in which a job may complete without a record in the store."""


@dataclass(frozen=True)
class Outcome:
    """The result of a schedule. `events` counts events in the world, `hits` the faults by kind."""

    seed: int
    violations: tuple[str, ...]
    events: int
    jobs: int
    hits: Counter[FaultKind] = field(default_factory=Counter)


def play(
    schedule: Schedule,
    setting: Setting | None = None,
    wanted: Callable[[str], bool] | None = None,
) -> Outcome:
    """Play a schedule on virtual time, by default with the providers that it names.

    Ends early after a violation that is `wanted`.
    """
    if setting is None:
        setting = SETTINGS[schedule.fleet] if schedule.replicas == 1 else SETTING_OF_REPLICAS

    async def scenario() -> Outcome:
        world = SimulatedWorld(setting, schedule)
        await world.run(PATIENCE, wanted)
        ended_early = wanted is not None and any(map(wanted, world.invariants.violations))
        for violation in () if ended_early else final_violations(world):
            world.invariants.note(violation)
        events = world.webhooks.sent + sum(len(c.history) for c in world.store.commits)
        return Outcome(
            schedule.seed,
            tuple(world.invariants.violations),
            events,
            len(world.actions.jobs),
            world.fault_schedule.hits,
        )

    return run(scenario())


def final_violations(world: SimulatedWorld) -> list[str]:
    """Return the violations at the end, when the world is quiet or its time is over."""
    return [*_wrong_jobs(world), *_unreported(world), *_left_over(world), *_lost(world)]


def _wrong_jobs(world: SimulatedWorld) -> list[str]:
    """Check that every job ran once, was cancelled or killed by a fault, and is recorded as such."""
    found = []
    kept = {record.id: record for record in world.store.of_kind(Job)}
    for job in world.actions.jobs.values():
        if job.state is not JobState.COMPLETED:
            found.append(f"job {job.id} is {job.state} in the end")
        elif (
            job.conclusion == "failure"
            and job.killed not in MAY_KILL
            and not (job.runner is not None and job.runner.refuses(job))
        ):
            found.append(f"job {job.id} failed without a fault")
        record = kept.get(job.id)
        if record is None and (
            _cancelled_before_it_ran(job)
            or _never_shown(world, job)
            or _before_the_store(world, job.completed_at)
        ):
            continue
        if record is None or (record.state, record.conclusion) != (job.state, job.conclusion):
            found.append(f"job {job.id} ended as {job.conclusion} and is recorded otherwise")
        if job.starts > 1:
            found.append(f"job {job.id} ran twice")
    return found


def _cancelled_before_it_ran(job: SimulatedJob) -> bool:
    """Return whether the job was cancelled before it ran. The controller need not know such a job."""
    return job.conclusion == "cancelled" and job.runner is None


def _never_shown(world: SimulatedWorld, job: SimulatedJob) -> bool:
    """Return whether all webhooks of the job were lost, and it completed before the next list.

    After the store was rewound, only later webhooks and lists count for a job that is not in the store.
    """
    unseen = job.id not in world.webhooks.logged and job.id not in world.lists.shown
    return unseen and job.state is JobState.COMPLETED


def _without_notice(world: SimulatedWorld, job: SimulatedJob) -> bool:
    """Return whether the controller got no notice of why the machine of the job ended.

    EC2 gives no reason after a retirement, and nothing shows the reason of a pod that was removed.
    """
    activities = [s for s in world.machines.activities if s.registration is job.runner]
    gone = activities[0].instance
    if gone.offering.provider in world.clusters:
        return gone.id not in world.clusters[gone.offering.provider].noticed
    noticed = world.notices[gone.offering.provider].processed_at.get(gone.id)
    return job.killed == RETIRED_FOR and (noticed is None or noticed >= (gone.ended_at or 0.0))


def _before_the_store(world: SimulatedWorld, moment: Instant | None) -> bool:
    """Return whether this was before a restore of the store, or shortly after. The store need not know it."""
    rewound = world.supervisor.rewound_at
    if rewound is None or moment is None:
        return False
    return moment < EPOCH + rewound + SHOWN_AGAIN_WITHIN


def _unreported(world: SimulatedWorld) -> list[str]:
    """Check that each interrupted job is recorded as such, and was re-run if so recorded."""
    found = []
    reruns = {rerun.job: rerun for rerun in world.store.of_kind(Rerun)}
    for job in world.actions.jobs.values():
        if job.killed not in INJECTED or job.conclusion != "failure":
            continue
        rerun = reruns.get(job.id)
        if rerun is None and (
            _never_shown(world, job)
            or _without_notice(world, job)
            or _before_the_store(world, job.started_at)
        ):
            continue
        if rerun is None:
            found.append(f"job {job.id} was killed and is not reported as interrupted")
        elif rerun.outcome is RerunOutcome.ACCEPTED and world.actions.latest[job.run] is job:
            found.append(f"job {job.id} is reported as re-run and was not")
    return found


def _left_over(world: SimulatedWorld) -> list[str]:
    found = [f"{instance.id} was left running" for instance in world.machines.running]
    found += [
        f"{activity.registration.name} was left listening"
        for activity in world.machines.activities
        if activity.listens and activity.registration is not None
    ]
    found += [
        f"machine {m.id} is {m.state} in the end"
        for m in world.store.of_kind(Machine)
        if m.occupies
    ]
    found += [f"{r.name} was left registered" for r in world.orphaned_registrations]
    found += [f"pod {n} was left" for c in world.clusters.values() for n in c.left_over]
    return found


def _lost(world: SimulatedWorld) -> list[str]:
    """Check that each delivery that was acknowledged is stored, and was applied."""
    store = world.store
    if not isinstance(store, SharedMemoryStore):
        return []
    acknowledged = [one for one in store.acknowledged if one not in store.applied]
    lost = sum(one not in store.inbox for one in acknowledged)
    found = [f"{lost} deliveries were acknowledged and are lost"] if lost else []
    left = len(acknowledged) - lost
    return found + ([f"{left} deliveries were acknowledged and never applied"] if left else [])
