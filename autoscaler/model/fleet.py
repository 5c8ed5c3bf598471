"""The Fleet: the planner's read-only view of all records at one moment, with the time in `now`.

The ledger builds it in O(accounts + providers) from the indexes that it keeps.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from autoscaler.model.catalogue import Catalogue, LaunchTokens, Offering
from autoscaler.model.cooldowns import Cooldown
from autoscaler.model.identifiers import (
    Instant,
    JobId,
    LaunchRequestId,
    MachineId,
    ProviderName,
    RunnerName,
    Seconds,
    SkuName,
)
from autoscaler.model.jobs.demand import DemandClass
from autoscaler.model.jobs.job import Admission, Job, Question
from autoscaler.model.jobs.runners import Runner
from autoscaler.model.machines.due import Due
from autoscaler.model.machines.evidence import StartEvidence
from autoscaler.model.machines.launch_requests import LaunchRequest
from autoscaler.model.machines.machine import Machine, MachineState
from autoscaler.model.operators import OperatorHolds
from autoscaler.model.reasons.table import Unmatched

Id_co = TypeVar("Id_co", covariant=True)
Value_co = TypeVar("Value_co", covariant=True)


class Ordered(Protocol[Id_co, Value_co]):
    """A read-only mapping in the order of its keys (a moment, then an id)."""

    def __len__(self) -> int: ...

    def keys(self) -> Sequence[tuple[Instant, Id_co]]:
        """Return the keys, oldest first. Slicing is many times as fast as with `values`."""

    def values(self) -> Sequence[Value_co]:
        """Return the values, oldest first. Indexing and slicing cost O(log n)."""

    def __iter__(self) -> Iterator[tuple[Instant, Id_co]]: ...


@dataclass(frozen=True, slots=True)
class Usage:
    """What counts against the limits now. Requested slots count at their most expensive offering."""

    machines: int
    dollars_per_hour: float
    by_sku: Mapping[SkuName, int]
    by_quota: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Fleet:
    """Demand, supply, what is on hold, and the time: the planner's only input."""

    now: Instant
    evidence: StartEvidence
    """What is known about machines from before the start of the controller."""
    catalogue: Catalogue
    offerings: Mapping[str, Offering]
    """By `Offering.key`."""

    jobs: Mapping[JobId, Job]
    queues: Mapping[DemandClass, Ordered[JobId, Job]]
    """Jobs that want a runner now, oldest first."""
    on_hold: Mapping[DemandClass, Mapping[JobId, Job]]
    """Jobs on hold because GitHub passed over several runners for them."""
    disputed: Mapping[DemandClass, int]
    """Number of jobs that the controller must read at GitHub before it launches for them."""
    reads: Mapping[JobId, Question]
    """Jobs to read at GitHub."""
    unmatched: Mapping[Unmatched, Ordered[JobId, Job]]
    """Queued jobs of configured scopes that no SKU serves, by the reason, oldest first."""
    machines: Mapping[MachineId, Machine]
    by_state: Mapping[tuple[SkuName, MachineState], Ordered[MachineId, Machine]]
    """Machines by the moment at which they entered the state."""
    due: Sequence[Due]
    """What is due now for machines, in order."""
    runners: Mapping[RunnerName, Runner]
    idle_runners: Mapping[DemandClass, int]
    """Number of registrations that GitHub may still give a job."""
    deregistrable: Mapping[DemandClass, Mapping[RunnerName, Runner]]
    """Registrations that their machines have not got."""
    launch_requests: Mapping[LaunchRequestId, LaunchRequest]
    """Launch requests that are not settled."""
    cooldowns: Mapping[str, Cooldown]
    usage: Usage
    registrations: Mapping[str, float]
    """Number of runners that each account may register now."""
    launch_tokens: Mapping[ProviderName, LaunchTokens]
    """What each provider with a rate accepts now."""
    boot_seconds: Mapping[SkuName, Seconds]
    """Average time from the request to `ready`."""
    deregistering: Mapping[SkuName, int]
    """Number of machines whose unused registration is being deleted. They become ready again."""
    quotas: Mapping[str, int] = field(default_factory=dict)
    """What the account may use of each quota, by `Offering.quota_key`."""
    booting: Mapping[tuple[SkuName, int], Mapping[MachineId, None]] = field(default_factory=dict)
    """Machines that are requested, launched or booted, by SKU and index of the launch option."""
    boots: Mapping[SkuName, Mapping[Instant, int]] = field(default_factory=dict)
    """Number of machines that are requested, launched or booted, by when each was requested."""
    ready_unseen: Mapping[SkuName, int] = field(default_factory=dict)
    """Number of ready machines whose agents have not polled since the start."""
    runners_without_job: Mapping[SkuName, int] = field(default_factory=dict)
    """Number of runners that have not got a job yet and may still get one."""
    queues_by_repository: Mapping[DemandClass, Mapping[str, Ordered[JobId, Job]]] = field(
        default_factory=dict
    )
    """`queues` by repository (lower case), only of classes whose first SKU has a fair share."""
    running: Mapping[tuple[SkuName, str], int] = field(default_factory=dict)
    """Number of running jobs by the class's first SKU and the repository (lower case)."""
    unadmitted: Mapping[tuple[DemandClass, Admission], int] = field(default_factory=dict)
    """Number of jobs that may not use their SKUs, or not yet, because of the head repository."""
    unread: Mapping[int, Mapping[JobId, Job]] = field(default_factory=dict)
    """Jobs whose head repository is not known, by run."""
    run_questions: Mapping[int, Question] = field(default_factory=dict)
    """Runs of `unread` that the controller has asked GitHub for."""
    operator_holds: OperatorHolds = field(default_factory=dict)
    """What operators paused, drained or quarantined."""
    waiting: Sequence[tuple[Instant, DemandClass, JobId]] = ()
    """The jobs of all `queues`, oldest first, ties by class."""

    @property
    def started_at(self) -> Instant:
        """Return when the controller started."""
        return self.evidence.started_at

    def machines_in(self, sku: SkuName, state: MachineState) -> Sequence[Machine]:
        """Return the machines of a SKU in a state, by the moment at which they entered the state."""
        ordered = self.by_state.get((sku, state))
        return ordered.values() if ordered else ()

    def count(self, sku: SkuName, state: MachineState) -> int:
        """Return the number of machines of a SKU in a state."""
        ordered = self.by_state.get((sku, state))
        return len(ordered) if ordered is not None else 0
