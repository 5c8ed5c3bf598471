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
                code, where = WaitCode.THROTTLED, option.provider
                self._add(_held(option.provider, throttled, where, code, "provider"))
                return None
            for placement in self._placements(index, option):
                if self.headroom.takes(placement):
                    return placement
                if self.headroom.fits(placement):
                    # As above; the machines that wait meanwhile share the next request.
                    self.headroom.short_of_tokens.add(option.provider)
                    until = self.headroom.next_request_at()
                    about = (option.provider,)
                    code, where = WaitCode.LAUNCH_RATE, option.provider
                    self._add(WaitReason(code, about, until=until, where=where))
                    return None
        if not self.reasons:
            self._add(WaitReason(WaitCode.NO_OFFERING))
        return None

    def _limit_reached(self) -> WaitReason | None:
        limit = limit_of_sku(self.headroom, self.sku)
        return limit or self.headroom.circuit_breakers.sku_blocked(self.sku.name)

    def _placements(self, index: int, option: LaunchOption) -> Iterator[Placement]:
        now, cooldowns = self.fleet.now, self.fleet.cooldowns
        if (
            hold := active_cooldown(cooldowns, launch_option_key(self.sku.name, index), now)
        ) is not None:
            self._add(_held(option.provider, hold, option.provider))
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
            code, variant = WaitCode.CAPACITY, "taken_back"
            self._add(WaitReason(code, (name,), where=provider, variant=variant))
            return False
        for key, what, where in (
            (capacity_type_key(provider, kind), f"{kind} at {provider}", provider),
            (zone_key(provider, zone), f"zone {zone} of {provider}", provider),
            (offering_key(name), name, provider),
            (sku_offering_key(self.sku.name, name), f"{name} for {self.sku.name}", provider),
            (quota_key(quota), name, quota),
        ):
            hold = active_cooldown(self.fleet.cooldowns, key, self.fleet.now)
            if hold is not None:
                self._add(_held(what, hold, where))
                return False
        if (limit := limit_of_offering(self.headroom, offering)) is not None:
            self._add(limit)
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

    def _add(self, reason: WaitReason) -> None:
        if reason not in self.reasons:
            self.reasons.append(reason)


def _held(
    name: str, hold: Cooldown, where: str, code: WaitCode | None = None, variant: str = ""
) -> WaitReason:
    """Return the reason of a hold. `where` is the quota or the provider that it concerns."""
    code = code or WaitCode(hold.failure.value)
    return WaitReason(
        code, (name,), hold.reason, hold.until, where=where, variant=variant, error=hold.error
    )


def limit_of_sku(headroom: Headroom, sku: Sku) -> WaitReason | None:
    """Return the limit on machines that allows no further one of a SKU, or None."""
    if headroom.in_sku(sku) <= 0:
        most = sku.max_machines or 0  # without a limit, none is reached
        return WaitReason(WaitCode.MAX_MACHINES, (sku.name,), count=most)
    if headroom.machines <= 0:
        limit = headroom.fleet.catalogue.limits.machines or 0
        return WaitReason(WaitCode.FLEET_MACHINES, count=limit)
    return None


def limit_of_offering(headroom: Headroom, offering: Offering) -> WaitReason | None:
    """Return the quota or the limit on dollars that allows no machine of an offering, or None."""
    quota = offering.quota_key
    if headroom.in_quota(quota) < offering.quota_units:
        limit = headroom.quota_limit(quota)
        variant = "too_small" if limit < offering.quota_units else "used_up"
        variant = variant if limit > 0 else "none"
        return WaitReason(WaitCode.QUOTA, (quota,), count=limit, where=quota, variant=variant)
    if offering.dollars_per_hour > headroom.dollars + ROUNDING:
        dollars = headroom.fleet.catalogue.limits.dollars_per_hour or 0.0
        return WaitReason(WaitCode.FLEET_DOLLARS, count=dollars)
    return None
