"""Facts, in the order in which the controller learned them. Every change of a record is one.

An event says what happened, never what to do about it. `at` is the controller's clock. One module
holds the facts of one record, or of one who speaks.
"""

from autoscaler.model.events.calls import (
    CallAnswered,
    CallOutcomeUnknown,
    CallPrepared,
    CallRecorded,
    CallSent,
    CallWithdrawn,
    LaunchedMachine,
    LaunchFailure,
)
from autoscaler.model.events.confirmations import InstallationTakenOver, OrphanConfirmed
from autoscaler.model.events.controller import CircuitClosed, ControllerStarted, TimePassed
from autoscaler.model.events.event import Event
from autoscaler.model.events.interruptions import MachineNoticed, RerunAnswered, RerunRequested
from autoscaler.model.events.jobs import (
    JobAbandoned,
    JobObserved,
    JobReadRequested,
    RunRead,
    RunReadRequested,
)
from autoscaler.model.events.machines import (
    ConsoleRead,
    EndAnswered,
    EndRequested,
    ExaminationRequested,
    MachineDoubted,
    MachineExamined,
    MachineExited,
    MachineGateReported,
    MachineReportedStage,
    MachineSaidHello,
    MachineSeen,
)
from autoscaler.model.events.providers import ListedMachine, MachinesListed, QuotasRead
from autoscaler.model.events.runners import (
    RunnerAcknowledged,
    RunnerClosed,
    RunnerHandedOver,
    RunnerMinted,
    RunnerMintFailed,
    RunnerNamed,
    RunnersListed,
    RunnerWithdrawalRequested,
    RunnerWithdrawn,
)

__all__ = [
    "CallAnswered",
    "CallOutcomeUnknown",
    "CallPrepared",
    "CallRecorded",
    "CallSent",
    "CallWithdrawn",
    "CircuitClosed",
    "ConsoleRead",
    "ControllerStarted",
    "EndAnswered",
    "EndRequested",
    "Event",
    "ExaminationRequested",
    "InstallationTakenOver",
    "JobAbandoned",
    "JobObserved",
    "JobReadRequested",
    "LaunchFailure",
    "LaunchedMachine",
    "ListedMachine",
    "MachineDoubted",
    "MachineExamined",
    "MachineExited",
    "MachineGateReported",
    "MachineNoticed",
    "MachineReportedStage",
    "MachineSaidHello",
    "MachineSeen",
    "MachinesListed",
    "OrphanConfirmed",
    "QuotasRead",
    "RerunAnswered",
    "RerunRequested",
    "RunRead",
    "RunReadRequested",
    "RunnerAcknowledged",
    "RunnerClosed",
    "RunnerHandedOver",
    "RunnerMintFailed",
    "RunnerMinted",
    "RunnerNamed",
    "RunnerWithdrawalRequested",
    "RunnerWithdrawn",
    "RunnersListed",
    "TimePassed",
]
