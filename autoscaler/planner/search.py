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
from autoscaler.model.identifiers import Instant
from autoscaler.model.operators import (
    WHOLE_FLEET,
    HoldTarget,
    launch_hold,
    provider_target,
    sku_target,
)
from autoscaler.model.waiting import WaitCode, WaitReason
from autoscaler.model.wording import counted
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
                self._add(
                    WaitCode.THROTTLED,
                    f"{option.provider} throttles launches ({throttled.reason})",
                    throttled.until,
                )
                return None
            for placement in self._placements(index, option):
                if self.headroom.takes(placement):
                    return placement
                if self.headroom.fits(placement):
                    # As above; the machines that wait meanwhile share the next request.
                    self.headroom.short_of_tokens.add(option.provider)
                    rate = f"the launch rate of {option.provider} is used up for a moment"
                    self._add(WaitCode.LAUNCH_RATE, rate, self.headroom.next_request_at())
                    return None
        if not self.reasons:
            none = "no provider of the SKU's launch options (`on`) has an offering now"
            self._add(WaitCode.NO_OFFERING, none)
        return None

    def _limit_reached(self) -> WaitReason | None:
        if self.headroom.in_sku(self.sku) <= 0:
            reached = f"max_machines of {self.sku.name} ({self.sku.max_machines}) is reached"
            return WaitReason(WaitCode.MAX_MACHINES, reached)
        if self.headroom.machines <= 0:
            limit = self.fleet.catalogue.limits.machines or 0  # without a limit, none is reached
            reached = f"the fleet's limit of {counted(limit, 'machine')} is reached"
            return WaitReason(WaitCode.FLEET_MACHINES, reached)
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
            opened = f"circuit breaker of launch option {option.provider} open: {blocked}"
            self._add(WaitCode.CIRCUIT_OPEN, opened)
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
            text = f"the provider takes the capacity of {name} back soon"
            self._add(WaitCode.CAPACITY, text)
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
            self._add(WaitCode.QUOTA, f"the quota {quota} is used up")
            return False
        if offering.dollars_per_hour > self.headroom.dollars + ROUNDING:
            limit = self.fleet.catalogue.limits.dollars_per_hour
            reached = f"the fleet's limit of ${limit:g} an hour is reached"
            self._add(WaitCode.FLEET_DOLLARS, reached)
            return False
        return True

    def _is_held(self, target: HoldTarget) -> bool:
        """Return True if an operator paused or drained a target, and add the reason."""
        hold = launch_hold(self.fleet.operator_holds, target)
        if hold is not None:
            name = "the fleet" if target is WHOLE_FLEET else target.name
            until = f"`autoscaler resume {target}` ends this"
            self._add(WaitCode.PAUSED, f"{name} is {hold.reason}; {until}")
        return hold is not None

    def _add_hold(self, name: str, hold: Cooldown) -> None:
        self._add(WaitCode(hold.failure.value), f"{name} is on hold: {hold.reason}", hold.until)

    def _add(self, code: WaitCode, message: str, until: Instant | None = None) -> None:
        reason = WaitReason(code, message, until)
        if reason not in self.reasons:
            self.reasons.append(reason)
