"""The fleet as the planner sees it at one moment: read-only, indexed, `now` included.

The ledger builds it in O(1) from indexes that it keeps up to date; nothing here decides.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from autoscaler.model.catalogue import Catalogue, LaunchTokens, Offering
from autoscaler.model.cooldowns import Cooldown
from autoscaler.model.demand import DemandClass
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
from autoscaler.model.jobs import Admission, Job, RunQuestion
from autoscaler.model.launch_requests import LaunchRequest
from autoscaler.model.machines import Machine, MachineState
from autoscaler.model.runners import Runner

READY_TRUSTED_FOR: Seconds = 120.0
"""For how long after a start a machine last known as ready counts for launching."""

T_co = TypeVar("T_co", covariant=True)


class Ordered(Protocol[T_co]):
    """A read-only mapping in the order of its keys (a moment, then an id)."""

    def __len__(self) -> int: ...

    def values(self) -> Sequence[T_co]:
        """The values, oldest first; indexing and slicing cost O(log n)."""

    def __iter__(self) -> Iterator[tuple[Instant, object]]: ...


@dataclass(frozen=True, slots=True)
class Usage:
    """What counts against the caps now, requested slots at their dearest offering."""

    machines: int
    dollars_per_hour: float
    by_sku: Mapping[SkuName, int]
    by_quota: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Fleet:
    """What is wanted, what exists, what is held back, and what time it is.

    `queues` holds the jobs that want a runner now, by class and oldest first; `held` the jobs
    that were passed over too often, `disputed` counts those that
    GitHub is asked about first, `unadmitted` those that their run's head repository keeps from
    their SKUs, or may. `unread` are the jobs whose head repository is not known, by run, and
    `run_questions` the runs of them that GitHub was asked about. `idle_runners` counts
    registrations that may still take a job, by class; `deregistrable` are those not handed over,
    and `deregistering` counts machines whose unused registration is being deleted, which makes them
    ready again. `due` lists machines by the moment they must be looked at again. `registrations`
    is, by account, how many may be minted now; `launch_tokens` what each provider with a rate takes now;
    `boot_seconds` how long a SKU takes from request to ready. `booting` are the machines that are
    requested or boot, by SKU and option; `runners_without_job` counts by SKU the runners that were given no
    job yet and may be; `runners_listed_at` is when the older of all scopes' lists of registrations
    was begun, 0.0 before there is one of each. Of SKUs with a share for each repository, `lines`
    are the queues by repository (lower case), and `running` counts the jobs that run, by the
    class's first SKU. `waiting` are the jobs of all queues, the oldest first, ties by class.
    """

    now: Instant
    started_at: Instant
    catalogue: Catalogue
    offerings: Mapping[str, Offering]
    jobs: Mapping[JobId, Job]
    queues: Mapping[DemandClass, Ordered[Job]]
    held: Mapping[DemandClass, Mapping[JobId, Job]]
    disputed: Mapping[DemandClass, int]
    reads: Mapping[JobId, Instant]
    machines: Mapping[MachineId, Machine]
    by_state: Mapping[tuple[SkuName, MachineState], Ordered[Machine]]
    due: Ordered[Machine]
    runners: Mapping[RunnerName, Runner]
    idle_runners: Mapping[DemandClass, int]
    deregistrable: Mapping[DemandClass, Mapping[RunnerName, Runner]]
    launch_requests: Mapping[LaunchRequestId, LaunchRequest]
    cooldowns: Mapping[str, Cooldown]
    usage: Usage
    registrations: Mapping[str, float]
    launch_tokens: Mapping[ProviderName, LaunchTokens]
    boot_seconds: Mapping[SkuName, Seconds]
    deregistering: Mapping[SkuName, int]
    quotas: Mapping[str, int] = field(default_factory=dict)
    booting: Mapping[tuple[SkuName, int], Mapping[MachineId, None]] = field(default_factory=dict)
    runners_without_job: Mapping[SkuName, int] = field(default_factory=dict)
    queues_by_repository: Mapping[DemandClass, Mapping[str, Ordered[Job]]] = field(
        default_factory=dict
    )
    running: Mapping[tuple[SkuName, str], int] = field(default_factory=dict)
    runners_listed_at: Instant = 0.0
    unadmitted: Mapping[tuple[DemandClass, Admission], int] = field(default_factory=dict)
    unread: Mapping[int, Mapping[JobId, Job]] = field(default_factory=dict)
    run_questions: Mapping[int, RunQuestion] = field(default_factory=dict)
    waiting: Sequence[tuple[Instant, DemandClass, JobId]] = ()

    def machines_in(self, sku: SkuName, state: MachineState) -> Sequence[Machine]:
        """Machines of one SKU in one state, by the moment they came into it."""
        ordered = self.by_state.get((sku, state))
        return ordered.values() if ordered is not None else ()

    def is_assignment_unknown(self, machine: Machine) -> bool:
        """Return `Machine.is_assignment_unknown` at this moment."""
        return machine.is_assignment_unknown(self.started_at, self.runners_listed_at)

    def count(self, sku: SkuName, state: MachineState) -> int:
        """How many machines of one SKU are in one state."""
        ordered = self.by_state.get((sku, state))
        return len(ordered) if ordered is not None else 0
