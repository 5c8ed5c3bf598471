"""Turns to register at GitHub: for how many jobs a machine is worth having although minting is limited.

No machine is launched earlier than its turn to register minus its boot time, and turns within a
minute share a call. The limit is a token bucket for each account. Jobs whose turn lies farther
ahead are no demand for machines yet.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import islice

from autoscaler.model.fleet import Fleet
from autoscaler.model.identifiers import Seconds, SkuName
from autoscaler.model.machines import BOOTING_STATES, Machine, MachineState
from autoscaler.planner.matching import Matching, Supply, SupplyKind

SHARED_TURN: Seconds = 60.0
"""Machines with turns this close together share a call: a parked one waits no longer than this."""

DEFAULT_BOOT: Mapping[str, Seconds] = {"linux": 60.0, "windows": 180.0}
"""Assumed until a SKU has been measured."""


@dataclass(slots=True)
class Turns:
    """By account, for how many jobs machines may be there or on their way; and how many are new."""

    fleet: Fleet
    reach: Mapping[str, int]
    taken: Counter[str] = field(default_factory=Counter)

    def allowed(self, account: str, matching: Matching) -> int:
        """How many more machines would find their turn within a minute of being parked."""
        return self.reach[account] - matching.machines[account] - self.taken[account]

    def worth_a_call(self, account: str, wanted: int, allowed: int) -> bool:
        """Whether to launch now, or wait until a minute's worth of turns can share the call."""
        full = max(1, int(self.fleet.catalogue.registration.per_second * SHARED_TURN))
        return allowed + self.taken[account] >= min(wanted, full)


def reach(fleet: Fleet, supply: Mapping[Supply, int]) -> dict[str, int]:
    """By account, how many machines its registrations can use by a minute after the next boot.

    O(classes x SKUs).
    """
    skus: dict[str, set[SkuName]] = {}
    for demand in fleet.queues:
        skus.setdefault(demand.account, set()).update(demand.skus)
    return {account: _reach(fleet, supply, account, names) for account, names in skus.items()}


def _reach(fleet: Fleet, supply: Mapping[Supply, int], account: str, skus: set[SkuName]) -> int:
    rate = fleet.catalogue.registration
    tokens = fleet.registrations[account]
    boot = max(_boot_seconds(fleet, sku) for sku in skus)
    parked = sum(supply.get(Supply(SupplyKind.PARKED, sku=sku), 0) for sku in skus)
    coming = sum(
        supply.get(Supply(kind, sku=sku), 0)
        for sku in skus
        for kind in (SupplyKind.COMING, SupplyKind.UNSENT)
    )
    # For so long will machines be there to register before one that is launched now is parked.
    head_start = boot if parked else min(boot, _age_of_oldest(fleet, skus))
    at_first = min(float(rate.burst), tokens + rate.per_second * (boot - head_start))
    usable = at_first + rate.per_second * head_start
    used = min(float(parked + coming), usable)
    left = min(float(rate.burst), usable - used)
    return int(used + left + rate.per_second * SHARED_TURN)


def _age_of_oldest(fleet: Fleet, skus: set[SkuName]) -> Seconds:
    coming = (
        filter(partial(_may_come, fleet), fleet.machines_in(sku, state))
        for sku in skus
        for state in BOOTING_STATES
    )
    first = [machine.created_at for machines in coming for machine in islice(machines, 1)]
    return max(0.0, fleet.now - min(first)) if first else 0.0


def _may_come(fleet: Fleet, machine: Machine) -> bool:
    call = fleet.calls.get(machine.call) if machine.state is MachineState.REQUESTED else None
    return call is None or not call.is_given_up(fleet.now)


def _boot_seconds(fleet: Fleet, sku: SkuName) -> Seconds:
    return fleet.boot_seconds.get(sku, DEFAULT_BOOT[fleet.catalogue.skus[sku].os])
