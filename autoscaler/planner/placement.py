"""What the limits on machines, dollars, quotas and launch rates still allow while a plan is being made."""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from math import ceil

from autoscaler.model.catalogue import (
    CapacityType,
    LaunchTokens,
    Offering,
    Sku,
    most_units,
)
from autoscaler.model.fleet import Fleet
from autoscaler.model.identifiers import Instant, MachineId, ProviderName, SkuName
from autoscaler.model.machines.launch_requests import LaunchRequest
from autoscaler.model.machines.machine import Machine
from autoscaler.planner.circuit_breakers import CircuitBreakers

ROUNDING = 1e-9
"""Dollars an hour that sums of prices may be off by."""
_NO_LIMIT = 1 << 60


@dataclass(frozen=True, slots=True)
class Placement:
    """A launch option with one capacity type, and its offerings that may be requested now.

    `dollars` is the highest price of one machine, in dollars an hour. `quota_units` is by quota the
    most that one machine may use.
    """

    sku: SkuName
    option: int
    capacity_type: CapacityType
    offerings: tuple[Offering, ...]
    dollars: float = field(init=False, compare=False)
    quota_units: dict[str, int] = field(init=False, compare=False)
    _hash: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        dollars = max(offering.dollars_per_hour for offering in self.offerings)
        object.__setattr__(self, "dollars", dollars)
        object.__setattr__(self, "quota_units", most_units(self.offerings))
        key = (self.sku, self.option, self.capacity_type, self.offerings)
        object.__setattr__(self, "_hash", hash(key))

    def __hash__(self) -> int:
        """Return the hash computed at construction, because large plans look placements up often."""
        return self._hash

    @property
    def provider(self) -> ProviderName:
        """Return the provider of all offerings."""
        return self.offerings[0].provider


