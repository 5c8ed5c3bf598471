"""The life of one registration at GitHub, from the assignment on, and what GitHub's list shows of them.

None carries the JIT configuration: it is a secret and is in no record.
"""

from dataclasses import dataclass

from autoscaler.model.demand import DemandClass
from autoscaler.model.events.event import Event
from autoscaler.model.failures import FailureClass
from autoscaler.model.identifiers import Instant, MachineId, RunnerName


@dataclass(frozen=True, slots=True)
class RunnerNamed(Event):
    """An assignment was recorded: this machine is to get a registration of this class."""

    name: RunnerName
    machine: MachineId
    demand: DemandClass


@dataclass(frozen=True, slots=True)
class RunnerRegistered(Event):
    """GitHub made the registration."""

    name: RunnerName
    github_id: int


@dataclass(frozen=True, slots=True)
class RunnerRegistrationFailed(Event):
    """GitHub did not make the registration; the machine is ready again, no assignment before `retry_at`."""

    name: RunnerName
    failure: FailureClass
    message: str
    retry_at: Instant


@dataclass(frozen=True, slots=True)
class RunnerHandedOver(Event):
    """The JIT configuration is about to leave for its machine."""

    name: RunnerName


@dataclass(frozen=True, slots=True)
class RunnerListening(Event):
    """The machine has it and is about to start the runner."""

    name: RunnerName


@dataclass(frozen=True, slots=True)
class RunnerDeregistrationRequested(Event):
    """A registration that was not handed over is about to be deleted."""

    name: RunnerName
    reason: str


@dataclass(frozen=True, slots=True)
class RunnerDeregistered(Event):
    """The registration was deleted before it was handed over, or was never made: still ready."""

    name: RunnerName
    reason: str


@dataclass(frozen=True, slots=True)
class RunnerClosed(Event):
    """The registration is over: deleted, refused, or its machine has left."""

    name: RunnerName
    reason: str


@dataclass(frozen=True, slots=True)
class RunnersListed(Event):
    """A scope's registrations, read whole from `began_at` on: those that are online or at work.

    A long list comes in pieces, each with `more` but the last one.
    """

    scope: str
    began_at: Instant
    at_work: tuple[RunnerName, ...]
    more: bool = False
