"""What agents reported, and what the controller did to terminate machines or to read their runners.

Reports of agents are authenticated before they become events.
"""

from dataclasses import dataclass

from autoscaler.model.events.event import Event
from autoscaler.model.identifiers import MachineId
from autoscaler.model.machines.machine import ExitReason, TerminationReason


@dataclass(frozen=True, slots=True)
class MachineAttested(Event):
    """A machine proved its identity. Its further requests are authenticated with a nonce.

    `host` is the node of a pod, or empty if its proof does not name it.
    """

    machine: MachineId
    nonce_hash: str
    host: str = ""


@dataclass(frozen=True, slots=True)
class MachineReportedStage(Event):
    """A machine reported the stage of its boot."""

    machine: MachineId
    stage: str


@dataclass(frozen=True, slots=True)
class HealthChecksReported(Event):
    """A machine's health checks passed or failed. `detail` is text of bounded length.

    `runner_version` is the version of actions/runner on the machine, or empty if it is unknown.
    """

    machine: MachineId
    passed: bool
    detail: str
    runner_version: str = ""


@dataclass(frozen=True, slots=True)
class MachineSeen(Event):
    """A machine sent an authenticated request. `polled`: it asks for an assignment, so it has none."""

    machine: MachineId
    polled: bool = False


@dataclass(frozen=True, slots=True)
class MachineExited(Event):
    """A machine reported that its runner exited and that it is powering off.

    `reason` and `detail` (text of bounded length) come from the machine.
    """

    machine: MachineId
    detail: str
    reason: ExitReason = ExitReason.UNKNOWN


@dataclass(frozen=True, slots=True)
class TerminationRequested(Event):
    """The controller decided to terminate a machine."""

    machine: MachineId
    reason_code: TerminationReason
    reason: str


@dataclass(frozen=True, slots=True)
class TerminationAnswered(Event):
    """The provider accepted the request to terminate a machine, or refused it with `error`."""

    machine: MachineId
    error: str = ""


@dataclass(frozen=True, slots=True)
class RunnerReadRequested(Event):
    """The controller is about to read a silent machine's runner and job at GitHub."""

    machine: MachineId


@dataclass(frozen=True, slots=True)
class MachineMarkedUnverified(Event):
    """A silent machine counts as assigned, because it may have been before the controller started."""

    machine: MachineId


@dataclass(frozen=True, slots=True)
class RunnerRead(Event):
    """GitHub answered about a machine's runner and job. `finished`: the work is provably over.

    `unregistered`: no listing shows the runner, and GitHub answered 404 for the runner's ID.
    """

    machine: MachineId
    finished: bool
    detail: str
    unregistered: bool = False


@dataclass(frozen=True, slots=True)
class ConsoleRead(Event):
    """The console output of a machine that did not become ready, or why it could not be read.

    `shown` is printable text of bounded length; text that looks like a credential is removed. The
    machine may not be in memory any more.
    """

    machine: MachineId
    shown: str
