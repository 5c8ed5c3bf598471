"""Where a SKU can be launched now: down its ladder, past what is held back, within every cap.

It never decides whether to launch, or for whom.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from autoscaler.model.catalogue import CapacityType, Offering, Rung, Sku
from autoscaler.model.cooldowns import held, offering_key, quota_key, rung_key, throttle_key
from autoscaler.model.fleet import Fleet
from autoscaler.model.identifiers import SkuName
from autoscaler.model.machines import Machine

_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Placement:
    """One rung with one capacity type, and those of its offerings that may be asked for."""

    sku: SkuName
    rung: int
    capacity_type: CapacityType
    offerings: tuple[Offering, ...]

    @property
    def dollars(self) -> float:
        """What one machine costs at most, in dollars an hour."""
        return max(offering.dollars_per_hour for offering in self.offerings)

    @property
    def quota_units(self) -> dict[str, int]:
        """What one machine takes at most of every quota it may use."""
        units: dict[str, int] = {}
        for offering in self.offerings:
            known = units.get(offering.quota_key, 0)
            units[offering.quota_key] = max(known, offering.quota_units)
        return units


@dataclass(slots=True)
class Room:
    """What is left under every cap while a plan is being made."""

    fleet: Fleet
    machines: int = field(init=False)
    dollars: float = field(init=False)
    by_sku: dict[SkuName, int] = field(default_factory=dict, init=False)
    by_quota: dict[str, int] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        limits, usage = self.fleet.catalogue.limits, self.fleet.usage
        unlimited = 1 << 60
        self.machines = (limits.machines if limits.machines is not None else unlimited) - (
            usage.machines
        )
        dollars = limits.dollars_per_hour
        self.dollars = (dollars if dollars is not None else 1e18) - usage.dollars_per_hour

    def in_sku(self, sku: Sku) -> int:
        """How many more machines this SKU may have."""
        if sku.name not in self.by_sku:
            cap = sku.max_machines if sku.max_machines is not None else 1 << 60
            self.by_sku[sku.name] = cap - self.fleet.usage.by_sku.get(sku.name, 0)
        return self.by_sku[sku.name]

    def in_quota(self, quota: str) -> int:
        """How many more units of this quota may be used."""
        if quota not in self.by_quota:
            cap = self.fleet.catalogue.limits.quotas.get(quota, 1 << 60)
            self.by_quota[quota] = cap - self.fleet.usage.by_quota.get(quota, 0)
        return self.by_quota[quota]

    def fits(self, placement: Placement) -> bool:
        """Whether one more machine can be placed there."""
        return (
            self.machines > 0
            and self.by_sku.get(placement.sku, 1) > 0
            and placement.dollars <= self.dollars + _ROUNDING
            and all(self.in_quota(q) >= n for q, n in placement.quota_units.items())
        )

    def give_back(self, slot: Machine) -> None:
        """Count a slot out that will never be sent."""
        self.machines += 1
        self.dollars += slot.dollars_per_hour
        if (sku := self.fleet.catalogue.skus.get(slot.sku)) is not None:
            self.by_sku[slot.sku] = self.in_sku(sku) + 1
        for quota, units in slot.holds:
            self.by_quota[quota] = self.in_quota(quota) + units

    def take(self, placement: Placement) -> None:
        """Count one machine in, at its dearest."""
        self.machines -= 1
        self.dollars -= placement.dollars
        self.by_sku[placement.sku] -= 1
        for quota, units in placement.quota_units.items():
            self.by_quota[quota] = self.in_quota(quota) - units


@dataclass(slots=True)
class Search:
    """The way down one SKU's ladder, and in `reasons` why what lies behind was left."""

    fleet: Fleet
    room: Room
    sku: Sku
    reasons: list[str] = field(default_factory=list)

    def place(self) -> Placement | None:
        """The first placement with room for one more machine."""
        self.reasons.clear()
        if (cap := self._cap()) is not None:
            self.reasons.append(cap)
            return None
        for index, rung in enumerate(self.sku.ladder):
            throttled = held(self.fleet.cooldowns, throttle_key(rung.provider), self.fleet.now)
            if throttled is not None:
                # Its bucket refills in seconds: waiting beats a dearer rung.
                self.reasons.append(f"{rung.provider} throttles launches ({throttled.reason})")
                return None
            for placement in self._placements(index, rung):
                if self.room.fits(placement):
                    return placement
        if not any(rung.offerings for rung in self.sku.ladder):
            self.reasons.append("no provider of its ladder can launch it now")
        return None

    def _cap(self) -> str | None:
        if self.room.in_sku(self.sku) <= 0:
            return f"max_machines of {self.sku.name} ({self.sku.max_machines}) is reached"
        if self.room.machines <= 0:
            limit = self.fleet.catalogue.limits.machines
            return f"the fleet's limit of {limit} machines is reached"
        return None

    def _placements(self, index: int, rung: Rung) -> Iterator[Placement]:
        now, cooldowns = self.fleet.now, self.fleet.cooldowns
        if (hold := held(cooldowns, rung_key(self.sku.name, index), now)) is not None:
            self.reasons.append(f"{rung.provider} is held back: {hold.reason}")
            return
        for capacity_type in rung.capacity_types:
            offerings = tuple(
                offering
                for offering in rung.offerings
                if offering.capacity_type is capacity_type and self._may_ask_for(offering)
            )
            if offerings:
                yield Placement(self.sku.name, index, capacity_type, offerings)

    def _may_ask_for(self, offering: Offering) -> bool:
        for key in (offering_key(offering.key), quota_key(offering.quota_key)):
            hold = held(self.fleet.cooldowns, key, self.fleet.now)
            if hold is not None:
                self._because(f"{offering.key} is held back: {hold.reason}")
                return False
        if self.room.in_quota(offering.quota_key) < offering.quota_units:
            self._because(f"the quota {offering.quota_key} is used up")
            return False
        if offering.dollars_per_hour > self.room.dollars + _ROUNDING:
            limit = self.fleet.catalogue.limits.dollars_per_hour
            self._because(f"the fleet's limit of {limit} dollars an hour is reached")
            return False
        return True

    def _because(self, reason: str) -> None:
        if reason not in self.reasons:
            self.reasons.append(reason)
