"""The offerings of a launch option: instance types x zones x capacity types, with prices.

Pure. Leaves out the instance types that a zone does not offer (EC2 API, DescribeInstanceTypeOfferings).
Only a launch shows whether EC2 has capacity for the others.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet

from autoscaler.model.catalogue import CapacityType, Offering, OperatingSystem
from autoscaler.model.identifiers import ProviderName
from autoscaler.providers.ec2.configuration import Ec2OptionKeys
from autoscaler.providers.ec2.instance_types import (
    InstanceTypeError,
    Prices,
    instance_type,
    instance_types,
    quota,
)
from autoscaler.providers.ec2.worker.rows import SubnetRow


def subnets_with_most_addresses(
    subnets: Iterable[SubnetRow], full: Collection[str] = frozenset()
) -> dict[str, str]:
    """Return by zone the subnet with the most free addresses, preferably one that is not in `full`.

    CreateFleet refuses two subnets of one zone as duplicate instance pools.
    """

    def preference(subnet: SubnetRow) -> tuple[bool, int]:
        return (subnet.id not in full, subnet.free_addresses)

    best: dict[str, SubnetRow] = {}
    for subnet in sorted(subnets):
        known = best.get(subnet.zone)
        if known is None or preference(subnet) > preference(known):
            best[subnet.zone] = subnet
    return {zone: best[zone].id for zone in sorted(best)}


OfferedTypes = Mapping[str, AbstractSet[str]]
"""The instance types that each zone offers. For a zone that is missing, they are not known."""


def price_offerings(
    provider: ProviderName,
    zones: Sequence[str],
    offered: OfferedTypes,
    option: Ec2OptionKeys,
    os: OperatingSystem,
    prices: Prices,
) -> tuple[Offering, ...]:
    """Return offerings in the order of capacity types, then instance types, then zones.

    Raises InstanceTypeError.
    """
    found: list[Offering] = []
    for capacity_type in option.capacity:
        for name in option.instance_types or ():
            in_zones = [zone for zone in zones if zone not in offered or name in offered[zone]]
            if not in_zones:
                continue
            known, counts_against = instance_type(name), quota(name, capacity_type)
            dollars = known.dollars_per_hour(os, prices, capacity_type)
            for zone in in_zones:
                where = provider, name, zone, capacity_type
                found.append(Offering(*where, dollars, counts_against, known.vcpus, option.target))
    return tuple(found)


def running_cost(
    name: str, os: OperatingSystem, prices: Prices, capacity_type: CapacityType
) -> float:
    """Return the price of an existing machine in dollars an hour; 0 if no price is known.

    A machine of a type that was removed from the configuration must not fail the list.
    """
    known = instance_types().get(name)
    try:
        return known.dollars_per_hour(os, prices, capacity_type) if known is not None else 0.0
    except InstanceTypeError:
        return 0.0


def quota_usage_of(
    provider: ProviderName, name: str, capacity_type: CapacityType
) -> tuple[tuple[str, int], ...]:
    """Return the quota usage of an existing machine, as (`Offering.quota_key`, vCPUs)."""
    known = instance_types().get(name)
    if known is None:
        return ()
    return ((f"{provider}/{quota(name, capacity_type)}", known.vcpus),)
