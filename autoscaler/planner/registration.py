"""How many machines an account can use, given GitHub's rate limit for registrations.

A machine that becomes ready long before its runner can register is paid for nothing. The planner
therefore launches only as many machines as can register within a minute of being ready. The limit is a
token bucket for each account. Further jobs get their machines later.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from autoscaler.model.fleet import Fleet
from autoscaler.model.identifiers import Instant, MachineId, Seconds, SkuName
from autoscaler.model.machines.machine import BOOTING_STATES, Machine, MachineState
from autoscaler.planner.matching.maximum import Matching, Supply, SupplyKind, pool_of

MAX_READY_WAIT: Seconds = 60.0
"""Longest that a ready machine waits to register. Machines that register this close share a request."""

DEFAULT_BOOT: Mapping[str, Seconds] = {"linux": 60.0, "windows": 180.0}
"""Boot time by operating system, assumed until a SKU's boots have been measured."""


@dataclass(slots=True)
class RegistrationBudget:
    """Limits machines to those that can register soon after they are ready, for one plan.

    `registrable` is by account: the number of its machines, ready, booting or requested, that can register
    by one minute after a machine launched now would be ready.
    """

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

    `leaving` are machines that this plan no longer counts as supply. O(classes x SKUs + open launch
    requests + moments at which booting machines were requested).
    """
    skus: dict[str, set[SkuName]] = {}
    for demand in fleet.queues:
        skus.setdefault(demand.account, set()).update(demand.skus)
    return {
        account: _registrable(fleet, account, names, _ready(supply, names), leaving)
        for account, names in skus.items()
    }


def _ready(supply: Mapping[Supply, int], skus: set[SkuName]) -> int:
    return sum(supply.get(pool_of(SupplyKind.READY, sku), 0) for sku in skus)


def _registrable(
    fleet: Fleet, account: str, skus: set[SkuName], ready: int, leaving: Collection[MachineId]
) -> int:
    """Simulate the token bucket until a machine launched now would be ready."""
    rate = fleet.catalogue.registration
    boot = max(boot_seconds(fleet, sku) for sku in skus)
    level, used, waiting, since = fleet.registrations[account], 0.0, ready, 0.0
    booting = _ready_in(fleet, skus, boot, leaving)
    for moment, count in (*sorted(booting.items()), (boot, 0)):
        gained = level + rate.per_second * (moment - since)
        taken = min(waiting - used, gained)
        used, level = used + taken, min(float(rate.burst), gained - taken)
        waiting, since = waiting + count, moment
    return int(used + level + rate.per_second * MAX_READY_WAIT)


def _ready_in(
    fleet: Fleet, skus: set[SkuName], boot: Seconds, leaving: Collection[MachineId]
) -> Counter[Seconds]:
    """Return in how many seconds how many of the machines launched before now will be ready."""
    found: Counter[Seconds] = Counter()
    for created_at, count in expected_boots(fleet, skus, leaving).items():
        if created_at < fleet.now:
            found[max(0.0, boot - (fleet.now - created_at))] += count
    return found


def expected_boots(
    fleet: Fleet, skus: set[SkuName], leaving: Collection[MachineId]
) -> Counter[Instant]:
    """Return how many machines boot that count as supply, by when each was requested."""
    found: Counter[Instant] = Counter()
    for sku in skus:
        found.update(fleet.boots.get(sku, {}))
    found.subtract(machine.created_at for machine in _unexpected(fleet, skus, leaving))
    return +found


def _unexpected(
    fleet: Fleet, skus: set[SkuName], leaving: Collection[MachineId]
) -> Iterator[Machine]:
    """Yield leaving machines that boot, and slots whose launch request is no longer retried."""
    for machine in map(fleet.machines.__getitem__, leaving):
        if machine.sku in skus and machine.state in BOOTING_STATES:
            yield machine
    for request in fleet.launch_requests.values():
        if request.sku not in skus or not request.is_given_up(fleet.now):
            continue
        for slot in request.slots:
            found = fleet.machines.get(slot)
            if found and found.state is MachineState.REQUESTED and slot not in leaving:
                yield found


def boot_seconds(fleet: Fleet, sku: SkuName) -> Seconds:
    """Return the average time from the request of a machine of a SKU to `ready`."""
    return fleet.boot_seconds.get(sku, DEFAULT_BOOT[fleet.catalogue.skus[sku].os])
