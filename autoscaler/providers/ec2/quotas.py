"""The codes of the account's vCPU quotas, and how much of them this fleet may use. Pure.

Subtracts the usage of machines outside this fleet, and of its own in capacity reservations. The ledger counts
the usage of the others.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from autoscaler.model.catalogue import CapacityType
from autoscaler.model.identifiers import ProviderName
from autoscaler.providers.ec2.instance_types import InstanceTypeError, instance_types, quota
from autoscaler.providers.ec2.rows import InstanceRow

QUOTA_CODES: Mapping[str, str] = MappingProxyType(
    {
        "L-1216C47A": "on-demand/Standard",
        "L-DB2E81BA": "on-demand/G and VT",
        "L-417A185B": "on-demand/P",
        "L-74FC7D96": "on-demand/F",
        "L-7295265B": "on-demand/X",
        "L-1945791B": "on-demand/Inf",
        "L-2C3B7624": "on-demand/Trn",
        "L-6E869C2A": "on-demand/DL",
        "L-F7808C92": "on-demand/HPC",
        "L-43DA4232": "on-demand/High memory",
        "L-34B43A08": "spot/Standard",
        "L-3819A6DF": "spot/G and VT",
        "L-7212CCBC": "spot/P",  # P4, P3 and P2
        "L-C4BD4855": "spot/P5",
        "L-88CF9481": "spot/F",
        "L-E3A00192": "spot/X",
        "L-B5D1601B": "spot/Inf",
        "L-6B0D517C": "spot/Trn",
        "L-85EED4F7": "spot/DL",
    }
)
"""Codes of Service Quotas, service `ec2` (EC2 User Guide, "Spot Instance quotas"; instance types
guide, "EC2 instance type quotas")."""

COUNTED_STATES = ("pending", "running")
"""The instance states that count against quotas (EC2 User Guide, "On-Demand Instance quotas")."""

_OWN_QUOTAS = frozenset({"capacity-block", "scheduled"})


def used_by_others(fleet: str, rows: Iterable[InstanceRow]) -> Counter[str]:
    """Return the vCPUs by quota name of the machines that the ledger does not count under it."""
    used: Counter[str] = Counter()
    for row in rows:
        # A machine of the fleet in a capacity reservation counts against the reservation there.
        own = row.fleet == fleet and not row.reservation
        # Dedicated hosts and capacity blocks have their own quotas.
        if own or row.tenancy == "host" or row.lifecycle in _OWN_QUOTAS:
            continue
        kind = CapacityType.SPOT if row.lifecycle == "spot" else CapacityType.ON_DEMAND
        known = instance_types().get(row.instance_type)
        try:
            used[quota(row.instance_type, kind)] += known.vcpus if known else row.vcpus
        except InstanceTypeError:
            continue  # such as a Mac: it shares no quota with the types that can be launched here
    return used


def available_quotas(
    provider: ProviderName, quotas: Mapping[str, int], others: Mapping[str, int]
) -> dict[str, int]:
    """Return the vCPUs of each quota that this fleet may use, by `Offering.quota_key`."""
    return {
        f"{provider}/{name}": max(0, units - others.get(name, 0))
        for name, units in sorted(quotas.items())
    }
