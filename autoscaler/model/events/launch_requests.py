"""The life of one call to a provider, from the decision to its answer, and what an answer holds."""

from dataclasses import dataclass

from autoscaler.model.catalogue import CapacityType
from autoscaler.model.events.event import Event
from autoscaler.model.failures import FailureClass, FailureScope
from autoscaler.model.identifiers import (
    LaunchRequestId,
    MachineId,
    ProviderMachineId,
    ProviderName,
    Seconds,
    SkuName,
)


@dataclass(frozen=True, slots=True)
class LaunchRequestRecorded(Event):
    """A call was decided on: its slots count from now on. Its exact request is not known yet."""

    launch_request: LaunchRequestId
    sku: SkuName
    provider: ProviderName
    option: int
    capacity_type: CapacityType
    offerings: tuple[str, ...]
    slots: tuple[MachineId, ...]
    token: str


@dataclass(frozen=True, slots=True)
class LaunchRequestPrepared(Event):
    """The exact request was resolved and is stored with the call, before it is sent."""

    launch_request: LaunchRequestId
    body: str


@dataclass(frozen=True, slots=True)
class LaunchRequestSent(Event):
    """A request is about to leave (again, with the same token, when its outcome was unknown)."""

    launch_request: LaunchRequestId


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
    reach: FailureScope | None = None


@dataclass(frozen=True, slots=True)
class LaunchRequestAnswered(Event):
    """The provider answered: some machines, some failures; what it gave less is failed slots.

    A long answer comes in pieces, each with `more` but the last one: those only name machines.
    """

    launch_request: LaunchRequestId
    launched: tuple[LaunchedMachine, ...]
    failures: tuple[LaunchFailure, ...]
    retry_after: Seconds | None = None
    more: bool = False


@dataclass(frozen=True, slots=True)
class LaunchOutcomeUnknown(Event):
    """No answer came (time-out, broken connection): it may have been carried out."""

    launch_request: LaunchRequestId
    message: str


@dataclass(frozen=True, slots=True)
class LaunchRequestCancelled(Event):
    """A recorded call was dropped before it was sent."""

    launch_request: LaunchRequestId
    reason: str
