"""Where a SKU's machines can be launched, and which offerings are on hold."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from autoscaler.model.catalogue import CapacityType, Offering
from autoscaler.model.cooldowns import (
    Cooldown,
    active_cooldown,
    boots_key,
    exits_key,
    launch_keys,
    launch_option_key,
    open_circuit,
)
from autoscaler.model.fleet import Fleet
from autoscaler.model.identifiers import Instant, ProviderName, SkuName
from autoscaler.model.machines.failures import FailureClass
from autoscaler.model.operators import (
    NO_END,
    WHOLE_FLEET,
    launch_hold,
    provider_target,
    sku_target,
)
from autoscaler.planner.placement import Headroom
from autoscaler.planner.search import limit_of_offering, limit_of_sku

HoldCounts = Counter[tuple[ProviderName, CapacityType, FailureClass]]


@dataclass(frozen=True, slots=True)
class OptionView:
    """One offering of a launch option, in order of preference.

    `on_hold` is why it is not used now: the provider's words, which operator paused it, or which limit is
    reached; empty if a machine may be launched there. `until` is when the hold ends, None if an operator or a
    limit ends it. `failures` is how many failures in a row led to it.
    """

    sku: str
    option: int
    offering: str
    dollars_per_hour: float
    on_hold: str
    until: Instant | None
    failures: int


def offerings_on_hold(fleet: Fleet) -> HoldCounts:
    """Return the number of offerings on hold, by the reason that the planner meets first.

    An offering counts once for each launch option that has it. O(cooldowns + offerings).
    """
    active = {key: hold.failure for key, hold in fleet.cooldowns.items() if hold.until > fleet.now}
    found: HoldCounts = Counter()
    for sku in fleet.catalogue.skus.values() if active else ():
        for index, option in enumerate(sku.launch_options):
            for offering in option.offerings:
                keys = launch_keys(sku.name, index, offering)
                reason = next((active[key] for key in keys if key in active), None)
                if reason is not None:
                    found[offering.provider, offering.capacity_type, reason] += 1
    return found


def offerings_of(fleet: Fleet, skus: Sequence[SkuName]) -> Iterator[OptionView]:
    """Yield the offerings of these SKUs in order of preference, each with the hold on it."""
    for name in skus:
        sku = fleet.catalogue.skus.get(name)
        for index, option in enumerate(sku.launch_options if sku is not None else ()):
            for kind in option.capacity_types:
                for offering in option.offerings:
                    if offering.capacity_type is kind:
                        yield _offering(fleet, name, index, offering)


def _offering(fleet: Fleet, sku: SkuName, option: int, offering: Offering) -> OptionView:
    hold = _hold(fleet, sku, option, offering)
    limit = _limit(fleet, sku, offering) if hold is None else ""
    return OptionView(
        sku=sku,
        option=option,
        offering=offering.key,
        dollars_per_hour=offering.dollars_per_hour,
        on_hold=hold.reason if hold is not None else limit,
        until=hold.until if hold is not None and fleet.now < hold.until < NO_END else None,
        failures=hold.failures if hold is not None else 0,
    )


def _limit(fleet: Fleet, sku: SkuName, offering: Offering) -> str:
    """Return the limit that allows no machine of an offering, as the planner says it, or an empty text."""
    headroom = Headroom(fleet)
    limit = limit_of_sku(headroom, fleet.catalogue.skus[sku])
    limit = limit or limit_of_offering(headroom, offering)
    return limit.message if limit is not None else ""


def _hold(fleet: Fleet, sku: SkuName, option: int, offering: Offering) -> Cooldown | None:
    """Return an operator's hold on an offering, else the circuit breaker or hold that ends last."""
    for target in (WHOLE_FLEET, sku_target(sku), provider_target(offering.provider)):
        if (held := launch_hold(fleet.operator_holds, target)) is not None:
            return replace(held, reason=f"{target} is {held.reason}")
    circuits = (exits_key(sku), boots_key(sku), launch_option_key(sku, option))
    keys = launch_keys(sku, option, offering)
    rows = (
        *(open_circuit(fleet.cooldowns, key) for key in circuits),
        *(active_cooldown(fleet.cooldowns, key, fleet.now) for key in keys),
    )
    return max((row for row in rows if row is not None), key=lambda row: row.until, default=None)
