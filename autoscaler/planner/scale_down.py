"""What to give back: parked machines that nobody needs any more, and calls not sent yet.

Only machines that were never handed anything are ended here: that races with nobody.
"""

from dataclasses import dataclass

from autoscaler.model.calls import Call
from autoscaler.model.fleet import Fleet
from autoscaler.model.identifiers import SkuName
from autoscaler.model.machines import EndGround
from autoscaler.model.plan import End, Launch, WithdrawCall
from autoscaler.planner.matching import Matching, Supply, SupplyKind
from autoscaler.planner.schedule import parked_minimum
from autoscaler.planner.supply import Stock


def minimum_in_force(fleet: Fleet) -> dict[SkuName, int]:
    """The parked minimum of every SKU that has one now."""
    wanted = {s.name: parked_minimum(s.idle, fleet.now) for s in fleet.catalogue.skus.values()}
    return {name: count for name, count in wanted.items() if count > 0}


def idle_machines(fleet: Fleet, matching: Matching, stock: Stock) -> list[End]:
    """Parked machines beyond jobs and minimum that were idle for their SKU's `idle.timeout`.

    The ones parked first: none of them is granted in the same plan, which takes the ones parked last.
    """
    found = []
    for name, sku in fleet.catalogue.skus.items():
        surplus = _unused(matching, stock, name, SupplyKind.PARKED)
        for machine in stock.parked[name][: max(0, surplus)]:
            if fleet.now - machine.since < sku.idle.timeout:
                break
            found.append(End(machine.id, EndGround.IDLE, f"idle for {sku.idle.timeout:g} s"))
    return found


@dataclass(frozen=True, slots=True)
class Cutback:
    """A recorded call that is not sent yet, and how many of its slots nobody needs any more."""

    call: Call
    drop: int

    def intents(self) -> list[WithdrawCall | Launch]:
        """Withdraw it; what is still needed of it is asked for anew, from the same offerings."""
        call, left = self.call, len(self.call.slots) - self.drop
        reason = f"{self.drop} of {len(call.slots)} are not needed"
        found: list[WithdrawCall | Launch] = [WithdrawCall(call.id, reason)]
        if left:
            found.append(
                Launch(call.sku, call.provider, call.rung, call.capacity_type, call.offerings, left)
            )
        return found


def cut_back(matching: Matching, stock: Stock) -> list[Cutback]:
    """Recorded calls whose jobs went away before they were sent, the youngest first.

    The slots that are dropped are taken out of the stock.
    """
    found = []
    for name, calls in sorted(stock.unsent.items()):
        surplus = _unused(matching, stock, name, SupplyKind.UNSENT)
        for call in sorted(calls, key=lambda c: (c.created_at, c.id), reverse=True):
            if surplus <= 0:
                break
            drop = min(surplus, len(call.slots))
            surplus -= drop
            stock.supply[Supply(SupplyKind.UNSENT, sku=name)] -= drop
            found.append(Cutback(call, drop))
    return found


def _unused(matching: Matching, stock: Stock, sku: SkuName, kind: SupplyKind) -> int:
    pool = Supply(kind, sku=sku)
    return stock.supply[pool] - matching.used[pool]
