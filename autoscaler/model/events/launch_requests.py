"""The life of one launch request, from the decision to the provider's answer."""

from dataclasses import dataclass, field

from autoscaler.model.catalogue import CapacityType
from autoscaler.model.events.event import Event
from autoscaler.model.identifiers import (
    LaunchRequestId,
    MachineId,
    ProviderMachineId,
    ProviderName,
    Seconds,
    SkuName,
)
from autoscaler.model.machines.failures import FailureClass, FailureScope


@dataclass(frozen=True, slots=True)
class LaunchRequestRecorded(Event):
    """The controller decided to send a launch request. Its slots count against limits from now on.

    `reason` says for what it launches the machines.
    """

    launch_request: LaunchRequestId
    sku: SkuName
    provider: ProviderName
    option: int
    capacity_type: CapacityType
    offerings: tuple[str, ...]
    slots: tuple[MachineId, ...]
    token: str
    reason: str


@dataclass(frozen=True, slots=True)
class LaunchRequestPrepared(Event):
    """The exact bytes of the request (`body`) are known. They are stored before the request is sent."""

    launch_request: LaunchRequestId
    body: str


@dataclass(frozen=True, slots=True)
class LaunchRequestSent(Event):
    """The request is about to be sent, for the first time or again with the same token."""

    launch_request: LaunchRequestId


@dataclass(frozen=True, slots=True)
class LaunchedMachine:
    """One machine in a provider's answer. `launch_time` is the provider's text, or empty.

    `created`: the answer shows that this request created the machine, and no earlier one of the same content.
    """

    provider_id: ProviderMachineId
    instance_type: str
    zone: str
    capacity_type: CapacityType
    image: str = ""
    launch_time: str = ""
    created: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class LaunchFailure:
    """One reason why a provider did not launch all machines of a request.

    `offering` is a key, or None if the whole request failed. `scope` is set if the failure concerns
    more than its class says.
    """

    failure: FailureClass
    code: str
    message: str
    offering: str | None = None
    scope: FailureScope | None = None


@dataclass(frozen=True, slots=True)
class LaunchRequestAnswered(Event):
    """The provider answered with machines and failures. Slots without a machine fail.

    A long answer is split into several events. All but the last have `more` set and only machines.
    """

    launch_request: LaunchRequestId
    launched: tuple[LaunchedMachine, ...]
    failures: tuple[LaunchFailure, ...]
    retry_after: Seconds | None = None
    more: bool = False


@dataclass(frozen=True, slots=True)
class LaunchOutcomeUnknown(Event):
    """No answer arrived (time-out, broken connection). The provider may have launched machines.

    `retry_after` is set if the provider named a time before which it refuses requests.
    """

    launch_request: LaunchRequestId
    message: str
    retry_after: Seconds | None = None


@dataclass(frozen=True, slots=True)
class LaunchRequestCancelled(Event):
    """A launch request was cancelled before it was sent."""

    launch_request: LaunchRequestId
    reason: str
