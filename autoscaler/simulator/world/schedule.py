"""The schedule of a world: its jobs and faults.

A schedule is a value: it can be stored in a file, shrunk and played again. Times are seconds since the
world began.
"""

import json
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any

from autoscaler.model.identifiers import Seconds
from autoscaler.model.jobs.job import RunOrigin

REPOSITORY = "acme/widgets"


class FaultKind(StrEnum):
    """What can go wrong. A fault is active for `lasts` seconds and hits every n-th request or machine.

    The comment of a kind explains its `target`.
    """

    # Webhooks: every n-th delivery.
    WEBHOOK_FAILED = "webhook_failed"  # not delivered, and logged as failed
    WEBHOOK_VANISHED = "webhook_vanished"  # not delivered, and not in GitHub's log
    WEBHOOK_REPEATED = "webhook_repeated"  # delivered again after half a minute
    WEBHOOK_LATE = "webhook_late"  # delivered after `target` seconds, behind what follows

    # GitHub's API: every n-th request.
    GITHUB_5XX = "github_5xx"  # not carried out
    GITHUB_SWALLOWED = "github_swallowed"  # carried out, and the answer is lost
    SECONDARY_LIMIT = "secondary_limit"  # refused for a minute
    REGISTRATION_REFUSED = "registration_refused"  # 403: the App lost its permission
    STALE_LIST = "stale_list"  # runners as they were `target` seconds ago
    STALE_JOB = "stale_job"  # jobs as they were `target` seconds ago
    WRONG_ANSWERS = "wrong_answers"  # lists hide runs and runners, and jobs read as queued
    LIST_SAYS_IDLE = "list_says_idle"  # of runners at work
    DELETE_SAYS_BUSY = "delete_says_busy"  # 422 for an idle runner
    DELETE_OF_BUSY = "delete_of_busy"  # 204 for a runner at work, or one that was just given a job
    HANDED_OUT_LATE = "handed_out_late"  # jobs wait `target` s, or until a runner is about to leave
    STOLEN = "stolen"  # runners go to the youngest fitting job with the fewest labels
    IDLE_REMOVED = "idle_removed"  # idle JIT registrations are removed after a minute
    RERUN_REFUSED = "rerun_refused"  # 403: the run may not be re-run now

    # EC2: every n-th request.
    THROTTLED = "throttled"
    LAUNCH_5XX = "launch_5xx"  # not carried out, and the outcome is unknown
    LAUNCH_SWALLOWED = "launch_swallowed"  # carried out, and the answer is lost
    LAUNCH_SLOW = "launch_slow"  # answered after `target` seconds
    NO_CAPACITY = "no_capacity"  # in the first `target` zones
    OVERRIDE_REFUSED = "override_refused"  # as misconfigured, in the first `target` zones
    PARTIAL_FLEET = "partial_fleet"  # half of what was asked for
    NO_QUOTA = "no_quota"
    EVENTUAL = "eventual"  # lists are `target` seconds old
    LIST_BREAKS = "list_breaks"  # after its first page
    EMPTY_PAGES = "empty_pages"  # a list comes in small pages, with empty ones between them
    END_REFUSED = "end_refused"
    END_IGNORED = "end_ignored"  # answered without effect: every n-th machine, until the fault ends
    END_SWALLOWED = "end_swallowed"  # carried out, and the answer is lost

    # Machines: every n-th launch, or one running machine (number `target`, modulo their count).
    HUNG_BOOT = "hung_boot"
    SLOW_BOOT = "slow_boot"  # takes ten minutes longer
    FAILED_HEALTH_CHECKS = "failed_health_checks"
    DIES_EARLY = "dies_early"  # pending -> terminated, with a reason
    TAKEN = "taken"  # without notice, during its job if it has one
    INTERRUPTED = "interrupted"  # two minutes' notice, then taken
    RETIRED = "retired"  # a scheduled change of its host: ten minutes' notice, then taken
    REBALANCED = "rebalanced"  # a recommendation without an interruption
    TAKEN_STARTING = "taken_starting"  # taken while its listener starts: it was registered
    CUT_OFF = "cut_off"  # its requests do not reach the controller

    # The queue of interruptions: every n-th notice, or request.
    NOTICE_LOST = "notice_lost"
    NOTICE_LATE = "notice_late"  # by `target` seconds, perhaps after the event
    NOTICE_REPEATED = "notice_repeated"
    NOTICE_POISONED = "notice_poisoned"  # the message cannot be parsed
    QUEUE_FAILS = "queue_fails"

    # The controller.
    CRASH = "crash"  # `target` calls of the ports later; started again after `lasts`
    STORE_FAILS = "store_fails"
    STORE_SLOW = "store_slow"
    CLOCK_JUMP = "clock_jump"  # by `target` seconds, and back at the end
    STORE_RESTORED = "store_restored"  # from a backup `target` s old; an operator looks at its end
    STORE_LOST = "store_lost"  # an operator looks at its end

    # Replicas that share a store.
    LEADER_PAUSED = "leader_paused"  # `target` calls of the ports later, until the fault ends
    LEADER_STOPPED = "leader_stopped"  # with SIGTERM; started again when the fault ends
    FOLLOWER_KILLED = "follower_killed"  # number `target`; started again when the fault ends
    STORE_CUT_OFF = "store_cut_off"  # from the leader (`target` 0), or from replica `target`
    COMMIT_UNKNOWN = "commit_unknown"  # every n-th transaction: stored, and its answer lost
    STORE_DOWN = "store_down"  # no connection, and all break
    STORE_FAILOVER = (
        "store_failover"  # the next server lacks the last `target` s; down until it ends
    )
    HOSTS_DISAGREE = "hosts_disagree"  # every second host's clock is `target` s ahead, always

    # Operators.
    OPERATOR_HOLDS = (
        "operator_holds"  # one pauses, drains or quarantines what `target` chooses, until it ends
    )

    # Kubernetes' API servers: every n-th request, or event of a watch.
    API_DOWN = "api_down"  # no connection, and every watch breaks
    API_THROTTLED = "api_throttled"  # 429 with Retry-After
    API_5XX = "api_5xx"  # not carried out
    API_SWALLOWED = "api_swallowed"  # carried out, and the answer is lost
    API_SLOW = "api_slow"  # carried out, and answered after `target` seconds; the client waits 30
    SHORT_PAGES = "short_pages"  # lists come in pages of two pods, one, or none
    LIST_EXPIRED = "list_expired"  # 410 for the next page of a list
    WATCH_BREAKS = "watch_breaks"
    WATCH_SILENT = "watch_silent"  # stays open and silent until the client closes it
    WATCH_EXPIRED = "watch_expired"  # all changes so far are forgotten: 410
    REVIEW_FAILS = "review_fails"  # tokens cannot be checked
    POD_QUOTA = "pod_quota"  # 403: exceeded quota

    # Pods and nodes: every n-th pod, or one running pod (number `target`, modulo their count) and its node.
    IMAGE_PULL = "image_pull"  # the image cannot be pulled
    POD_REFUSED = "pod_refused"  # by kubelet: no healthy device, or a full disk
    POD_STUCK = "pod_stuck"  # SIGTERM has no effect until it is over
    POD_EVICTED = "pod_evicted"  # by kubelet, for lack of disk: it fails, and stays listed
    POD_PREEMPTED = "pod_preempted"  # by a pod of others
    POD_OUT_OF_MEMORY = "pod_out_of_memory"
    NODE_DRAINED = "node_drained"  # all its pods are evicted, and no pod is placed there
    NODE_LOST = "node_lost"  # its kubelet does not reach the API server, and its pods go on
    NODE_DIED = "node_died"  # with its pods. Its Node object is deleted when the fault ends
    KUBELET_RESTARTED = "kubelet_restarted"  # it admits all pods of its node again
    NODE_RESTARTED = "node_restarted"  # its containers end. It is back when the fault ends
    NODE_FAULTY = (
        "node_faulty"  # one node fails its next pods: `target` chooses it and one of four ways
    )
    NODES_TAKEN = "nodes_taken"  # pods of others fill a pool of nodes
    NO_NEW_NODES = "no_new_nodes"  # the provisioner cannot add nodes


