"""What a provider listed: the fleet's machines, and the quotas of the account.

A machine that is missing in a listing is not proven to be terminated. The ledger decides that.
"""

from dataclasses import dataclass

from autoscaler.model.catalogue import CapacityType
from autoscaler.model.events.event import Event
from autoscaler.model.identifiers import (
    Instant,
    LaunchRequestId,
    ProviderMachineId,
    ProviderName,
    SkuName,
)
from autoscaler.model.machines.failures import FailureClass, FailureScope


@dataclass(frozen=True, slots=True)
class ListedMachine:
    """One machine in a provider's listing."""

    provider_id: ProviderMachineId
    installation: str
    """From the machine's tags, as are `launch_request` and `sku`."""
    launch_request: LaunchRequestId
    sku: SkuName
    terminated: bool
    instance_type: str
    zone: str
    capacity_type: CapacityType
    dollars_per_hour: float
    quota_usage: tuple[tuple[str, int], ...]
    image: str = ""
    launch_time: str = ""
    reason: str = ""
    """Why the machine is terminated or shuts down, in the provider's words."""
    failure: FailureClass | None = None
    """The class of `reason`, if it has one."""
    scope: FailureScope | None = None
    leaving: bool = False
    """Whether the machine shuts down."""
    deleted: bool = False
    """Whether a client, perhaps this controller, deleted the machine before it ended. Only pods have it set."""
    cannot_start: bool = False
    """Whether the machine cannot start: no host takes it, or its image cannot be read.

    It stays until the controller terminates it. `reason` and `failure` say why.
    """
    not_admitted: bool = False
    """Whether the machine ended because its host refused it. `reason` says why.

    Kubelet may refuse a pod that has run, when it starts again. Only pods have it set.
    """
    assigned: bool = False
    """Whether the provider shows that a controller wanted to send it a JIT configuration. Only pods do."""
    state: str = ""
    """The provider's name of the machine's state."""
    host: str = ""
    """The node of a pod, if it has one."""


@dataclass(frozen=True, slots=True)
class MachinesListed(Event):
    """A listing of the fleet's machines at one provider.

    Only a `complete` listing says something about machines that it does not show. A long listing is
    split into several events. All but the last have `more` set. The last one names in `shown` the
    machines of the earlier ones.
    """

    provider: ProviderName
    began_at: Instant
    complete: bool
    machines: tuple[ListedMachine, ...]
    more: bool = False
    shown: frozenset[ProviderMachineId] = frozenset()


@dataclass(frozen=True, slots=True)
class QuotasRead(Event):
    """What this fleet may use of the account's quotas, as (`Offering.quota_key`, units).

    What others use in the account is already subtracted. A missing quota is unknown.
    """

    provider: ProviderName
    quotas: tuple[tuple[str, int], ...]
