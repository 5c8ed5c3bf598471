"""How many machines of a SKU to keep ready: its minimum and its schedules.

Of overlapping schedules the largest counts.
"""

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from cronsim import CronSim

from autoscaler.model.catalogue import IdlePolicy, ScheduledMinimum
from autoscaler.model.identifiers import Instant


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