@dataclass(slots=True)
class Headroom:
    """What each limit still allows while a plan is being made.

    `leaving` are machines that this plan no longer counts as supply. They count against the limits.
    `late` are those of them that miss the deadline of their boot or health checks.
    """

    fleet: Fleet
    leaving: Collection[MachineId] = ()
    late: Collection[MachineId] = ()
    circuit_breakers: CircuitBreakers = field(init=False)
    machines: int = field(init=False)
    dollars: float = field(init=False)
    by_sku: dict[SkuName, int] = field(default_factory=dict, init=False)
    by_quota: dict[str, int] = field(default_factory=dict, init=False)
    tokens: dict[ProviderName, LaunchTokens] = field(init=False)
    short_of_tokens: set[ProviderName] = field(default_factory=set, init=False)
    placed: Counter[Placement] = field(default_factory=Counter, init=False)

    def __post_init__(self) -> None:
        limits, usage = self.fleet.catalogue.limits, self.fleet.usage
        machines, dollars = limits.machines, limits.dollars_per_hour
        self.machines = (machines if machines is not None else _NO_LIMIT) - usage.machines
        self.dollars = (dollars if dollars is not None else _NO_LIMIT) - usage.dollars_per_hour
        self.tokens = dict(self.fleet.launch_tokens)
        self.circuit_breakers = CircuitBreakers(self.fleet, self.leaving, self.late)

    def in_sku(self, sku: Sku) -> int:
        """Return how many more machines of this SKU its `max_machines` allows."""
        if sku.name not in self.by_sku:
            limit = sku.max_machines if sku.max_machines is not None else _NO_LIMIT
            self.by_sku[sku.name] = limit - self.fleet.usage.by_sku.get(sku.name, 0)
        return self.by_sku[sku.name]

    def in_quota(self, quota: str) -> int:
        """Return how many more units of this quota may be used."""
        if quota not in self.by_quota:
            used = self.fleet.usage.by_quota.get(quota, 0)
            self.by_quota[quota] = self.quota_limit(quota) - used
        return self.by_quota[quota]

    def quota_limit(self, quota: str) -> int:
        """Return how many units of this quota the fleet may use in all."""
        configured = self.fleet.catalogue.limits.quotas.get(quota, _NO_LIMIT)
        return self.fleet.quotas.get(quota, configured)

    def fits(self, placement: Placement) -> bool:
        """Return whether the limits on machines, dollars and quotas allow one more machine there."""
        return (
            self.machines > 0
            and self.in_sku(self.fleet.catalogue.skus[placement.sku]) > 0
            and placement.dollars <= self.dollars + ROUNDING
            and all(self.in_quota(q) >= n for q, n in placement.quota_units.items())
        )

    def within_rate(self, placement: Placement) -> bool:
        """Return whether the launch rate allows one more machine there, in a begun or a new request."""
        tokens = self.tokens.get(placement.provider)
        if tokens is None:
            return True
        begun = self._in_begun_request(placement) != 0
        return tokens.machines >= 1.0 if begun else tokens.enough

    def takes(self, placement: Placement) -> bool:
        """Return whether one more machine can be placed there now."""
        return (
            self.fits(placement)
            and self.within_rate(placement)
            and self.circuit_breakers.sku_blocked(placement.sku) is None
            and self.circuit_breakers.option_blocked(placement.sku, placement.option) is None
        )

    def next_request_at(self) -> Instant | None:
        """Return when the launch rate of a provider allows its next postponed request, or None."""
        rates = self.fleet.catalogue.launch_rates
        waits = [rates[p].wait(self.tokens[p]) for p in self.short_of_tokens]
        return self.fleet.now + min(waits) if waits else None

    def count_resend(self, provider: ProviderName) -> None:
        """Count a request that is sent again. It requests no more machines."""
        if (tokens := self.tokens.get(provider)) is not None:
            self.tokens[provider] = tokens.less(1, 0)

    def give_back(self, request: LaunchRequest, slots: int) -> None:
        """Return cancelled slots to the limits, and their request to the rate if all are cancelled."""
        if (tokens := self.tokens.get(request.provider)) is not None:
            rate = self.fleet.catalogue.launch_rates[request.provider]
            whole = int(slots == len(request.slots))
            self.tokens[request.provider] = rate.refilled(tokens.less(-whole, -slots), 0.0)
        self.circuit_breakers.count(request.sku, request.option, -slots)
        for slot in request.slots[:slots]:
            self._give_back(self.fleet.machines[slot])

    def _give_back(self, slot: Machine) -> None:
        self.machines += 1
        self.dollars += slot.placement.dollars_per_hour
        if (sku := self.fleet.catalogue.skus.get(slot.sku)) is not None:
            self.by_sku[slot.sku] = self.in_sku(sku) + 1
        for quota, units in slot.placement.quota_usage:
            self.by_quota[quota] = self.in_quota(quota) + units

    def take(self, placement: Placement, count: int = 1) -> None:
        """Count machines at their highest price, and the requests that they begin."""
        if (tokens := self.tokens.get(placement.provider)) is not None:
            self.tokens[placement.provider] = tokens.less(
                self._new_requests(placement, count), count
            )
        self.placed[placement] += count
        self.circuit_breakers.count(placement.sku, placement.option, count)
        self.machines -= count
        self.dollars -= placement.dollars * count
        self.by_sku[placement.sku] -= count
        for quota, units in placement.quota_units.items():
            self.by_quota[quota] = self.in_quota(quota) - units * count

    def _in_begun_request(self, placement: Placement) -> int:
        """Return how many machines the last request of a placement has; 0 if the next one begins another."""
        return self.placed[placement] % self.fleet.catalogue.largest_request(placement.provider)

    def _new_requests(self, placement: Placement, count: int) -> int:
        """Return how many requests more machines of a placement begin."""
        largest, placed = (
            self.fleet.catalogue.largest_request(placement.provider),
            self.placed[placement],
        )
        return ceil((placed + count) / largest) - ceil(placed / largest)

    def takes_all(self, counts: Mapping[Placement, int]) -> bool:
        """Return whether all these machines of placements with a machine can be placed, in any order."""
        requests: Counter[ProviderName] = Counter()
        for placement, count in counts.items():
            sku, option = self.fleet.catalogue.skus[placement.sku], placement.option
            if self.circuit_breakers.launches_one_at_a_time(sku.name, option):
                return False
            if count > self.in_sku(sku):
                return False
            requests[placement.provider] += self._new_requests(placement, count)
        limited = (provider for provider in requests if provider in self.tokens)
        return sum(counts.values()) <= self.ahead_of_all(counts) and all(
            requests[provider] <= self.tokens[provider].calls for provider in limited
        )

    def ahead_of_all(self, placements: Collection[Placement]) -> int:
        """Return how many more machines the shared limits allow in any mix of these placements."""
        most = self.machines
        units: dict[str, int] = {}
        for placement in placements:
            if (tokens := self.tokens.get(placement.provider)) is not None:
                most = min(most, int(min(tokens.machines, _NO_LIMIT)))
            for quota, taken in placement.quota_units.items():
                units[quota] = max(units.get(quota, 0), taken)
        for quota, taken in units.items():
            if taken > 0:
                most = min(most, self.in_quota(quota) // taken)
        highest = max((placement.dollars for placement in placements), default=0.0)
        if highest > 0.0:
            # One less than the quotient, so that rounding does not allow one machine too many.
            most = min(most, int(self.dollars / highest) - 1)
        return max(0, most)
