"""An alert, texts of PromQL, and the rules for one objective of waiting.

`scale` shortens every window, so that a test sees in minutes what takes hours.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from autoscaler.model.identifiers import Seconds
from autoscaler.model.reasons.entry import Runbook, Severity
from autoscaler.model.wait_objectives import WaitObjective

MINUTE: Seconds = 60.0
HOUR: Seconds = 3600.0
DAY: Seconds = 86_400.0


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert: it fires if `expression` has held for `after`. Its runbook has its name and severity."""

    runbook: Runbook
    expression: str
    after: Seconds
    summary: str
    window: str = ""
    """The long window of a burn rate, which distinguishes the alerts of one objective."""


def quoted(text: str) -> str:
    """Return text as a string of PromQL."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def label(seconds: Seconds) -> str:
    """Return a window as part of a name, such as `5m`, `6h` or `3d`."""
    for unit, name in ((DAY, "d"), (HOUR, "h"), (MINUTE, "m")):
        if seconds % unit == 0:
            return f"{seconds / unit:g}{name}"
    return f"{seconds:g}s"


def span(seconds: Seconds) -> str:
    """Return a time span as Prometheus reads it."""
    if seconds and seconds % MINUTE == 0:
        return label(seconds)
    return f"{max(0, round(seconds))}s"


def increased(counter: str, by: str, window: str, bound: str) -> str:
    """Return a comparison of a counter's increase.

    A series of a counter begins at its first event, and `increase` does not see the step from nothing to one.
    """
    return (
        f"sum by ({by}) ({counter} unless {counter} offset {window} "
        f"or increase({counter}[{window}])) {bound}"
    )


_BURN_RATES = (
    (14.4, HOUR, 5 * MINUTE, Severity.PAGE),
    (6.0, 6 * HOUR, 30 * MINUTE, Severity.PAGE),
    (1.0, 3 * DAY, 6 * HOUR, Severity.TICKET),
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
    name, chosen = "autoscaler_job_queue_duration_seconds", _skus(objective, earlier)
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


def _skus(objective: WaitObjective, earlier: Sequence[WaitObjective]) -> str:
    """Return the matchers of the SKUs that have this objective, and none of the earlier ones."""
    others = (f"sku!~{quoted(one.skus)}" for one in earlier)
    return ",".join((f"sku=~{quoted(objective.skus)}", *others))


def none_starts_alert(
    objective: WaitObjective, earlier: Sequence[WaitObjective], scale: float
) -> Alert:
    """Return the alert for jobs that are overdue while none starts. Of such jobs no share starts late."""
    chosen = _skus(objective, earlier)
    oldest = f"max by (sku) (autoscaler_oldest_waiting_job_age_seconds{{{chosen}}})"
    counter = f"autoscaler_job_queue_duration_seconds_count{{{chosen}}}"
    started = f"sum by (sku) (increase({counter}[{span(objective.seconds * scale)}]))"
    return Alert(
        Runbook("JobsStartLate", Severity.PAGE),
        f"{oldest} > {objective.seconds} unless on (sku) {started} > 0",
        2 * MINUTE,
        f"Jobs of {{{{ $labels.sku }}}} wait for longer than {objective.seconds} s, and none has started for "
        "as long: {{ $value | humanizeDuration }}.",
    )


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
            Runbook("JobsStartLate", severity),
            " and ".join(parts),
            2 * MINUTE,
            f"Too many jobs of {{{{ $labels.sku }}}} start later than {objective.seconds} s after they were "
            f"queued: {{{{ $value | humanizePercentage }}}} in {span(long * scale)}.",
            label(long),
        )
