"""What the fleet's machines cost now, by SKU and by what the machines do."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from autoscaler.model.accounting import MachineUse
from autoscaler.model.catalogue import CapacityType
from autoscaler.model.fleet import Fleet
from autoscaler.model.machines.machine import BOOTING_STATES, Machine, MachineState


@dataclass(frozen=True, slots=True)
class SkuCost:
    """The machines of a SKU and their dollars an hour, at the prices that count against the limits.

    `working` is for machines with an assignment, `ready` for those that wait for a job, `booting` for those
    that are launched, and `ending` for those that exited, failed or are being terminated. `machines` counts all
    of them, and `spot_machines` those that are spot.
    """

    sku: str
    machines: int
    spot_machines: int
    working: float
    ready: float
    booting: float
    ending: float

    @property
    def dollars_per_hour(self) -> float:
        """Return the dollars an hour of all machines."""
        return self.working + self.ready + self.booting + self.ending


Spent = Mapping[tuple[str, MachineUse], float]
"""Dollars since the controller's start, by SKU and what they bought."""


@dataclass(frozen=True, slots=True)
class SkuSpent:
    """The dollars that a SKU's machines cost since the controller's start, by what they bought."""

    sku: str
    by_use: Mapping[MachineUse, float]

    @property
    def dollars(self) -> float:
        """Return the sum of all uses."""
        return sum(self.by_use.values())


@dataclass(frozen=True, slots=True)
class CostView:
    """Costs by SKU, the most expensive first. `dollars_per_hour` has spot machines at their present prices.

    `spent` is by SKU, too. It has the machines whose use has ended.
    """

    skus: tuple[SkuCost, ...]
    dollars_per_hour: float
    dollars_limit: float | None
    spent: tuple[SkuSpent, ...] = ()


def cost(fleet: Fleet, dollars_per_hour: float, spent: Spent) -> CostView:
    """Return what the machines that exist cost, and what was spent. O(machines)."""
    by_sku: dict[str, list[Machine]] = {}
    for machine in fleet.machines.values():
        if machine.occupies and machine.placement.provider_id is not None:
            by_sku.setdefault(machine.sku, []).append(machine)
    skus = [_sku(sku, machines) for sku, machines in by_sku.items()]
    return CostView(
        tuple(sorted(skus, key=lambda one: (-one.dollars_per_hour, one.sku))),
        dollars_per_hour,
        fleet.catalogue.limits.dollars_per_hour,
        _by_sku(spent),
    )


def _by_sku(spent: Spent) -> tuple[SkuSpent, ...]:
    by_sku: dict[str, dict[MachineUse, float]] = {}
    for (sku, use), dollars in spent.items():
        by_sku.setdefault(sku, dict.fromkeys(MachineUse, 0.0))[use] += dollars
    found = (SkuSpent(sku, by_use) for sku, by_use in by_sku.items())
    return tuple(sorted(found, key=lambda one: (-one.dollars, one.sku)))


def _sku(sku: str, machines: Iterable[Machine]) -> SkuCost:
    dollars = {"working": 0.0, "ready": 0.0, "booting": 0.0, "ending": 0.0}
    count = spot = 0
    for machine in machines:
        count += 1
        spot += machine.placement.capacity_type == CapacityType.SPOT
        dollars[_bought(machine.state)] += machine.placement.dollars_per_hour
    return SkuCost(sku, count, spot, **dollars)


def _bought(state: MachineState) -> str:
    if state in BOOTING_STATES:
        return "booting"
    if state is MachineState.READY:
        return "ready"
    return "working" if state is MachineState.ASSIGNED else "ending"
