"""Events: facts in the order in which the controller learned them. Only events change records.

Each module has the events of one record or one source. `Event.at` is the controller's clock.
"""

from autoscaler.model.events.controller import (
    CircuitClosed,
    ControllerStarted,
    ImageReplaced,
    TimePassed,
)
from autoscaler.model.events.event import Event
from autoscaler.model.events.interruptions import MachineNoticed, RerunAnswered, RerunRequested
from autoscaler.model.events.jobs import (
    JobAbandoned,
    JobObserved,
    JobReadRequested,
    RunRead,
    RunReadRequested,
    WaitReasonsChanged,
)
from autoscaler.model.events.launch_requests import (
    LaunchedMachine,
    LaunchFailure,
    LaunchOutcomeUnknown,
    LaunchRequestAnswered,
    LaunchRequestCancelled,
    LaunchRequestPrepared,
    LaunchRequestRecorded,
    LaunchRequestSent,
)
from autoscaler.model.events.machines import (
    ConsoleRead,
    HealthChecksReported,
    MachineAttested,
    MachineExited,
    MachineMarkedUnverified,
    MachineReportedStage,
    MachineSeen,
    RunnerRead,
    RunnerReadRequested,
    TerminationAnswered,
    TerminationRequested,
)
from autoscaler.model.events.operator import (
    ConfigurationReloaded,
    HeldByOperator,
    InstallationAdopted,
    MachineReleasedByOperator,
    ResumedByOperator,
    RetriedByOperator,
)
from autoscaler.model.events.providers import ListedMachine, MachinesListed, QuotasRead
from autoscaler.model.events.runners import (
    ConfigurationSent,
    RunnerClosed,
    RunnerDeregistered,
    RunnerDeregistrationRequested,
    RunnerListening,
    RunnerNamed,
    RunnerRegistered,
    RunnerRegistrationFailed,
    RunnersListed,
)

__all__ = [
    "CircuitClosed",
    "ConfigurationReloaded",
    "ConfigurationSent",
    "ConsoleRead",
    "ControllerStarted",
    "Event",
    "HealthChecksReported",
    "HeldByOperator",
    "ImageReplaced",
    "InstallationAdopted",
    "JobAbandoned",
    "JobObserved",
    "JobReadRequested",
    "LaunchFailure",
    "LaunchOutcomeUnknown",
    "LaunchRequestAnswered",
    "LaunchRequestCancelled",
    "LaunchRequestPrepared",
    "LaunchRequestRecorded",
    "LaunchRequestSent",
    "LaunchedMachine",
    "ListedMachine",
    "MachineAttested",
    "MachineExited",
    "MachineMarkedUnverified",
    "MachineNoticed",
    "MachineReleasedByOperator",
    "MachineReportedStage",
    "MachineSeen",
    "MachinesListed",
    "QuotasRead",
    "RerunAnswered",
    "RerunRequested",
    "ResumedByOperator",
    "RetriedByOperator",
    "RunRead",
    "RunReadRequested",
    "RunnerClosed",
    "RunnerDeregistered",
    "RunnerDeregistrationRequested",
    "RunnerListening",
    "RunnerNamed",
    "RunnerRead",
    "RunnerReadRequested",
    "RunnerRegistered",
    "RunnerRegistrationFailed",
    "RunnersListed",
    "TerminationAnswered",
    "TerminationRequested",
    "TimePassed",
    "WaitReasonsChanged",
]
