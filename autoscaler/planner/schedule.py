"""How many machines of a SKU are to stand ready at a moment: the minimum and its schedules.

Overlapping schedules: the largest counts.
"""

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from cronsim import CronSim

from autoscaler.model.catalogue import IdlePolicy, ScheduledMinimum
from autoscaler.model.identifiers import Instant


def idle_minimum(policy: IdlePolicy, now: Instant) -> int:
    """The ready minimum in force at `now`."""
    if not policy.schedule:
        return policy.minimum
    minute = int(now // 60)
    scheduled = [s.minimum for s in policy.schedule if _in_force(s, minute)]
    return max([policy.minimum, *scheduled])


@lru_cache(maxsize=4096)
def _in_force(scheduled: ScheduledMinimum, minute: int) -> bool:
    zone = ZoneInfo(scheduled.timezone)
    now = datetime.fromtimestamp(minute * 60, tz=UTC)
    # Reckoned in UTC, for an hour of a zone may come twice or not at all.
    start = now - timedelta(seconds=scheduled.duration)
    firing = next(CronSim(scheduled.cron, start.astimezone(zone)), None)
    # Of an hour that comes twice CronSim names the first, which may lie before the start.
    return firing is not None and start < firing.astimezone(UTC) <= now
