"""Where a SKU can be launched now: its launch options in order of preference, within every limit."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from autoscaler.model.catalogue import LaunchOption, Offering, Sku
from autoscaler.model.cooldowns import (
    Cooldown,
    active_cooldown,
    capacity_type_key,
    launch_option_key,
    offering_key,
    quota_key,
    sku_offering_key,
    throttle_key,
    zone_key,
)
from autoscaler.model.fleet import Fleet
from autoscaler.model.operators import (
    WHOLE_FLEET,
    HoldTarget,
    launch_hold,
    provider_target,
    sku_target,
)
from autoscaler.model.reasons.table import WaitCode
from autoscaler.model.reasons.waiting import WaitReason
from autoscaler.planner.placement import ROUNDING, Headroom, Placement


@dataclass(slots=True)
class Search:
    """A search of one SKU's launch options. `reasons` says why options and offerings were skipped.

    It has at least one reason if no placement was found.
    """

    fleet: Fleet
    headroom: Headroom
    sku: Sku
    reasons: list[WaitReason] = field(default_factory=list)

    def place(self) -> Placement | None:
        """Return the first placement that allows one more machine, or None."""
        self.reasons.clear()
        if any(map(self._is_held, (WHOLE_FLEET, sku_target(self.sku.name)))):
            return None
        if (limit := self._limit_reached()) is not None:
            self.reasons.append(limit)
            return None
        return self._first_placement()

    def _first_placement(self) -> Placement | None:
        for index, option in enumerate(self.sku.launch_options):
            if self._is_held(provider_target(option.provider)):
                continue
            throttled = active_cooldown(
                self.fleet.cooldowns, throttle_key(option.provider), self.fleet.now
            )
            if throttled is not None:
                # A token bucket refills in seconds, so waiting is better than a more expensive option.
                self._add_hold(option.provider, throttled, WaitCode.THROTTLED, "provider")
                return None
            for placement in self._placements(index, option):
                if self.headroom.takes(placement):
                    return placement
                if self.headroom.fits(placement):
                    # As above; the machines that wait meanwhile share the next request.
                    self.headroom.short_of_tokens.add(option.provider)
                    until = self.headroom.next_request_at()
                    about = (option.provider,)
                    self._add(WaitReason(WaitCode.LAUNCH_RATE, about, until=until))
                    return None
        if not self.reasons:
            self._add(WaitReason(WaitCode.NO_OFFERING))
        return None

    def _limit_reached(self) -> WaitReason | None:
        if self.headroom.in_sku(self.sku) <= 0:
            most = self.sku.max_machines or 0  # without a limit, none is reached
            return WaitReason(WaitCode.MAX_MACHINES, (self.sku.name,), count=most)
        if self.headroom.machines <= 0:
            limit = self.fleet.catalogue.limits.machines or 0
            return WaitReason(WaitCode.FLEET_MACHINES, count=limit)
        return self.headroom.circuit_breakers.sku_blocked(self.sku.name)

    def _placements(self, index: int, option: LaunchOption) -> Iterator[Placement]:
        now, cooldowns = self.fleet.now, self.fleet.cooldowns
        if (
            hold := active_cooldown(cooldowns, launch_option_key(self.sku.name, index), now)
        ) is not None:
            self._add_hold(option.provider, hold)
            return
        if (
            blocked := self.headroom.circuit_breakers.option_blocked(self.sku.name, index)
        ) is not None:
            self._add(blocked)
            return
        for capacity_type in option.capacity_types:
            offerings = tuple(
                offering
                for offering in option.offerings
                if offering.capacity_type is capacity_type and self._is_available(offering)
            )
            if offerings:
                yield Placement(self.sku.name, index, capacity_type, offerings)

    def _is_available(self, offering: Offering) -> bool:
        provider, kind, zone = offering.provider, offering.capacity_type, offering.zone
        name, quota = offering.key, offering.quota_key
        if offering.until is not None and self.fleet.now >= offering.until:
            self._add(WaitReason(WaitCode.CAPACITY, (name,), variant="taken_back"))
            return False
        for key, what in (
            (capacity_type_key(provider, kind), f"{kind} at {provider}"),
            (zone_key(provider, zone), f"zone {zone} of {provider}"),
            (offering_key(name), name),
            (sku_offering_key(self.sku.name, name), f"{name} for {self.sku.name}"),
            (quota_key(quota), name),
        ):
            hold = active_cooldown(self.fleet.cooldowns, key, self.fleet.now)
            if hold is not None:
                self._add_hold(what, hold)
                return False
        if self.headroom.in_quota(quota) < offering.quota_units:
            configured = self.fleet.catalogue.limits.quotas.get(quota, 0)
            limit = self.fleet.quotas.get(quota, configured)
            self._add(WaitReason(WaitCode.QUOTA, (quota,), count=limit, variant="used_up"))
            return False
        if offering.dollars_per_hour > self.headroom.dollars + ROUNDING:
            dollars = self.fleet.catalogue.limits.dollars_per_hour or 0.0
            self._add(WaitReason(WaitCode.FLEET_DOLLARS, count=dollars))
            return False
        return True

    def _is_held(self, target: HoldTarget) -> bool:
        """Return True if an operator paused or drained a target, and add the reason."""
        hold = launch_hold(self.fleet.operator_holds, target)
        if hold is not None:
            name = "the fleet" if target is WHOLE_FLEET else target.name
            reason = WaitReason(WaitCode.PAUSED, (name,), hold.reason, where=str(target))
            self._add(reason)
        return hold is not None

    def _add_hold(
        self, name: str, hold: Cooldown, code: WaitCode | None = None, variant: str = ""
    ) -> None:
        code = code or WaitCode(hold.failure.value)
        self._add(WaitReason(code, (name,), hold.reason, hold.until, variant=variant))

    def _add(self, reason: WaitReason) -> None:
        if reason not in self.reasons:
            self.reasons.append(reason)
