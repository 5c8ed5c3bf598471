"""What a provider shows when it is asked: its machines, and what the account lets us have.

No list says by itself that a machine is gone: the ledger judges what an absence means.
"""

from dataclasses import dataclass

from autoscaler.model.catalogue import CapacityType
from autoscaler.model.events.event import Event
from autoscaler.model.failures import FailureClass, FailureScope
from autoscaler.model.identifiers import (
    Instant,
    LaunchRequestId,
    ProviderMachineId,
    ProviderName,
    SkuName,
)


@dataclass(frozen=True, slots=True)
class ListedMachine:
    """One machine as a provider lists it. `installation`, `launch_request` and `sku` are our tags.

    `leaving` is one that is on its way down, whoever wanted that, and will serve nobody. `failure`
    is why the provider says that it ended, or is about to, where that has a class. `state` is the
    provider's own word for its state.
    """

    provider_id: ProviderMachineId
    installation: str
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
    failure: FailureClass | None = None
    reach: FailureScope | None = None
    leaving: bool = False
    state: str = ""


@dataclass(frozen=True, slots=True)
class MachinesListed(Event):
    """A list of this fleet's machines at one provider. Only a `complete` one says anything by absence.

    A long list comes in pieces, each with `more` but the last one, which names in `shown` what the
    earlier ones showed.
    """

    provider: ProviderName
    began_at: Instant
    complete: bool
    machines: tuple[ListedMachine, ...]
    more: bool = False
    shown: frozenset[ProviderMachineId] = frozenset()


@dataclass(frozen=True, slots=True)
class QuotasRead(Event):
    """What the provider's account lets this fleet have, as (`Offering.quota_key`, units).

    What others use in the account is taken off already; a quota that is not named is not known.
    """

    provider: ProviderName
    quotas: tuple[tuple[str, int], ...]
