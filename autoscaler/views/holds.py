"""How many offerings are on hold, and why."""

from collections import Counter
from collections.abc import Iterator

from autoscaler.model.catalogue import CapacityType, LaunchOption, Sku
from autoscaler.model.cooldowns import (
    capacity_type_key,
    launch_option_key,
    offering_key,
    quota_key,
    sku_offering_key,
    throttle_key,
    zone_key,
)
from autoscaler.model.fleet import Fleet
from autoscaler.model.identifiers import ProviderName
from autoscaler.model.machines.failures import FailureClass

HoldCounts = Counter[tuple[ProviderName, CapacityType, FailureClass]]


def offerings_on_hold(fleet: Fleet) -> HoldCounts:
    """Return the number of offerings on hold, by the reason that the planner meets first.

    An offering counts once for each launch option that has it. O(cooldowns + offerings).
    """
    active = {key: hold.failure for key, hold in fleet.cooldowns.items() if hold.until > fleet.now}
    found: HoldCounts = Counter()
    if not active:
        return found
    for sku in fleet.catalogue.skus.values():
        for index, option in enumerate(sku.launch_options):
            for provider, kind, keys in _offerings(sku, index, option):
                reason = next((active[key] for key in keys if key in active), None)
                if reason is not None:
                    found[provider, kind, reason] += 1
    return found


def _offerings(
    sku: Sku, index: int, option: LaunchOption
) -> Iterator[tuple[ProviderName, CapacityType, tuple[str, ...]]]:
    """Yield each offering of a launch option with the keys that put it on hold, in the planner's order."""
    of_option = throttle_key(option.provider), launch_option_key(sku.name, index)
    for offering in option.offerings:
        yield (
            offering.provider,
            offering.capacity_type,
            (
                *of_option,
                capacity_type_key(offering.provider, offering.capacity_type),
                zone_key(offering.provider, offering.zone),
                offering_key(offering.key),
                sku_offering_key(sku.name, offering.key),
                quota_key(offering.quota_key),
            ),
        )
