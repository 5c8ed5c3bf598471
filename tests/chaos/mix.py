"""Makes a schedule of jobs and faults from a seed. Only this module draws random numbers."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from random import Random

from autoscaler.model.identifiers import Seconds
from autoscaler.simulator.world.schedule import (
    REPOSITORY,
    Fault,
    FaultKind,
    Fleet,
    JobArrival,
    Schedule,
)
from tests.chaos.fleet import LABELS

JOBS = (50, 60)
LASTS: Seconds = 7200.0
"""The time at which the last fault ends."""

AFTERWARDS: Seconds = LASTS + 4000.0
"""The time of the last jobs: nothing is on hold any more, and the operator has come."""

FIRST_BACKUP: Seconds = 180.0
"""Earliest time of a backup: machines boot and run jobs by then."""

WIDGETS, GADGETS = REPOSITORY, "acme/gadgets"

KINDS = (6, 11)
K = FaultKind

LISTS_EVERY = 5
"""The controller reads GitHub's lists in every n-th seed only, because that doubles the CPU time."""

NEED_LISTS = (K.WEBHOOK_VANISHED, K.STALE_JOB, K.STORE_RESTORED, K.STORE_LOST)
"""Kinds that only lists repair. Each seed with lists has one of them, and no other seed has any."""


APART = (
    K.EMPTY_PAGES,
    K.OVERRIDE_REFUSED,
    K.END_IGNORED,
    K.WRONG_ANSWERS,
)
"""Kinds with a random generator of their own. A new kind here changes no other fault or job of a seed,
and so keeps the stored schedules of the planted bugs valid."""

HEALED_BY_LISTS = (K.WRONG_ANSWERS,)
"""The kinds of `APART` that only lists repair. Only seeds with lists have them."""

APART_SHARE = 0.2
"""The share of the seeds that have a kind of `APART`. It is about the same for other kinds."""

OF_EC2 = (
    K.THROTTLED,
    K.LAUNCH_5XX,
    K.LAUNCH_SWALLOWED,
    K.LAUNCH_SLOW,
    K.NO_CAPACITY,
    K.OVERRIDE_REFUSED,
    K.PARTIAL_FLEET,
    K.NO_QUOTA,
    K.EVENTUAL,
    K.LIST_BREAKS,
    K.EMPTY_PAGES,
    K.END_REFUSED,
    K.END_IGNORED,
    K.END_SWALLOWED,
    K.DIES_EARLY,
    K.TAKEN,
    K.INTERRUPTED,
    K.RETIRED,
    K.REBALANCED,
    K.NOTICE_LOST,
    K.NOTICE_LATE,
    K.NOTICE_REPEATED,
    K.NOTICE_POISONED,
    K.QUEUE_FAILS,
)
"""The kinds that a world without EC2 does not have."""

OF_CLUSTERS = (
    K.API_DOWN,
    K.API_THROTTLED,
    K.API_5XX,
    K.API_SWALLOWED,
    K.API_SLOW,
    K.SHORT_PAGES,
    K.LIST_EXPIRED,
    K.WATCH_BREAKS,
    K.WATCH_SILENT,
    K.WATCH_EXPIRED,
    K.REVIEW_FAILS,
    K.POD_QUOTA,
    K.IMAGE_PULL,
    K.POD_REFUSED,
    K.POD_STUCK,
    K.POD_EVICTED,
    K.POD_PREEMPTED,
    K.POD_OUT_OF_MEMORY,
    K.NODE_DRAINED,
    K.NODE_LOST,
    K.NODE_DIED,
    K.NODES_TAKEN,
    K.NO_NEW_NODES,
)
"""The kinds that only worlds with clusters have."""

KINDS_OF_CLUSTERS = (5, 8)
"""How many of them such a world has, beside the other kinds."""

_REWOUND = (K.STORE_RESTORED, K.STORE_LOST)


@dataclass(frozen=True, slots=True)
class Habit:
    """The ranges of a kind: how often, for how long, every n-th request or machine, and its target."""

    times: tuple[int, int] = (1, 2)
    lasts: tuple[float, float] = (300.0, 1800.0)
    every: tuple[int, ...] = (1, 2, 3)
    target: tuple[int, int] = (0, 0)


