"""Makes a schedule for two or three replicas that share a store, from a seed: 25 minutes of jobs and faults."""

from collections.abc import Mapping
from random import Random

from autoscaler.model.identifiers import Seconds
from autoscaler.simulator.world.schedule import Fault, FaultKind, JobArrival, Schedule
from tests.chaos.fault_kinds import K, Ranges
from tests.chaos.fleet import LABELS

LASTS: Seconds = 1500.0
"""The time at which the last fault ends."""

AFTERWARDS: Seconds = LASTS + 60.0
"""The time of the last jobs, for which a replica must lead."""

LONGEST: Seconds = 600.0
JOBS = (12, 16)
KINDS = (3, 5)
OTHER_KINDS = (2, 4)
FIRST: Seconds = 60.0
"""The earliest fault: the first replica leads by then."""

OF_LEADERSHIP: Mapping[FaultKind, Ranges] = {
    K.LEADER_PAUSED: Ranges(times=(2, 6), lasts=(60, 60), every=(1,), target=(1, 60)),
    K.LEADER_STOPPED: Ranges(times=(1, 3), lasts=(5, 120), every=(1,)),
    K.CRASH: Ranges(times=(1, 4), lasts=(5, 300), every=(1,), target=(1, 60)),
    K.FOLLOWER_KILLED: Ranges(times=(1, 3), lasts=(5, 120), every=(1,), target=(0, 2)),
    K.STORE_CUT_OFF: Ranges(times=(1, 4), lasts=(8, 120), every=(1,), target=(0, 3)),
    K.COMMIT_UNKNOWN: Ranges(times=(1, 2), lasts=(60, 600), every=(10, 30, 100)),
    K.STORE_DOWN: Ranges(times=(1, 1), lasts=(5, 600), every=(1,)),
    K.STORE_FAILOVER: Ranges(times=(1, 2), lasts=(2, 30), every=(1,), target=(1, 5)),
    K.HOSTS_DISAGREE: Ranges(times=(1, 1), lasts=(0, 0), every=(1,), target=(30, 30)),
}

BESIDE: Mapping[FaultKind, Ranges] = {
    K.WEBHOOK_FAILED: Ranges(every=(2, 3)),
    K.WEBHOOK_REPEATED: Ranges(every=(1, 2)),
    K.WEBHOOK_LATE: Ranges(every=(2, 3), target=(2, 120)),
    K.GITHUB_SWALLOWED: Ranges(every=(1, 2, 3)),
    K.LAUNCH_SWALLOWED: Ranges(every=(1, 2)),
    K.LAUNCH_SLOW: Ranges(every=(1, 2), target=(5, 60)),
    K.NO_CAPACITY: Ranges(lasts=(60, 600), every=(1,), target=(1, 2)),
    K.EVENTUAL: Ranges(every=(1, 2), target=(5, 45)),
    K.END_SWALLOWED: Ranges(every=(1, 2)),
    K.INTERRUPTED: Ranges(times=(1, 3), lasts=(120, 120), every=(1,), target=(0, 50)),
    K.TAKEN: Ranges(times=(1, 3), lasts=(0, 0), every=(1,), target=(0, 50)),
    K.STORE_SLOW: Ranges(lasts=(60, 300), every=(1,)),
}


def schedule_of_replicas(seed: int) -> Schedule:
    """Return the schedule of a seed, always the same. Only a server that fails over needs GitHub's lists."""
    random = Random(f"{seed} replicas")
    ranges = {**OF_LEADERSHIP, **BESIDE}
    kinds = random.sample(list(OF_LEADERSHIP), random.randint(*KINDS))
    kinds += random.sample(list(BESIDE), random.randint(*OTHER_KINDS))
    faults = [fault for kind in kinds for fault in _faults(random, kind, ranges[kind])]
    faults += [more for one in faults for more in _at_failover(random, one)]
    faults.sort(key=lambda fault: (fault.at, fault.kind))
    lists = K.STORE_FAILOVER in kinds
    return Schedule(seed, _jobs(random), tuple(faults), lists, replicas=2 + seed % 2)


def _at_failover(random: Random, fault: Fault) -> list[Fault]:
    """Return faults while a server fails over, in every second of these worlds.

    The leader is cut off, or stands still nearly as long as its lease lasts. The next one to look at the lease
    has never seen the earlier server.
    """
    if fault.kind is not K.STORE_FAILOVER or random.random() < 0.5:
        return []
    began = round(fault.at - random.uniform(0.0, 1.0), 2)
    killed = round(fault.at + random.uniform(0.0, fault.lasts), 2)
    cut_off, paused = (
        Fault(began, K.STORE_CUT_OFF, 40.0),
        Fault(began, K.LEADER_PAUSED, 14.0, target=1),
    )
    return [
        random.choice((cut_off, paused)),
        *(Fault(killed, K.FOLLOWER_KILLED, 5.0, target=n) for n in range(2)),
    ]


def _faults(random: Random, kind: FaultKind, ranges: Ranges) -> list[Fault]:
    found = []
    for _ in range(random.randint(*ranges.times)):
        lasts = round(min(random.uniform(*ranges.lasts), LONGEST), 1)
        at = round(random.uniform(FIRST, LASTS - lasts), 1)
        target = random.randint(*ranges.target)
        found.append(Fault(at, kind, lasts, random.choice(ranges.every), target))
    return found


def _jobs(random: Random) -> tuple[JobArrival, ...]:
    moments = [random.uniform(0.0, LASTS) for _ in range(random.randint(*JOBS))]
    moments += [AFTERWARDS + number for number in range(4)]
    return tuple(
        JobArrival(
            round(at, 2),
            number,
            random.choice(LABELS),
            round(30.0 * 2.0 ** random.uniform(0.0, 3.5), 1),
        )
        for number, at in enumerate(sorted(moments), 1)
    )