class Fleet(StrEnum):
    """The providers of a world."""

    EC2 = "ec2"
    KUBERNETES = "kubernetes"
    BOTH = "both"


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault, from `at` on."""

    at: Seconds
    kind: FaultKind
    lasts: Seconds = 0.0
    every: int = 1
    target: int = 0

    @property
    def until(self) -> Seconds:
        """Return when the fault ends."""
        return self.at + self.lasts


@dataclass(frozen=True, slots=True)
class JobArrival:
    """A job that is queued at `at` and works for `works` seconds.

    It is cancelled `cancelled` seconds later, and its environment's protection is approved `approved`
    seconds later; None: never, or not needed. `fork`: its run comes from a fork.
    """

    at: Seconds
    job: int
    labels: tuple[str, ...]
    works: Seconds
    cancelled: Seconds | None = None
    approved: Seconds | None = None
    repository: str = REPOSITORY
    fork: bool = False

    @property
    def origin(self) -> RunOrigin:
        """Where its run comes from."""
        return RunOrigin(self.fork, False, None if self.fork else "main")


@dataclass(frozen=True, slots=True)
class Schedule:
    """All jobs and faults of a world. `lists`: the account has calls to spare for GitHub's lists.

    With several `replicas` of the controller, they share a store.
    """

    seed: int
    jobs: tuple[JobArrival, ...]
    faults: tuple[Fault, ...]
    lists: bool = False
    fleet: Fleet = Fleet.EC2
    replicas: int = 1

    @property
    def faults_end(self) -> Seconds:
        """Return when the last fault ends."""
        return max((fault.until for fault in self.faults), default=0.0)

    @property
    def calm_from(self) -> Seconds:
        """Return when the last fault has ended and the last job is queued."""
        return max([self.faults_end, *(job.at + (job.approved or 0.0) for job in self.jobs)])

    def __len__(self) -> int:
        """Return the number of jobs and faults."""
        return len(self.jobs) + len(self.faults)

    def without(self, happenings: frozenset[Fault | JobArrival]) -> "Schedule":
        """Return the schedule without these jobs and faults."""
        return replace(
            self,
            jobs=tuple(job for job in self.jobs if job not in happenings),
            faults=tuple(fault for fault in self.faults if fault not in happenings),
        )

    def to_json(self) -> str:
        """Return the schedule as JSON."""
        return json.dumps(asdict(self), indent=1)

    def timeline(self) -> str:
        """Return a readable list of the jobs and faults, in order of time."""
        lines = sorted(
            [(fault.at, _fault_line(fault)) for fault in self.faults]
            + [(job.at, _job_line(job)) for job in self.jobs]
        )
        return "\n".join(f"{at:9.1f}  {text}" for at, text in lines)


def from_json(text: str) -> Schedule:
    """Parse the output of `to_json`. Raises ValueError for anything else."""
    try:
        said: dict[str, Any] = json.loads(text)
        return Schedule(
            int(said["seed"]),
            tuple(JobArrival(**{**job, "labels": tuple(job["labels"])}) for job in said["jobs"]),
            tuple(Fault(**{**fault, "kind": FaultKind(fault["kind"])}) for fault in said["faults"]),
            bool(said.get("lists", False)),
            Fleet(said.get("fleet", Fleet.EC2)),
            int(said.get("replicas", 1)),
        )
    except (KeyError, TypeError, AttributeError) as wrong:
        raise ValueError(f"not a schedule: {wrong!r}") from wrong


def _fault_line(fault: Fault) -> str:
    lasts = f" for {fault.lasts:.0f} s" if fault.lasts else ""
    every = f", every {fault.every}." if fault.every > 1 else ""
    target = f", target {fault.target}" if fault.target else ""
    return f"{fault.kind}{lasts}{every}{target}"


def _job_line(job: JobArrival) -> str:
    cancelled = f", cancelled after {job.cancelled:.0f} s" if job.cancelled is not None else ""
    approved = f", approved after {job.approved:.0f} s" if job.approved is not None else ""
    whose = f" for {job.repository}" if job.repository != REPOSITORY else ""
    what = f"job {job.job} [{', '.join(job.labels)}] of {job.works:.0f} s"
    return f"{what}{whose}{cancelled}{approved}"
