"""What machines say of themselves, and how one is examined and ended.

That a word is authentic was proved before it became an event.
"""

from dataclasses import dataclass

from autoscaler.model.events.event import Event
from autoscaler.model.identifiers import MachineId
from autoscaler.model.machines import ExitReason, TerminationReason


@dataclass(frozen=True, slots=True)
class MachineAttested(Event):
    """A machine proved who it is and gave (the hash of) a nonce."""

    machine: MachineId
    nonce_hash: str


@dataclass(frozen=True, slots=True)
class MachineReportedStage(Event):
    """A machine told how far its boot has come."""

    machine: MachineId
    stage: str


@dataclass(frozen=True, slots=True)
class HealthChecksReported(Event):
    """A machine's own health checks passed or failed; `detail` is bounded text.

    `runner_version` is the version of actions/runner on the machine, empty where it is not known.
    """

    machine: MachineId
    passed: bool
    detail: str
    runner_version: str = ""


@dataclass(frozen=True, slots=True)
class MachineSeen(Event):
    """An authenticated word from a machine; `polled` if it asks for an assignment, and so has none."""

    machine: MachineId
    polled: bool = False


@dataclass(frozen=True, slots=True)
class MachineExited(Event):
    """A machine reported that its runner has left and that it is powering off.

    `reason` and `detail` (bounded text) are the machine's own words.
    """

    machine: MachineId
    detail: str
    reason: ExitReason = ExitReason.UNKNOWN


@dataclass(frozen=True, slots=True)
class TerminationRequested(Event):
    """The controller decided to end a machine, on one of the grounds that allow it."""

    machine: MachineId
    reason_code: TerminationReason
    reason: str


@dataclass(frozen=True, slots=True)
class TerminationAnswered(Event):
    """The provider took the request to end a machine, or (`error`) did not."""

    machine: MachineId
    error: str = ""


@dataclass(frozen=True, slots=True)
class RunnerReadRequested(Event):
    """GitHub is about to be asked what became of a silent machine's runner and job."""

    machine: MachineId


@dataclass(frozen=True, slots=True)
class MachineMarkedUnverified(Event):
    """A silent machine is held to be at work: nothing says that it was not assigned before the start."""

    machine: MachineId


@dataclass(frozen=True, slots=True)
class RunnerRead(Event):
    """What GitHub said of a machine: `finished` only if its work is provably over.

    `unregistered` says that no list shows its runner and that GitHub answered 404 for the runner's id.
    """

    machine: MachineId
    finished: bool
    detail: str
    unregistered: bool = False


@dataclass(frozen=True, slots=True)
class ConsoleRead(Event):
    """What the console of a machine that did not come up showed, or why nothing is known of it.

    `shown` is bounded, printable text without what looks like a credential. The machine may have
    left memory.
    """

    machine: MachineId
    shown: str
