"""The rules for one objective of waiting: recorded shares of late jobs, and alerts on burn rates.

`scale` shortens every window, so that a test sees in minutes what takes hours.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from autoscaler.model.identifiers import Seconds
from autoscaler.model.wait_objectives import WaitObjective
from autoscaler.observability.alerting import DAY, HOUR, MINUTE, Alert, label, quoted, span

_BURN_RATES = (
    (14.4, HOUR, 5 * MINUTE, "page"),
    (6.0, 6 * HOUR, 30 * MINUTE, "page"),
    (1.0, 3 * DAY, 6 * HOUR, "ticket"),
)
"""How many times faster than allowed the error budget of 30 days is used up, in a long and a short window.

The windows and rates are those of Google's "Site Reliability Workbook", chapter 5, table 5-8. Both windows have
to exceed the rate: the long one shows that it matters, the short one that it still goes on.
"""


def _windows() -> list[Seconds]:
    return sorted({window for _, *windows, _ in _BURN_RATES for window in windows})


def recorded_waits(
    objective: WaitObjective, earlier: Sequence[WaitObjective], scale: float
) -> Iterator[dict[str, Any]]:
    """Yield rules that record the share of jobs that started too late, by SKU and window.

    A SKU that one of the `earlier` objectives matches has that one.
    """
    name = "autoscaler_job_queue_duration_seconds"
    others = (f"sku!~{quoted(one.skus)}" for one in earlier)
    chosen = ",".join((f"sku=~{quoted(objective.skus)}", *others))
    for window in _windows():
        within = span(window * scale)
        late = (
            f'sum by (sku) (rate({name}_bucket{{{chosen},le="{objective.seconds:.1f}"}}[{within}]))'
        )
        every = f"sum by (sku) (rate({name}_count{{{chosen}}}[{within}]))"
        yield {
            "record": f"autoscaler:job_wait_late:ratio_{label(window)}",
            "expr": f"1 - {late} / ({every} > 0)",
            "labels": {"objective": objective.name},
        }


def burn_rate_alerts(objective: WaitObjective, scale: float) -> Iterator[Alert]:
    """Yield an alert for each burn rate that can be exceeded: at most all jobs start late."""
    budget = 1.0 - objective.target
    for rate, long, short, severity in _BURN_RATES:
        if rate * budget >= 1.0:
            continue
        bound = f"{rate * budget:.6g}"
        parts = (
            f'autoscaler:job_wait_late:ratio_{label(window)}{{objective="{objective.name}"}} > {bound}'
            for window in (long, short)
        )
        yield Alert(
            "JobsStartLate",
            " and ".join(parts),
            2 * MINUTE,
            severity,
            f"Too many jobs of {{{{ $labels.sku }}}} start later than {objective.seconds} s after they were "
            f"queued: {{{{ $value | humanizePercentage }}}} in {span(long * scale)}.",
            label(long),
        )
