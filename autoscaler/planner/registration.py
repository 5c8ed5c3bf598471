"""Turns to register at GitHub: when a machine is worth launching although minting is limited.

No machine is launched earlier than its turn to register minus its boot time, and turns within a
minute share a call. The limit is a token bucket for each account.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from autoscaler.model.fleet import Fleet
from autoscaler.model.identifiers import Instant, Seconds, SkuName
from autoscaler.model.machines import MachineState
from autoscaler.planner.matching import Matching, SupplyKind

SHARED_TURN: Seconds = 60.0
"""Machines whose turns lie this close together are asked for in one call, and wait this long at most."""

DEFAULT_BOOT: Mapping[str, Seconds] = {"linux": 60.0, "windows": 180.0}
"""Assumed until a SKU has been measured."""


@dataclass(slots=True)
class Pipeline:
    """What is on its way to an account's registrations: parked ones, and the oldest booting one."""

    parked: int = 0
    coming: int = 0
    oldest: Instant | None = None


@dataclass(slots=True)
class Turns:
    """How many machines may still be launched for each account's registrations."""

    fleet: Fleet
    pipelines: dict[str, Pipeline] = field(default_factory=dict)
    taken: Counter[str] = field(default_factory=Counter)

    def allowed(self, account: str, sku: SkuName) -> int:
        """How many machines of this SKU would find their turn within a minute of being parked."""
        rate = self.fleet.catalogue.registration
        pipeline = self.pipelines.get(account, Pipeline())
        boot = self._boot_seconds(sku)
        waiting = pipeline.parked + pipeline.coming
        tokens = self.fleet.registrations.get(account, float(rate.burst))
        reach = tokens + rate.per_second * self._draining(pipeline, boot)
        drained = min(float(waiting), reach)
        left = min(float(rate.burst), tokens + rate.per_second * boot - drained)
        ahead = waiting - drained
        return max(0, int(left + rate.per_second * SHARED_TURN - ahead) - self.taken[account])

    def worth_a_call(self, account: str, wanted: int, allowed: int) -> bool:
        """Whether to launch now, or wait until a minute's worth of turns can share the call."""
        full = max(1, int(self.fleet.catalogue.registration.per_second * SHARED_TURN))
        return allowed + self.taken[account] >= min(wanted, full)

    def _draining(self, pipeline: Pipeline, boot: Seconds) -> Seconds:
        if pipeline.parked:
            return boot
        if pipeline.oldest is None:
            return 0.0
        return min(boot, max(0.0, self.fleet.now - pipeline.oldest))

    def _boot_seconds(self, sku: SkuName) -> Seconds:
        return self.fleet.boot_seconds.get(sku, DEFAULT_BOOT[self.fleet.catalogue.skus[sku].os])


def take_turns(fleet: Fleet, matching: Matching) -> Turns:
    """Count what is on its way already, by account. O(classes x pools)."""
    turns = Turns(fleet)
    for (demand, pool), count in matching.flow.items():
        if count <= 0 or pool.sku is None or demand not in fleet.queues:
            continue
        pipeline = turns.pipelines.setdefault(demand.account, Pipeline())
        if pool.kind is SupplyKind.PARKED:
            pipeline.parked += count
        else:
            pipeline.coming += count
            oldest = _oldest_coming(fleet, pool.sku)
            if oldest is not None:
                pipeline.oldest = min(pipeline.oldest or oldest, oldest)
    return turns


def _oldest_coming(fleet: Fleet, sku: SkuName) -> Instant | None:
    first = [
        machines[0].created_at
        for state in (MachineState.REQUESTED, MachineState.LAUNCHED, MachineState.BOOTED)
        if (machines := fleet.machines_in(sku, state))
    ]
    return min(first, default=None)
