"""How many machines an account can use, given GitHub's rate limit for registrations.

A machine that becomes ready long before its runner can register is paid for nothing. The planner
therefore launches only as many machines as can register within a minute of being ready. The limit is a
token bucket for each account. Further jobs get their machines later.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from autoscaler.model.fleet import Fleet
from autoscaler.model.identifiers import MachineId, Seconds, SkuName
from autoscaler.model.machines import BOOTING_STATES, Machine, MachineState
from autoscaler.planner.matching import Matching, Supply, SupplyKind

MAX_READY_WAIT: Seconds = 60.0
"""Longest that a ready machine waits to register. Machines that register this close share a request."""

DEFAULT_BOOT: Mapping[str, Seconds] = {"linux": 60.0, "windows": 180.0}
"""Boot time by operating system, assumed until a SKU's boots have been measured."""


@dataclass(slots=True)
class RegistrationBudget:
    """By account, the number of jobs that may have a machine now or on its way."""

    fleet: Fleet
    registrable: Mapping[str, int]

    def allowed(self, account: str, matching: Matching) -> int:
        """Return how many more machines could register within a minute of being ready."""
        return self.registrable[account] - matching.machines[account]

    def worth_a_request(self, wanted: int, allowed: int) -> bool:
        """Return whether to launch now, instead of waiting until more machines share the request."""
        batch = max(1, int(self.fleet.catalogue.registration.per_second * MAX_READY_WAIT))
        return allowed >= min(wanted, batch)


def registrable_machines(
    fleet: Fleet, supply: Mapping[Supply, int], leaving: Collection[MachineId]
) -> dict[str, int]:
    """Return by account how many machines can register until a minute after the next boot.

    `leaving` are machines that this plan no longer counts as supply. O(classes x SKUs + booting machines).
    """
    skus: dict[str, set[SkuName]] = {}
    for demand in fleet.queues:
        skus.setdefault(demand.account, set()).update(demand.skus)
    return {
        account: _registrable(fleet, account, names, _ready(supply, names), leaving)
        for account, names in skus.items()
    }


def _ready(supply: Mapping[Supply, int], skus: set[SkuName]) -> int:
    return sum(supply.get(Supply(SupplyKind.READY, sku=sku), 0) for sku in skus)


def _registrable(
    fleet: Fleet, account: str, skus: set[SkuName], ready: int, leaving: Collection[MachineId]
) -> int:
    """Simulate the token bucket until a machine launched now would be ready."""
    rate = fleet.catalogue.registration
    boot = max(_boot_seconds(fleet, sku) for sku in skus)
    level, used, waiting, since = fleet.registrations[account], 0.0, ready, 0.0
    for moment in (*_ready_in(fleet, skus, boot, leaving), boot):
        gained = level + rate.per_second * (moment - since)
        taken = min(waiting - used, gained)
        used, level = used + taken, min(float(rate.burst), gained - taken)
        waiting, since = waiting + 1, moment
    return int(used + level + rate.per_second * MAX_READY_WAIT)


def _ready_in(
    fleet: Fleet, skus: set[SkuName], boot: Seconds, leaving: Collection[MachineId]
) -> list[Seconds]:
    """Return, sorted, in how many seconds each machine launched before now will be ready."""
    ages = (
        fleet.now - machine.created_at
        for sku in skus
        for state in BOOTING_STATES
        for machine in fleet.machines_in(sku, state)
        if machine.id not in leaving and _is_expected(fleet, machine)
    )
    return sorted(max(0.0, boot - age) for age in ages if age > 0.0)


def _is_expected(fleet: Fleet, machine: Machine) -> bool:
    """Return False for a slot whose launch request is no longer retried."""
    request = (
        fleet.launch_requests.get(machine.launch_request)
        if machine.state is MachineState.REQUESTED
        else None
    )
    return request is None or not request.is_given_up(fleet.now)


def _boot_seconds(fleet: Fleet, sku: SkuName) -> Seconds:
    return fleet.boot_seconds.get(sku, DEFAULT_BOOT[fleet.catalogue.skus[sku].os])
