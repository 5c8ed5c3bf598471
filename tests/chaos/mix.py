"""Makes a schedule of jobs and faults from a seed. Only this module draws random numbers."""

from dataclasses import replace
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
from tests.chaos.fault_kinds import (
    HEALED_BY_LISTS,
    NEED_LISTS,
    OF_CLUSTERS,
    OF_EC2,
    OF_REPLICAS,
    OWN_GENERATOR,
    RANGES,
    K,
)
from tests.chaos.fleet import LABELS

JOBS = (50, 60)
LASTS: Seconds = 7200.0
"""The time at which the last fault ends."""

AFTERWARDS: Seconds = LASTS + 4000.0
"""The time of the last jobs: nothing is on hold any more, and the operator has looked."""

FIRST_BACKUP: Seconds = 180.0
"""Earliest time of a backup: machines boot and run jobs by then."""

WIDGETS, GADGETS = REPOSITORY, "acme/gadgets"

KINDS = (6, 11)
LISTS_EVERY = 5
"""The controller reads GitHub's lists in every n-th seed only, because that doubles the CPU time."""

APART_SHARE = 0.2
"""The share of the seeds that have a kind of `OWN_GENERATOR`. It is about the same for other kinds."""

KINDS_OF_CLUSTERS = (5, 8)
"""How many kinds of `OF_CLUSTERS` a world with clusters has, beside the other kinds."""

_REWOUND = (K.STORE_RESTORED, K.STORE_LOST)


def schedule_of(seed: int, clusters: bool = False) -> Schedule:
    """Return the schedule of a seed, always the same: over EC2, or over clusters alone and both in turn."""
    random = Random(seed)
    lists = seed % LISTS_EVERY == 0
    fleet = (Fleet.KUBERNETES, Fleet.BOTH)[seed % 2] if clusters else Fleet.EC2
    absent: tuple[FaultKind, ...] = OF_EC2 if fleet is Fleet.KUBERNETES else ()
    absent = (*absent, *OF_REPLICAS)
    drawn = [k for k in FaultKind if k not in (*NEED_LISTS, *OWN_GENERATOR, *OF_CLUSTERS, *absent)]
    kinds = random.sample(drawn, random.randint(*KINDS))
    if lists:
        kinds.append(NEED_LISTS[seed // LISTS_EVERY % len(NEED_LISTS)])
    faults = [fault for kind in kinds for fault in _faults(random, kind)]
    absent = (*absent, *(() if lists else HEALED_BY_LISTS), *(() if clusters else OF_CLUSTERS))
    apart = [k for k in OWN_GENERATOR if k not in absent]
    faults += [fault for kind in apart for fault in _with_own_generator(seed, kind)]
    if clusters:
        faults += _of_clusters(Random(f"{seed} clusters"))
    jobs = _jobs(random)
    faults = [_with_a_backup(fault) for fault in faults]
    for fault in [fault for fault in faults if fault.kind is K.STORE_RESTORED]:
        jobs += _at_work_since(fault, len(jobs))
        faults += _outage_after_restore(random, fault)
        faults += [_slow_in(fleet, slow) for slow in _slow_launches(random, fault)]
        faults += _second_restart(random, fault)
    faults += [_hung_at_restore(fault) for fault in faults if fault.kind in _REWOUND]
    faults += [_delayed_until_release(fault) for fault in faults if fault.kind is K.DELETE_OF_BUSY]
    jobs += _late_jobs(Random(f"{seed} afterwards"), len(jobs))
    for fault in [fault for fault in faults if fault.kind is K.WRONG_ANSWERS]:
        jobs += _at_work_unseen(fault, len(jobs))
        faults += _unreported(fault)
    jobs += _of_new_repositories(Random(f"{seed} new"), len(jobs))
    faults.sort(key=lambda fault: (fault.at, fault.kind))
    return Schedule(seed, tuple(jobs), tuple(faults), lists, fleet)


def _of_clusters(random: Random) -> list[Fault]:
    """Return the faults of API servers, pods and nodes."""
    drawn = [k for k in OF_CLUSTERS if k not in OWN_GENERATOR]
    kinds = random.sample(drawn, random.randint(*KINDS_OF_CLUSTERS))
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


def _late_jobs(random: Random, jobs: int) -> list[JobArrival]:
    """Return a burst of jobs of one repository, and then jobs of another one for each SKU."""
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


def _hung_at_restore(fault: Fault) -> Fault:
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


def _outage_after_restore(random: Random, fault: Fault) -> list[Fault]:
    """Return an outage of GitHub after the restore, in every second of these worlds."""
    return [Fault(fault.at, K.GITHUB_5XX, 1800.0)] if random.random() < 0.5 else []


def _slow_launches(random: Random, fault: Fault) -> list[Fault]:
    """Return slow launches during the backup, so that it has unanswered requests; in every second world."""
    began = fault.at - fault.target - 60.0
    slow = Fault(round(began, 1), K.LAUNCH_SLOW, 60.0, target=90)
    return [slow] if random.random() < 0.5 else []


def _slow_in(fleet: Fleet, slow: Fault) -> Fault:
    """Return a fault of slow launches as the providers of a world have it."""
    if fleet is not Fleet.KUBERNETES:
        return slow
    return replace(slow, kind=K.API_SLOW, target=25)


def _second_restart(random: Random, fault: Fault) -> list[Fault]:
    """Return a second restart within minutes, in every second of these worlds."""
    began = round(fault.at + random.uniform(40.0, 400.0), 1)
    return [Fault(began, K.CRASH, 5.0, target=1)] if random.random() < 0.5 else []


def _delayed_until_release(fault: Fault) -> Fault:
    """Return a fault that delays jobs until a runner is about to leave, which then gets the job."""
    return Fault(fault.at, K.HANDED_OUT_LATE, fault.lasts, every=2, target=200)


def _faults(random: Random, kind: FaultKind) -> list[Fault]:
    ranges = RANGES[kind]
    found = []
    for _ in range(random.randint(*ranges.times)):
        lasts = round(random.uniform(*ranges.lasts), 1)
        at = round(random.uniform(0.0, LASTS - lasts), 1)
        target = random.randint(*ranges.target)
        found.append(Fault(at, kind, lasts, random.choice(ranges.every), target))
    return found


def _with_own_generator(seed: int, kind: FaultKind) -> list[Fault]:
    """Return the faults of a kind in `OWN_GENERATOR`: none in most seeds."""
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
