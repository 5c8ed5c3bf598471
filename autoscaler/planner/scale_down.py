"""What to give back: ready machines that nobody needs any more, and calls not sent yet.

Only machines that were never handed anything are ended here: that races with nobody.
"""

from dataclasses import dataclass

from autoscaler.model.fleet import Fleet
from autoscaler.model.identifiers import SkuName
from autoscaler.model.launch_requests import LaunchRequest
from autoscaler.model.machines import TerminationReason
from autoscaler.model.plan import CancelLaunchRequest, Launch, Terminate
from autoscaler.planner.matching import Matching, Supply, SupplyKind
from autoscaler.planner.schedule import idle_minimum
from autoscaler.planner.supply import FleetSupply


def minimum_in_force(fleet: Fleet) -> dict[SkuName, int]:
    """The ready minimum of every SKU that has one now."""
    wanted = {s.name: idle_minimum(s.idle, fleet.now) for s in fleet.catalogue.skus.values()}
    return {name: count for name, count in wanted.items() if count > 0}


def idle_machines(fleet: Fleet, matching: Matching, supply: FleetSupply) -> list[Terminate]:
    """Ready machines beyond jobs and minimum that were idle for their SKU's `idle.timeout`.

    The ones ready first: none of them is assigned in the same plan, which takes the ones ready last.
    """
    found = []
    for name, sku in fleet.catalogue.skus.items():
        surplus = _unused(matching, supply, name, SupplyKind.READY)
        for machine in supply.ready[name][: max(0, surplus)]:
            if fleet.now - machine.since < sku.idle.timeout:
                break
            found.append(
                Terminate(machine.id, TerminationReason.IDLE, f"idle for {sku.idle.timeout:g} s")
            )
    return found


@dataclass(frozen=True, slots=True)
class Cutback:
    """A recorded call that is not sent yet, and how many of its slots nobody needs any more."""

    launch_request: LaunchRequest
    drop: int

    def intents(self) -> list[CancelLaunchRequest | Launch]:
        """Withdraw it; what is still needed of it is asked for anew, from the same offerings."""
        launch_request, left = self.launch_request, len(self.launch_request.slots) - self.drop
        reason = f"{self.drop} of {len(launch_request.slots)} are not needed"
        found: list[CancelLaunchRequest | Launch] = [CancelLaunchRequest(launch_request.id, reason)]
        if left:
            found.append(
                Launch(
                    launch_request.sku,
                    launch_request.provider,
                    launch_request.option,
                    launch_request.capacity_type,
                    launch_request.offerings,
                    left,
                )
            )
        return found


def cut_back(matching: Matching, supply: FleetSupply) -> list[Cutback]:
    """Recorded calls whose jobs went away before they were sent, the youngest first.

    The slots that are dropped are taken out of the stock.
    """
    found = []
    for name, calls in sorted(supply.unsent.items()):
        surplus = _unused(matching, supply, name, SupplyKind.UNSENT)
        for launch_request in sorted(calls, key=lambda c: (c.created_at, c.id), reverse=True):
            if surplus <= 0:
                break
            drop = min(surplus, len(launch_request.slots))
            surplus -= drop
            supply.by_pool[Supply(SupplyKind.UNSENT, sku=name)] -= drop
            found.append(Cutback(launch_request, drop))
    return found


def _unused(matching: Matching, supply: FleetSupply, sku: SkuName, kind: SupplyKind) -> int:
    pool = Supply(kind, sku=sku)
    return supply.by_pool[pool] - matching.used[pool]
