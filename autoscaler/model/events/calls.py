"""The life of one call to a provider, from the decision to its answer, and what an answer holds."""

from dataclasses import dataclass

from autoscaler.model.catalogue import CapacityType
from autoscaler.model.events.event import Event
from autoscaler.model.failures import FailureClass, Reach
from autoscaler.model.identifiers import (
    CallId,
    MachineId,
    ProviderMachineId,
    ProviderName,
    Seconds,
    SkuName,
)


@dataclass(frozen=True, slots=True)
class CallRecorded(Event):
    """A call was decided on: its slots count from now on. Its exact request is not known yet."""

    call: CallId
    sku: SkuName
    provider: ProviderName
    rung: int
    capacity_type: CapacityType
    offerings: tuple[str, ...]
    slots: tuple[MachineId, ...]
    token: str


@dataclass(frozen=True, slots=True)
class CallPrepared(Event):
    """The exact request was resolved and is stored with the call, before it is sent."""

    call: CallId
    request: str


@dataclass(frozen=True, slots=True)
class CallSent(Event):
    """A request is about to leave (again, with the same token, when its outcome was unknown)."""

    call: CallId


@dataclass(frozen=True, slots=True)
class LaunchedMachine:
    """One machine in a provider's answer. `launch_time` is the provider's own text, if it gave one."""

    provider_id: ProviderMachineId
    instance_type: str
    zone: str
    capacity_type: CapacityType
    image: str = ""
    launch_time: str = ""


@dataclass(frozen=True, slots=True)
class LaunchFailure:
    """One reason why a call was not (wholly) served. `offering` is a key, or None for the whole call.

    `reach` is set where it reaches farther than its class says.
    """

    failure: FailureClass
    code: str
    message: str
    offering: str | None = None
    reach: Reach | None = None


@dataclass(frozen=True, slots=True)
class CallAnswered(Event):
    """The provider answered: some machines, some failures; what it gave less is failed slots.

    A long answer comes in pieces, each with `more` but the last one: those only name machines.
    """

    call: CallId
    launched: tuple[LaunchedMachine, ...]
    failures: tuple[LaunchFailure, ...]
    retry_after: Seconds | None = None
    more: bool = False


@dataclass(frozen=True, slots=True)
class CallOutcomeUnknown(Event):
    """No answer came (time-out, broken connection): it may have been carried out."""

    call: CallId
    message: str


@dataclass(frozen=True, slots=True)
class CallWithdrawn(Event):
    """A recorded call was dropped before it was sent."""

    call: CallId
    reason: str
