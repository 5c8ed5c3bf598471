"""What the fleet's machines cost now, by SKU and by what the machines do."""

from collections.abc import Iterable
from dataclasses import dataclass

from autoscaler.model.catalogue import CapacityType
from autoscaler.model.fleet import Fleet
from autoscaler.model.machines import BOOTING_STATES, Machine, MachineState


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


@dataclass(frozen=True, slots=True)
class CostView:
    """Costs by SKU, the most expensive first. `dollars_per_hour` has spot machines at their present prices."""

    skus: tuple[SkuCost, ...]
    dollars_per_hour: float
    dollars_limit: float | None


def cost(fleet: Fleet, dollars_per_hour: float) -> CostView:
    """Return what the machines that exist cost. O(machines)."""
    by_sku: dict[str, list[Machine]] = {}
    for machine in fleet.machines.values():
        if machine.occupies and machine.placement.provider_id is not None:
            by_sku.setdefault(machine.sku, []).append(machine)
    skus = [_sku(sku, machines) for sku, machines in by_sku.items()]
    return CostView(
        tuple(sorted(skus, key=lambda one: (-one.dollars_per_hour, one.sku))),
        dollars_per_hour,
        fleet.catalogue.limits.dollars_per_hour,
    )


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
