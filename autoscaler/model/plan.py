"""What the planner wants done: intents without ids, ordered, and why each job still waits."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from autoscaler.model.catalogue import CapacityType
from autoscaler.model.demand import DemandClass
from autoscaler.model.identifiers import (
    Instant,
    JobId,
    LaunchRequestId,
    MachineId,
    ProviderName,
    RunnerName,
    SkuName,
)
from autoscaler.model.machines import TerminationReason


@dataclass(frozen=True, slots=True)
class Launch:
    """Ask a provider once for `count` machines of `sku` from any of `offerings` (keys, in order)."""

    sku: SkuName
    provider: ProviderName
    option: int
    capacity_type: CapacityType
    offerings: tuple[str, ...]
    count: int


@dataclass(frozen=True, slots=True)
class ResendLaunchRequest:
    """Send a call again, byte-identical: its outcome is unknown."""

    launch_request: LaunchRequestId


@dataclass(frozen=True, slots=True)
class CancelLaunchRequest:
    """Drop a call that was not sent yet."""

    launch_request: LaunchRequestId
    reason: str


@dataclass(frozen=True, slots=True)
class Assign:
    """create a registration of this class for a ready machine and hand it over."""

    machine: MachineId
    demand: DemandClass


@dataclass(frozen=True, slots=True)
class DeregisterRunner:
    """Take a registration back that was not handed over: its job is gone."""

    runner: RunnerName
    reason: str


@dataclass(frozen=True, slots=True)
class Terminate:
    """End a machine, on this ground."""

    machine: MachineId
    reason_code: TerminationReason
    reason: str


@dataclass(frozen=True, slots=True)
class ReadRunner:
    """Ask GitHub what became of a silent machine's runner and job."""

    machine: MachineId


@dataclass(frozen=True, slots=True)
class MarkUnverified:
    """Hold a silent machine to be at work: nothing says that it was not assigned before the start."""

    machine: MachineId


@dataclass(frozen=True, slots=True)
class ReadJob:
    """Ask GitHub about one job."""

    job: JobId


@dataclass(frozen=True, slots=True)
class ReadRun:
    """Ask GitHub which repository a run's commit comes from."""

    repository: str
    run_id: int


Intent = (
    Launch
    | ResendLaunchRequest
    | CancelLaunchRequest
    | Assign
    | DeregisterRunner
    | Terminate
    | ReadRunner
    | MarkUnverified
    | ReadJob
    | ReadRun
)


@dataclass(frozen=True, slots=True)
class Waiting:
    """`count` jobs of a class, the next oldest ones, wait for this reason.

    `blocked`: nothing is on its way for them. `code` names the reason for programs, where it has one.
    """

    count: int
    reason: str
    blocked: bool = False
    code: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """The intents in the order to carry them out; for each class, why its jobs wait.

    Reasons are of the queued jobs, oldest first, then of those that are held back, then of those that
    GitHub is asked about, then of those that their run's head repository keeps from their SKUs.
    `again_at` is the moment before which a launch is put off that nothing but a rate holds back.
    """

    intents: tuple[Intent, ...] = ()
    waiting: Mapping[DemandClass, tuple[Waiting, ...]] = field(default_factory=dict)
    again_at: Instant | None = None
