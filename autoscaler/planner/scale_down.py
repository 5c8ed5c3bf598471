"""What to give back: parked machines that nobody needs any more, and calls not sent yet.

Only machines that were never handed anything are ended here: that races with nobody.
"""

from autoscaler.model.fleet import Fleet
from autoscaler.model.identifiers import MachineId, SkuName
from autoscaler.model.machines import EndGround
from autoscaler.model.plan import End, Launch, WithdrawCall
from autoscaler.planner.matching import Matching, Supply, SupplyKind
from autoscaler.planner.schedule import parked_minimum
from autoscaler.planner.supply import Stock


def missing_minimum(fleet: Fleet, matching: Matching, stock: Stock) -> dict[SkuName, int]:
    """How many machines each SKU lacks to its parked minimum, beyond what jobs need."""
    missing = {}
    for name, sku in fleet.catalogue.skus.items():
        spare = sum(_spare(matching, stock, name, kind) for kind in _MACHINES)
        missing[name] = max(0, parked_minimum(sku.idle, fleet.now) - spare)
    return missing


def idle_machines(
    fleet: Fleet, matching: Matching, stock: Stock, granted: set[MachineId]
) -> list[End]:
    """Parked machines beyond jobs and minimum that were idle for their SKU's `idle.timeout`."""
    found = []
    for name, sku in fleet.catalogue.skus.items():
        surplus = _spare(matching, stock, name, SupplyKind.PARKED)
        surplus -= parked_minimum(sku.idle, fleet.now)
        for machine in stock.parked.get(name, ()):
            if surplus <= 0 or fleet.now - machine.since < sku.idle.timeout:
                break
            if machine.id in granted:
                continue
            surplus -= 1
            found.append(End(machine.id, EndGround.IDLE, f"idle for {sku.idle.timeout:g} s"))
    return found


def unneeded_calls(fleet: Fleet, matching: Matching, stock: Stock) -> list[WithdrawCall | Launch]:
    """Recorded calls, or parts of them, whose jobs went away before they were sent.

    A call that is still needed in part is withdrawn and planned anew with fewer slots.
    """
    found: list[WithdrawCall | Launch] = []
    for name, calls in sorted(stock.unsent.items()):
        surplus = _surplus_unsent(fleet, matching, stock, name)
        for call in sorted(calls, key=lambda c: (c.created_at, c.id), reverse=True):
            if surplus <= 0:
                break
            drop = min(surplus, len(call.slots))
            surplus -= drop
            found.append(WithdrawCall(call.id, f"{drop} of {len(call.slots)} are not needed"))
            left = len(call.slots) - drop
            if left:
                found.append(
                    Launch(name, call.provider, call.rung, call.capacity_type, call.offerings, left)
                )
    return found


_MACHINES = (SupplyKind.PARKED, SupplyKind.COMING, SupplyKind.UNSENT)


def _spare(matching: Matching, stock: Stock, sku: SkuName, kind: SupplyKind) -> int:
    pool = Supply(kind, sku=sku)
    return stock.supply[pool] - matching.used[pool]


def _surplus_unsent(fleet: Fleet, matching: Matching, stock: Stock, sku: SkuName) -> int:
    kept = parked_minimum(fleet.catalogue.skus[sku].idle, fleet.now)
    for kind in (SupplyKind.PARKED, SupplyKind.COMING):
        kept -= _spare(matching, stock, sku, kind)
    return _spare(matching, stock, sku, SupplyKind.UNSENT) - max(0, kept)
