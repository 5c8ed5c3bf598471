"""The kinds of faults: which worlds have them, and the ranges from which `mix` draws their times and counts."""

from collections.abc import Mapping
from dataclasses import dataclass

from autoscaler.simulator.world.schedule import FaultKind

K = FaultKind

NEED_LISTS = (K.WEBHOOK_VANISHED, K.STALE_JOB, K.STORE_RESTORED, K.STORE_LOST)
"""Kinds that only lists repair. Each seed with lists has one of them, and no other seed has any."""

OWN_GENERATOR = (
    K.EMPTY_PAGES,
    K.OVERRIDE_REFUSED,
    K.END_IGNORED,
    K.WRONG_ANSWERS,
    K.OPERATOR_HOLDS,
    K.KUBELET_RESTARTED,
    K.NODE_RESTARTED,
    K.NODE_FAULTY,
)
"""Kinds with a random generator of their own. A new kind here changes no other fault or job of a seed,
and so keeps the stored schedules of the planted bugs valid."""

HEALED_BY_LISTS = (K.WRONG_ANSWERS,)
"""The kinds of `OWN_GENERATOR` that only lists repair. Only seeds with lists have them."""

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
    K.KUBELET_RESTARTED,
    K.NODE_RESTARTED,
    K.NODE_FAULTY,
)
"""The kinds that only worlds with clusters have."""

OF_REPLICAS = (
    K.LEADER_PAUSED,
    K.LEADER_STOPPED,
    K.FOLLOWER_KILLED,
    K.STORE_CUT_OFF,
    K.COMMIT_UNKNOWN,
    K.STORE_DOWN,
    K.STORE_FAILOVER,
    K.HOSTS_DISAGREE,
)
"""The kinds that only worlds with replicas have. `replica_mix` has their ranges."""


@dataclass(frozen=True, slots=True)
class Ranges:
    """The ranges of a kind: how often, for how long, every n-th request or machine, and its target."""

    times: tuple[int, int] = (1, 2)
    lasts: tuple[float, float] = (300.0, 1800.0)
    every: tuple[int, ...] = (1, 2, 3)
    target: tuple[int, int] = (0, 0)


