"""The life of one registration at GitHub, and GitHub's listings of runners.

No event has the JIT configuration, which is a secret.
"""

from dataclasses import dataclass

from autoscaler.model.events.event import Event
from autoscaler.model.identifiers import Instant, MachineId, RunnerName
from autoscaler.model.jobs.access import RunnerGroup
from autoscaler.model.jobs.demand import DemandClass
from autoscaler.model.machines.failures import FailureClass


@dataclass(frozen=True, slots=True)
class RunnerNamed(Event):
    """The controller decided to register a runner of this class for a machine."""

    name: RunnerName
    machine: MachineId
    demand: DemandClass


@dataclass(frozen=True, slots=True)
class RunnerRegistered(Event):
    """GitHub created the registration."""

    name: RunnerName
    github_id: int


@dataclass(frozen=True, slots=True)
class RunnerRegistrationFailed(Event):
    """GitHub did not create the registration. Its machine is ready again; try again at `retry_at`."""

    name: RunnerName
    failure: FailureClass
    message: str
    retry_at: Instant


@dataclass(frozen=True, slots=True)
class ConfigurationSent(Event):
    """The JIT configuration is about to be sent to its machine."""

    name: RunnerName


@dataclass(frozen=True, slots=True)
class RunnerListening(Event):
    """The machine has the JIT configuration and is about to start the runner."""

    name: RunnerName


@dataclass(frozen=True, slots=True)
class RunnerDeregistrationRequested(Event):
    """The controller is about to delete a registration that no machine got."""

    name: RunnerName
    reason: str


@dataclass(frozen=True, slots=True)
class RunnerDeregistered(Event):
    """The registration was deleted before its machine got it, or never created. The machine is ready."""

    name: RunnerName
    reason: str


@dataclass(frozen=True, slots=True)
class RunnerClosed(Event):
    """The registration is over: GitHub deleted or refused it, or its machine is terminated."""

    name: RunnerName
    reason: str


@dataclass(frozen=True, slots=True)
class RunnerGroupRead(Event):
    """GitHub has shown an organization's runner group. `scope` is `Scope.key`."""

    scope: str
    runner_group: str
    group: RunnerGroup


@dataclass(frozen=True, slots=True)
class RunnersListed(Event):
    """A complete listing of a scope's runners, which began at `began_at`.

    `at_work` are the runners that are online or busy. A long listing is split into several events. All
    but the last have `more` set.
    """

    scope: str
    began_at: Instant
    at_work: tuple[RunnerName, ...]
    more: bool = False