HABITS: Mapping[FaultKind, Habit] = {
    K.WEBHOOK_FAILED: Habit(lasts=(600, 5000), every=(2, 3, 5)),
    K.WEBHOOK_VANISHED: Habit(lasts=(600, 5000), every=(1, 3, 5)),
    K.WEBHOOK_REPEATED: Habit(lasts=(600, 5000), every=(1, 2, 3)),
    K.WEBHOOK_LATE: Habit(lasts=(600, 5000), every=(2, 3), target=(2, 240)),
    K.GITHUB_5XX: Habit(every=(1, 2, 3)),
    K.GITHUB_SWALLOWED: Habit(every=(1, 2, 3)),
    K.SECONDARY_LIMIT: Habit(lasts=(60, 600), every=(1,)),
    K.REGISTRATION_REFUSED: Habit(lasts=(60, 900), every=(1, 2)),
    K.STALE_LIST: Habit(lasts=(600, 5000), every=(1, 2), target=(30, 60)),
    K.STALE_JOB: Habit(lasts=(600, 5000), every=(1, 2), target=(30, 60)),
    K.LIST_SAYS_IDLE: Habit(lasts=(600, 5000), every=(1,)),
    K.DELETE_SAYS_BUSY: Habit(lasts=(300, 3000), every=(1, 2)),
    K.DELETE_OF_BUSY: Habit(lasts=(600, 7000), every=(1,)),
    K.HANDED_OUT_LATE: Habit(lasts=(600, 5000), every=(2, 3, 5), target=(130, 240)),
    K.STOLEN: Habit(lasts=(1200, 7000), every=(1,)),
    K.IDLE_REMOVED: Habit(lasts=(600, 5000), every=(1,)),
    K.THROTTLED: Habit(every=(1, 2, 3)),
    K.LAUNCH_5XX: Habit(every=(1, 2, 3)),
    K.LAUNCH_SWALLOWED: Habit(every=(1, 2, 3)),
    K.LAUNCH_SLOW: Habit(every=(1, 2), target=(5, 120)),
    K.NO_CAPACITY: Habit(every=(1,), target=(1, 2)),
    K.OVERRIDE_REFUSED: Habit(lasts=(300, 3000), every=(1, 2), target=(1, 2)),
    K.PARTIAL_FLEET: Habit(lasts=(600, 5000), every=(1, 2)),
    K.NO_QUOTA: Habit(lasts=(300, 1200), every=(1,)),
    K.EVENTUAL: Habit(lasts=(600, 5000), every=(1, 2), target=(5, 45)),
    K.LIST_BREAKS: Habit(every=(1, 2)),
    K.EMPTY_PAGES: Habit(lasts=(300, 3000), every=(1, 2)),
    K.END_REFUSED: Habit(every=(1, 2)),
    K.END_IGNORED: Habit(lasts=(1800, 6000), every=(1,)),
    K.END_SWALLOWED: Habit(every=(1, 2)),
    K.HUNG_BOOT: Habit(every=(1, 2, 3)),
    K.SLOW_BOOT: Habit(every=(1, 2, 3)),
    K.FAILED_HEALTH_CHECKS: Habit(every=(1, 2, 3)),
    K.DIES_EARLY: Habit(every=(1, 2, 3)),
    K.INTERRUPTED: Habit(times=(1, 5), lasts=(120, 120), every=(1,), target=(0, 50)),
    K.RETIRED: Habit(times=(1, 3), lasts=(600, 600), every=(1,), target=(0, 50)),
    K.REBALANCED: Habit(times=(1, 5), lasts=(0, 0), every=(1,), target=(0, 50)),
    K.NOTICE_LOST: Habit(lasts=(600, 5000)),
    K.NOTICE_LATE: Habit(lasts=(600, 5000), target=(2, 240)),
    K.NOTICE_REPEATED: Habit(lasts=(600, 5000)),
    K.NOTICE_POISONED: Habit(lasts=(600, 5000)),
    K.QUEUE_FAILS: Habit(),
    K.RERUN_REFUSED: Habit(lasts=(600, 5000), every=(1, 2)),
    K.TAKEN: Habit(times=(1, 5), lasts=(0, 0), every=(1,), target=(0, 50)),
    K.TAKEN_STARTING: Habit(lasts=(600, 5000), every=(3, 5)),
    K.CUT_OFF: Habit(times=(1, 3), lasts=(60, 2400), every=(1,), target=(0, 50)),
    K.CRASH: Habit(times=(1, 5), lasts=(5, 900), every=(1,), target=(1, 60)),
    K.STORE_FAILS: Habit(times=(1, 2), lasts=(5, 120), every=(1,)),
    K.STORE_SLOW: Habit(lasts=(60, 900), every=(1,)),
    K.CLOCK_JUMP: Habit(times=(1, 2), lasts=(60, 1800), every=(1,), target=(-600, 1200)),
    K.STORE_RESTORED: Habit(times=(1, 1), lasts=(3600, 3600), every=(1,), target=(30, 3400)),
    K.WRONG_ANSWERS: Habit(times=(1, 1), lasts=(2700, 4000), every=(1,)),
    K.STORE_LOST: Habit(times=(1, 1), lasts=(3600, 3600), every=(1,)),
    K.API_DOWN: Habit(times=(1, 3), lasts=(20, 900), every=(1,)),
    K.API_THROTTLED: Habit(every=(1, 2, 3)),
    K.API_5XX: Habit(every=(1, 2, 3)),
    K.API_SWALLOWED: Habit(every=(1, 2, 3)),
    K.API_SLOW: Habit(every=(1, 2, 3), target=(2, 40)),
    K.SHORT_PAGES: Habit(lasts=(600, 5000), every=(1,)),
    K.LIST_EXPIRED: Habit(every=(2, 3, 5)),
    K.WATCH_BREAKS: Habit(lasts=(600, 5000), every=(1, 2, 5)),
    K.WATCH_SILENT: Habit(lasts=(300, 3000), every=(1, 3)),
    K.WATCH_EXPIRED: Habit(times=(2, 6), lasts=(0, 0), every=(1,)),
    K.REVIEW_FAILS: Habit(every=(1, 2)),
    K.POD_QUOTA: Habit(lasts=(300, 1200), every=(1, 2)),
    K.IMAGE_PULL: Habit(every=(1, 2, 3)),
    K.POD_REFUSED: Habit(every=(1, 2, 3)),
    K.POD_STUCK: Habit(lasts=(300, 3000), every=(1, 2)),
    K.POD_EVICTED: Habit(times=(1, 5), lasts=(0, 0), every=(1,), target=(0, 50)),
    K.POD_PREEMPTED: Habit(times=(1, 5), lasts=(60, 900), every=(1,), target=(0, 50)),
    K.POD_OUT_OF_MEMORY: Habit(times=(1, 3), lasts=(0, 0), every=(1,), target=(0, 50)),
    K.NODE_DRAINED: Habit(times=(1, 3), lasts=(60, 1200), every=(1,), target=(0, 50)),
    K.NODE_LOST: Habit(times=(1, 3), lasts=(60, 1500), every=(1,), target=(0, 50)),
    K.NODE_DIED: Habit(times=(1, 3), lasts=(60, 1500), every=(1,), target=(0, 50)),
    K.NODES_TAKEN: Habit(times=(1, 3), every=(1,), target=(0, 5)),
    K.NO_NEW_NODES: Habit(every=(1,)),
}


