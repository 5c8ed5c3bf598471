"""Plans terminations of ready machines that no job needs, and cancellations of unsent launch requests.

Only machines that never got an assignment are terminated here, so no job can start on them meanwhile. A SKU
keeps its minimum of machines ready, or that of a schedule in force: of overlapping schedules, the largest.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from cronsim import CronSim

from autoscaler.model.catalogue import IdlePolicy, ScheduledMinimum
from autoscaler.model.fleet import Fleet
from autoscaler.model.identifiers import Instant, SkuName
from autoscaler.model.machines.launch_requests import LaunchRequest
from autoscaler.model.machines.machine import TerminationReason
from autoscaler.model.plan import CancelLaunchRequest, Launch, Terminate
from autoscaler.model.wording import counted
from autoscaler.planner.matching.maximum import Matching, SupplyKind, pool_of
from autoscaler.planner.matching.supply import FleetSupply


def idle_minimum(policy: IdlePolicy, now: Instant) -> int:
    """Return the ready minimum in force at `now`."""
    if not policy.schedule:
        return policy.minimum
    minute = int(now // 60)
    scheduled = [s.minimum for s in policy.schedule if _in_force(s, minute)]
    return max([policy.minimum, *scheduled])


@lru_cache(maxsize=4096)
def _in_force(scheduled: ScheduledMinimum, minute: int) -> bool:
    zone = ZoneInfo(scheduled.timezone)
    now = datetime.fromtimestamp(minute * 60, tz=UTC)
    # Calculated in UTC, because daylight saving time repeats or skips an hour of the zone.
    start = now - timedelta(seconds=scheduled.duration)
    firing = next(CronSim(scheduled.cron, start.astimezone(zone)), None)
    # For a repeated hour, CronSim returns its first occurrence, which may lie before the start.
    return firing is not None and start < firing.astimezone(UTC) <= now


def minimum_in_force(fleet: Fleet) -> dict[SkuName, int]:
    """Return the ready minimum of every SKU that has one now."""
    wanted = {s.name: idle_minimum(s.idle, fleet.now) for s in fleet.catalogue.skus.values()}
    return {name: count for name, count in wanted.items() if count > 0}


def idle_machines(fleet: Fleet, matching: Matching, supply: FleetSupply) -> list[Terminate]:
    """Return terminations of surplus machines that were idle for their SKU's `idle.timeout`.

    Takes the machines that became ready first. The same plan assigns those that became ready last.
    """
    found = []
    for name, sku in fleet.catalogue.skus.items():
        surplus = _unused(matching, supply, name, SupplyKind.READY)
        for since, machine in supply.ready[name][: max(0, surplus)]:
            if fleet.now - since < sku.idle.timeout:
                break
            found.append(
                Terminate(machine, TerminationReason.IDLE, f"idle for {sku.idle.timeout:g} s")
            )
    return found


@dataclass(frozen=True, slots=True)
class Cutback:
    """A recorded launch request that is not sent yet, and how many of its slots no job needs."""

    launch_request: LaunchRequest
    drop: int

    def intents(self) -> list[CancelLaunchRequest | Launch]:
        """Return a cancellation and, if some machines are still needed, a smaller launch."""
        launch_request, left = self.launch_request, len(self.launch_request.slots) - self.drop
        reason = f"no longer needed: {self.drop} of {counted(len(launch_request.slots), 'machine')}"
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
                    f"instead of {launch_request.id}, which asked for {counted(self.drop, 'machine')} too many",
                )
            )
        return found


def cut_back(matching: Matching, supply: FleetSupply) -> list[Cutback]:
    """Return the recorded requests that more machines were requested with than jobs need, newest first.

    Removes the dropped slots from `supply`.
    """
    found = []
    for name, requests in sorted(supply.unsent.items()):
        surplus = _unused(matching, supply, name, SupplyKind.UNSENT)
        for launch_request in sorted(requests, key=lambda r: (r.created_at, r.id), reverse=True):
            if surplus <= 0:
                break
            drop = min(surplus, len(launch_request.slots))
            surplus -= drop
            supply.by_pool[pool_of(SupplyKind.UNSENT, name)] -= drop
            found.append(Cutback(launch_request, drop))
    return found


def _unused(matching: Matching, supply: FleetSupply, sku: SkuName, kind: SupplyKind) -> int:
    pool = pool_of(kind, sku)
    return supply.by_pool[pool] - matching.used[pool]