RANGES: Mapping[FaultKind, Ranges] = {
    K.WEBHOOK_FAILED: Ranges(lasts=(600, 5000), every=(2, 3, 5)),
    K.WEBHOOK_VANISHED: Ranges(lasts=(600, 5000), every=(1, 3, 5)),
    K.WEBHOOK_REPEATED: Ranges(lasts=(600, 5000), every=(1, 2, 3)),
    K.WEBHOOK_LATE: Ranges(lasts=(600, 5000), every=(2, 3), target=(2, 240)),
    K.GITHUB_5XX: Ranges(every=(1, 2, 3)),
    K.GITHUB_SWALLOWED: Ranges(every=(1, 2, 3)),
    K.SECONDARY_LIMIT: Ranges(lasts=(60, 600), every=(1,)),
    K.REGISTRATION_REFUSED: Ranges(lasts=(60, 900), every=(1, 2)),
    K.STALE_LIST: Ranges(lasts=(600, 5000), every=(1, 2), target=(30, 60)),
    K.STALE_JOB: Ranges(lasts=(600, 5000), every=(1, 2), target=(30, 60)),
    K.LIST_SAYS_IDLE: Ranges(lasts=(600, 5000), every=(1,)),
    K.DELETE_SAYS_BUSY: Ranges(lasts=(300, 3000), every=(1, 2)),
    K.DELETE_OF_BUSY: Ranges(lasts=(600, 7000), every=(1,)),
    K.HANDED_OUT_LATE: Ranges(lasts=(600, 5000), every=(2, 3, 5), target=(130, 240)),
    K.STOLEN: Ranges(lasts=(1200, 7000), every=(1,)),
    K.IDLE_REMOVED: Ranges(lasts=(600, 5000), every=(1,)),
    K.THROTTLED: Ranges(every=(1, 2, 3)),
    K.LAUNCH_5XX: Ranges(every=(1, 2, 3)),
    K.LAUNCH_SWALLOWED: Ranges(every=(1, 2, 3)),
    K.LAUNCH_SLOW: Ranges(every=(1, 2), target=(5, 120)),
    K.NO_CAPACITY: Ranges(every=(1,), target=(1, 2)),
    K.OVERRIDE_REFUSED: Ranges(lasts=(300, 3000), every=(1, 2), target=(1, 2)),
    K.PARTIAL_FLEET: Ranges(lasts=(600, 5000), every=(1, 2)),
    K.NO_QUOTA: Ranges(lasts=(300, 1200), every=(1,)),
    K.EVENTUAL: Ranges(lasts=(600, 5000), every=(1, 2), target=(5, 45)),
    K.LIST_BREAKS: Ranges(every=(1, 2)),
    K.EMPTY_PAGES: Ranges(lasts=(300, 3000), every=(1, 2)),
    K.END_REFUSED: Ranges(every=(1, 2)),
    K.END_IGNORED: Ranges(lasts=(1800, 6000), every=(1,)),
    K.END_SWALLOWED: Ranges(every=(1, 2)),
    K.HUNG_BOOT: Ranges(every=(1, 2, 3)),
    K.SLOW_BOOT: Ranges(every=(1, 2, 3)),
    K.FAILED_HEALTH_CHECKS: Ranges(every=(1, 2, 3)),
    K.DIES_EARLY: Ranges(every=(1, 2, 3)),
    K.INTERRUPTED: Ranges(times=(1, 5), lasts=(120, 120), every=(1,), target=(0, 50)),
    K.RETIRED: Ranges(times=(1, 3), lasts=(600, 600), every=(1,), target=(0, 50)),
    K.REBALANCED: Ranges(times=(1, 5), lasts=(0, 0), every=(1,), target=(0, 50)),
    K.NOTICE_LOST: Ranges(lasts=(600, 5000)),
    K.NOTICE_LATE: Ranges(lasts=(600, 5000), target=(2, 240)),
    K.NOTICE_REPEATED: Ranges(lasts=(600, 5000)),
    K.NOTICE_POISONED: Ranges(lasts=(600, 5000)),
    K.QUEUE_FAILS: Ranges(),
    K.RERUN_REFUSED: Ranges(lasts=(600, 5000), every=(1, 2)),
    K.TAKEN: Ranges(times=(1, 5), lasts=(0, 0), every=(1,), target=(0, 50)),
    K.TAKEN_STARTING: Ranges(lasts=(600, 5000), every=(3, 5)),
    K.CUT_OFF: Ranges(times=(1, 3), lasts=(60, 2400), every=(1,), target=(0, 50)),
    K.CRASH: Ranges(times=(1, 5), lasts=(5, 900), every=(1,), target=(1, 60)),
    K.STORE_FAILS: Ranges(times=(1, 2), lasts=(5, 120), every=(1,)),
    K.STORE_SLOW: Ranges(lasts=(60, 900), every=(1,)),
    K.CLOCK_JUMP: Ranges(times=(1, 2), lasts=(60, 1800), every=(1,), target=(-600, 1200)),
    K.STORE_RESTORED: Ranges(times=(1, 1), lasts=(3600, 3600), every=(1,), target=(30, 3400)),
    K.WRONG_ANSWERS: Ranges(times=(1, 1), lasts=(2700, 4000), every=(1,)),
    K.STORE_LOST: Ranges(times=(1, 1), lasts=(3600, 3600), every=(1,)),
    K.OPERATOR_HOLDS: Ranges(times=(1, 4), lasts=(60, 2400), every=(1,), target=(0, 200)),
    K.API_DOWN: Ranges(times=(1, 3), lasts=(20, 900), every=(1,)),
    K.API_THROTTLED: Ranges(every=(1, 2, 3)),
    K.API_5XX: Ranges(every=(1, 2, 3)),
    K.API_SWALLOWED: Ranges(every=(1, 2, 3)),
    K.API_SLOW: Ranges(every=(1, 2, 3), target=(2, 40)),
    K.SHORT_PAGES: Ranges(lasts=(600, 5000), every=(1,)),
    K.LIST_EXPIRED: Ranges(every=(2, 3, 5)),
    K.WATCH_BREAKS: Ranges(lasts=(600, 5000), every=(1, 2, 5)),
    K.WATCH_SILENT: Ranges(lasts=(300, 3000), every=(1, 3)),
    K.WATCH_EXPIRED: Ranges(times=(2, 6), lasts=(0, 0), every=(1,)),
    K.REVIEW_FAILS: Ranges(every=(1, 2)),
    K.POD_QUOTA: Ranges(lasts=(300, 1200), every=(1, 2)),
    K.IMAGE_PULL: Ranges(every=(1, 2, 3)),
    K.POD_REFUSED: Ranges(every=(1, 2, 3)),
    K.POD_STUCK: Ranges(lasts=(300, 3000), every=(1, 2)),
    K.POD_EVICTED: Ranges(times=(1, 5), lasts=(0, 0), every=(1,), target=(0, 50)),
    K.POD_PREEMPTED: Ranges(times=(1, 5), lasts=(60, 900), every=(1,), target=(0, 50)),
    K.POD_OUT_OF_MEMORY: Ranges(times=(1, 3), lasts=(0, 0), every=(1,), target=(0, 50)),
    K.NODE_DRAINED: Ranges(times=(1, 3), lasts=(60, 1200), every=(1,), target=(0, 50)),
    K.NODE_LOST: Ranges(times=(1, 3), lasts=(60, 1500), every=(1,), target=(0, 50)),
    K.NODE_DIED: Ranges(times=(1, 3), lasts=(60, 1500), every=(1,), target=(0, 50)),
    K.KUBELET_RESTARTED: Ranges(times=(2, 6), lasts=(0, 0), every=(1,), target=(0, 50)),
    K.NODE_RESTARTED: Ranges(times=(1, 3), lasts=(20, 400), every=(1,), target=(0, 50)),
    K.NODES_TAKEN: Ranges(times=(1, 3), every=(1,), target=(0, 5)),
    K.NODE_FAULTY: Ranges(times=(1, 3), lasts=(300, 5000), every=(1,), target=(0, 99)),
    K.NO_NEW_NODES: Ranges(every=(1,)),
}