def schedule_of(seed: int, clusters: bool = False) -> Schedule:
    """Return the schedule of a seed, always the same: over EC2, or over clusters alone and both in turn."""
    random = Random(seed)
    lists = seed % LISTS_EVERY == 0
    fleet = (Fleet.KUBERNETES, Fleet.BOTH)[seed % 2] if clusters else Fleet.EC2
    absent = OF_EC2 if fleet is Fleet.KUBERNETES else ()
    drawn = [k for k in FaultKind if k not in (*NEED_LISTS, *APART, *OF_CLUSTERS, *absent)]
    kinds = random.sample(drawn, random.randint(*KINDS))
    if lists:
        kinds.append(NEED_LISTS[seed // LISTS_EVERY % len(NEED_LISTS)])
    faults = [fault for kind in kinds for fault in _faults(random, kind)]
    apart = [k for k in APART if (lists or k not in HEALED_BY_LISTS) and k not in absent]
    faults += [fault for kind in apart for fault in _drawn_apart(seed, kind)]
    if clusters:
        faults += _of_clusters(Random(f"{seed} clusters"))
    jobs = _jobs(random)
    faults = [_with_a_backup(fault) for fault in faults]
    for fault in [fault for fault in faults if fault.kind is K.STORE_RESTORED]:
        jobs += _at_work_since(fault, len(jobs))
        faults += _unseen(random, fault)
        faults += [_slow_in(fleet, slow) for slow in _under_way(random, fault)]
        faults += _started_again(random, fault)
    faults += [_left_behind(fault) for fault in faults if fault.kind in _REWOUND]
    faults += [_held_before(fault) for fault in faults if fault.kind is K.DELETE_OF_BUSY]
    jobs += _afterwards(Random(f"{seed} afterwards"), len(jobs))
    for fault in [fault for fault in faults if fault.kind is K.WRONG_ANSWERS]:
        jobs += _at_work_unseen(fault, len(jobs))
        faults += _unreported(fault)
    jobs += _of_new_repositories(Random(f"{seed} new"), len(jobs))
    faults.sort(key=lambda fault: (fault.at, fault.kind))
    return Schedule(seed, tuple(jobs), tuple(faults), lists, fleet)


def _of_clusters(random: Random) -> list[Fault]:
    """Return the faults of API servers, pods and nodes."""
    kinds = random.sample(OF_CLUSTERS, random.randint(*KINDS_OF_CLUSTERS))
    faults = [fault for kind in kinds for fault in _faults(random, kind)]
    # Only a list in more than one page can expire.
    paged = [replace(one, kind=K.SHORT_PAGES) for one in faults if one.kind is K.LIST_EXPIRED]
    return faults + paged


def _at_work_unseen(fault: Fault, jobs: int) -> list[JobArrival]:
    """Return jobs that are queued as GitHub's answers turn wrong, and run longer than that fault."""
    began = max(0.0, fault.at - 10.0)
    return [
        JobArrival(round(began + n, 2), jobs + n, (sku,), round(fault.lasts + 600.0, 1))
        for n, sku in enumerate(("arm", "arm", "gpu", "cpu"), 1)
    ]


def _unreported(fault: Fault) -> list[Fault]:
    """Return faults that silence the agents, and lose the webhooks, of these jobs."""
    lasts = round(fault.lasts - 300.0, 1)
    cut_off = [Fault(fault.at + 300.0, K.CUT_OFF, lasts, target=n) for n in range(10)]
    vanished = Fault(fault.at, K.WEBHOOK_VANISHED, fault.lasts)
    return [*cut_off, vanished]


def _of_new_repositories(random: Random, jobs: int) -> list[JobArrival]:
    """Return jobs of new repositories, in every fifth world."""
    if random.random() >= APART_SHARE:
        return []
    return [
        JobArrival(
            round(random.uniform(0.0, LASTS), 2),
            jobs + n,
            random.choice(LABELS),
            round(random.uniform(30.0, 600.0), 1),
            repository=f"acme/new-{n}",
        )
        for n in range(1, 5)
    ]


def _afterwards(random: Random, jobs: int) -> list[JobArrival]:
    """Return a flood of jobs of one repository, and then jobs of another for each SKU."""
    label, count = random.choice((("gpu", 10), ("gpu", 10), ("arm", 10), ("cpu", 6)))
    flood = [((label,), WIDGETS)] * count
    others = [(("gpu", "linux"), GADGETS)] * 2 + [((sku,), GADGETS) for sku in ("arm", "cpu")]
    return [
        JobArrival(
            round(AFTERWARDS + number, 2),
            jobs + number,
            labels,
            round(random.uniform(60.0, 600.0), 1),
            repository=repository,
        )
        for number, (labels, repository) in enumerate(flood + others, 1)
    ]


def _left_behind(fault: Fault) -> Fault:
    """Return a fault that hangs machines when a store is restored or lost, so that they never report."""
    began = max(0.0, fault.at - 1200.0)
    return Fault(began, K.HUNG_BOOT, round(fault.at - began + 60.0, 1), every=2)


def _with_a_backup(fault: Fault) -> Fault:
    """Delay a restore until its backup can have been made of a store that is not empty."""
    if fault.kind is not K.STORE_RESTORED:
        return fault
    return replace(fault, at=max(fault.at, fault.target + FIRST_BACKUP))


def _at_work_since(fault: Fault, jobs: int) -> list[JobArrival]:
    """Return jobs whose machines boot during the backup, and that still run at the restore.

    The backup shows these machines as idle. They work for longer than any boot deadline.
    """
    backup = fault.at - fault.target
    works = fault.target + 1800.0
    return [
        JobArrival(round(backup - 10.0 * n, 2), jobs + n, labels, works)
        for n, labels in enumerate((("gpu",), ("gpu",), ("arm",), ("arm",), ("cpu",), ("cpu",)), 1)
    ]


def _unseen(random: Random, fault: Fault) -> list[Fault]:
    """Return an outage of GitHub after the restore, in every second of these worlds."""
    return [Fault(fault.at, K.GITHUB_5XX, 1800.0)] if random.random() < 0.5 else []


def _under_way(random: Random, fault: Fault) -> list[Fault]:
    """Return slow launches during the backup, so that it has unanswered requests; in every second world."""
    began = fault.at - fault.target - 60.0
    slow = Fault(round(began, 1), K.LAUNCH_SLOW, 60.0, target=90)
    return [slow] if random.random() < 0.5 else []


def _slow_in(fleet: Fleet, slow: Fault) -> Fault:
    """Return a fault of slow launches as the providers of a world have it."""
    if fleet is not Fleet.KUBERNETES:
        return slow
    return replace(slow, kind=K.API_SLOW, target=25)


def _started_again(random: Random, fault: Fault) -> list[Fault]:
    """Return a second restart within minutes, in every second of these worlds."""
    began = round(fault.at + random.uniform(40.0, 400.0), 1)
    return [Fault(began, K.CRASH, 5.0, target=1)] if random.random() < 0.5 else []


def _held_before(fault: Fault) -> Fault:
    """Return a fault that delays jobs until a runner is about to leave, which then gets the job."""
    return Fault(fault.at, K.HANDED_OUT_LATE, fault.lasts, every=2, target=200)


def _faults(random: Random, kind: FaultKind) -> list[Fault]:
    habit = HABITS[kind]
    found = []
    for _ in range(random.randint(*habit.times)):
        lasts = round(random.uniform(*habit.lasts), 1)
        at = round(random.uniform(0.0, LASTS - lasts), 1)
        target = random.randint(*habit.target)
        found.append(Fault(at, kind, lasts, random.choice(habit.every), target))
    return found


def _drawn_apart(seed: int, kind: FaultKind) -> list[Fault]:
    """Return the faults of a kind in `APART`: none in most seeds."""
    random = Random(f"{seed} {kind}")
    return _faults(random, kind) if random.random() < APART_SHARE else []


def _jobs(random: Random) -> list[JobArrival]:
    count = random.randint(*JOBS)
    moments: list[float] = []
    while len(moments) < count:
        begun = random.uniform(0.0, LASTS - 300.0)
        moments += [begun + random.uniform(0.0, 20.0) for _ in range(random.choice((1, 1, 3, 9)))]
    return [
        JobArrival(
            round(at, 2),
            number,
            random.choice(LABELS),
            round(min(30.0 * 2.0 ** random.uniform(0.0, 6.0), 1800.0), 1),
            round(random.uniform(1.0, 900.0), 1) if random.random() < 0.1 else None,
            round(random.uniform(1.0, 300.0), 1) if random.random() < 0.06 else None,
            # Bursts come from one.
            (WIDGETS, GADGETS)[number // 10 % 2],
        )
        for number, at in enumerate(sorted(moments[:count]), 1)
    ]
