"""The Plan: intents without IDs, in order, and the reason why each job waits."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from autoscaler.model.catalogue import CapacityType
from autoscaler.model.identifiers import (
    Instant,
    JobId,
    LaunchRequestId,
    MachineId,
    ProviderName,
    RunnerName,
    SkuName,
)
from autoscaler.model.jobs.demand import DemandClass
from autoscaler.model.machines.machine import TerminationReason
from autoscaler.model.reasons.waiting import Waiting


@dataclass(frozen=True, slots=True)
class Launch:
    """Send one launch request for `count` machines of `sku`.

    The provider may choose any of `offerings` (keys, in order of preference). `reason` is text for operators.
    """

    sku: SkuName
    provider: ProviderName
    option: int
    capacity_type: CapacityType
    offerings: tuple[str, ...]
    count: int
    reason: str


@dataclass(frozen=True, slots=True)
class ResendLaunchRequest:
    """Send a launch request with unknown outcome again, with the same bytes."""

    launch_request: LaunchRequestId


@dataclass(frozen=True, slots=True)
class CancelLaunchRequest:
    """Cancel a launch request that was not sent yet."""

    launch_request: LaunchRequestId
    reason: str


@dataclass(frozen=True, slots=True)
class Assign:
    """Register a runner of this class for a ready machine, and hand the registration over."""

    machine: MachineId
    demand: DemandClass


@dataclass(frozen=True, slots=True)
class DeregisterRunner:
    """Delete a registration that its machine never got, because no job needs it."""

    runner: RunnerName
    reason: str


@dataclass(frozen=True, slots=True)
class Terminate:
    """Terminate a machine for this reason. `reason` is text for operators."""

    machine: MachineId
    reason_code: TerminationReason
    reason: str


@dataclass(frozen=True, slots=True)
class ReadRunner:
    """Read the runner and the job of a silent machine at GitHub."""

    machine: MachineId


@dataclass(frozen=True, slots=True)
class MarkUnverified:
    """Treat a silent machine as assigned, because it may have been before the controller started."""

    machine: MachineId


@dataclass(frozen=True, slots=True)
class ReadJob:
    """Read a job at GitHub."""

    job: JobId


@dataclass(frozen=True, slots=True)
class ReadRun:
    """Read a workflow run at GitHub, for its head repository."""

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
class Plan:
    """What to do now, in order, and why jobs wait."""

    intents: tuple[Intent, ...] = ()
    waiting: Mapping[DemandClass, tuple[Waiting, ...]] = field(default_factory=dict)
    """By class: reasons of queued jobs (oldest first), of jobs on hold, of disputed jobs, and of jobs that
    are not admitted because of their run's head repository."""
    again_at: Instant | None = None
    """When to plan again, if only a rate limit delays a launch."""
