"""Turns to register at GitHub: for how many jobs a machine is worth having although registering is limited.

No machine is launched earlier than its turn to register minus its boot time, and turns within a
minute share a call. The limit is a token bucket for each account. Jobs whose turn lies farther
ahead are no demand for machines yet.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from autoscaler.model.fleet import Fleet
from autoscaler.model.identifiers import MachineId, Seconds, SkuName
from autoscaler.model.machines import BOOTING_STATES, Machine, MachineState
from autoscaler.planner.matching import Matching, Supply, SupplyKind

SHARED_TURN: Seconds = 60.0
"""Machines with turns this close together share a call: a ready one waits no longer than this."""

DEFAULT_BOOT: Mapping[str, Seconds] = {"linux": 60.0, "windows": 180.0}
"""Assumed until a SKU has been measured."""


@dataclass(slots=True)
class RegistrationBudget:
    """By account, for how many jobs machines may be there or on their way."""

    fleet: Fleet
    reach: Mapping[str, int]

    def allowed(self, account: str, matching: Matching) -> int:
        """How many more machines would find their turn within a minute of being ready."""
        return self.reach[account] - matching.machines[account]

    def worth_a_call(self, wanted: int, allowed: int) -> bool:
        """Whether to launch now, or wait until a minute's worth of turns can share the call."""
        full = max(1, int(self.fleet.catalogue.registration.per_second * SHARED_TURN))
        return allowed >= min(wanted, full)


def reach(
    fleet: Fleet, supply: Mapping[Supply, int], leaving: Collection[MachineId]
) -> dict[str, int]:
    """By account, how many machines its registrations can use by a minute after the next boot.

    `leaving` are machines that nobody may hope for. O(classes x SKUs + machines that boot).
    """
    skus: dict[str, set[SkuName]] = {}
    for demand in fleet.queues:
        skus.setdefault(demand.account, set()).update(demand.skus)
    return {
        account: _reach(fleet, account, names, _ready(supply, names), leaving)
        for account, names in skus.items()
    }


def _ready(supply: Mapping[Supply, int], skus: set[SkuName]) -> int:
    return sum(supply.get(Supply(SupplyKind.READY, sku=sku), 0) for sku in skus)


def _reach(
    fleet: Fleet, account: str, skus: set[SkuName], ready: int, leaving: Collection[MachineId]
) -> int:
    rate = fleet.catalogue.registration
    boot = max(_boot_seconds(fleet, sku) for sku in skus)
    level, used, waiting, since = fleet.registrations[account], 0.0, ready, 0.0
    for moment in (*_ready_in(fleet, skus, boot, leaving), boot):
        gained = level + rate.per_second * (moment - since)
        taken = min(waiting - used, gained)
        used, level = used + taken, min(float(rate.burst), gained - taken)
        waiting, since = waiting + 1, moment
    return int(used + level + rate.per_second * SHARED_TURN)


def _ready_in(
    fleet: Fleet, skus: set[SkuName], boot: Seconds, leaving: Collection[MachineId]
) -> list[Seconds]:
    """In how many seconds each machine that comes will be ready, if that is before a new one is."""
    ages = (
        fleet.now - machine.created_at
        for sku in skus
        for state in BOOTING_STATES
        for machine in fleet.machines_in(sku, state)
        if machine.id not in leaving and _may_come(fleet, machine)
    )
    return sorted(max(0.0, boot - age) for age in ages if age > 0.0)


def _may_come(fleet: Fleet, machine: Machine) -> bool:
    request = (
        fleet.launch_requests.get(machine.launch_request)
        if machine.state is MachineState.REQUESTED
        else None
    )
    return request is None or not request.is_given_up(fleet.now)


def _boot_seconds(fleet: Fleet, sku: SkuName) -> Seconds:
    return fleet.boot_seconds.get(sku, DEFAULT_BOOT[fleet.catalogue.skus[sku].os])
