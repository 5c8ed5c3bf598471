"""Prometheus' alerting rules for a fleet, from a few parameters.

`autoscaler alerts` prints them, and deploy/prometheus/alerts.yaml has them with the defaults. Every alert has a
page in docs/runbooks/.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from autoscaler.model.identifiers import Seconds
from autoscaler.observability.wait_objectives import UnusableAlertError, WaitObjective

RUNBOOKS = "docs/runbooks"

MINUTE: Seconds = 60.0
HOUR: Seconds = 3600.0
DAY: Seconds = 86_400.0

_BURN_RATES = (
    (14.4, HOUR, 5 * MINUTE, "page"),
    (6.0, 6 * HOUR, 30 * MINUTE, "page"),
    (1.0, 3 * DAY, 6 * HOUR, "ticket"),
)
"""How many times faster than allowed the error budget of 30 days is used up, in a long and a short window.

The windows and rates are those of Google's "Site Reliability Workbook", chapter 5, table 5-8. Both windows have
to exceed the rate: the long one shows that it matters, the short one that it still goes on.
"""


@dataclass(frozen=True, slots=True)
class AlertParameters:
    """What a fleet's operators choose.

    `scale` shortens every window and delay, so that a test sees in minutes what takes hours. `dollars_per_hour`
    is the cost above which to alert; None for no alert. `runbooks` is the URL of a copy of docs/runbooks.
    """

    objectives: tuple[WaitObjective, ...] = field(default_factory=lambda: (WaitObjective(),))
    dollars_per_hour: float | None = None
    runbooks: str = RUNBOOKS
    scale: float = 1.0

    def __post_init__(self) -> None:
        """Raise UnusableAlertError for a cost that is no amount of dollars."""
        if self.dollars_per_hour is not None and not 0.0 <= self.dollars_per_hour < math.inf:
            raise UnusableAlertError(
                f"{self.dollars_per_hour:g} is not an amount of dollars, such as 50"
            )


@dataclass(frozen=True, slots=True)
class _Alert:
    name: str
    expression: str
    after: Seconds
    severity: str
    summary: str
    window: str = ""
    """The long window of a burn rate, which distinguishes the alerts of one objective."""


def alert_rules(parameters: AlertParameters) -> dict[str, Any]:
    """Return the content of a rules file of Prometheus."""
    recorded = [
        rule for objective in parameters.objectives for rule in _recorded(parameters, objective)
    ]
    burning = [
        _rule(parameters, alert)
        for objective in parameters.objectives
        for alert in _burning(parameters, objective)
    ]
    others = [_rule(parameters, alert) for alert in _others(parameters)]
    return {
        "groups": [
            {"name": "autoscaler-wait", "rules": [*recorded, *burning]},
            {"name": "autoscaler", "rules": others},
        ]
    }


def _rule(parameters: AlertParameters, alert: _Alert) -> dict[str, Any]:
    return {
        "alert": alert.name,
        "expr": alert.expression,
        "for": _span(alert.after * parameters.scale),
        "labels": {"severity": alert.severity} | ({"window": alert.window} if alert.window else {}),
        "annotations": {
            "summary": alert.summary,
            "runbook_url": f"{parameters.runbooks}/{alert.name}.md",
        },
    }


def _windows() -> list[Seconds]:
    return sorted({window for _, *windows, _ in _BURN_RATES for window in windows})


def _recorded(parameters: AlertParameters, objective: WaitObjective) -> Iterator[dict[str, Any]]:
    """Yield rules that record the share of jobs that started too late, by SKU and window."""
    name = "autoscaler_job_queue_duration_seconds"
    for window in _windows():
        span = _span(window * parameters.scale)
        chosen = f"sku=~{_quoted(objective.skus)}"
        late = (
            f'sum by (sku) (rate({name}_bucket{{{chosen},le="{objective.seconds:.1f}"}}[{span}]))'
        )
        every = f"sum by (sku) (rate({name}_count{{{chosen}}}[{span}]))"
        yield {
            "record": f"autoscaler:job_wait_late:ratio_{_label(window)}",
            "expr": f"1 - {late} / ({every} > 0)",
            "labels": {"objective": objective.name},
        }


def _burning(parameters: AlertParameters, objective: WaitObjective) -> Iterator[_Alert]:
    """Yield an alert for each burn rate that can be exceeded: at most all jobs start late."""
    budget = 1.0 - objective.target
    for rate, long, short, severity in _BURN_RATES:
        if rate * budget >= 1.0:
            continue
        bound = f"{rate * budget:.6g}"
        parts = (
            f'autoscaler:job_wait_late:ratio_{_label(window)}{{objective="{objective.name}"}} > {bound}'
            for window in (long, short)
        )
        yield _Alert(
            "JobsStartLate",
            " and ".join(parts),
            2 * MINUTE,
            severity,
            f"Too many jobs of {{{{ $labels.sku }}}} start later than {objective.seconds} s after they were "
            f"queued: {{{{ $value | humanizePercentage }}}} in {_span(long * parameters.scale)}.",
            _label(long),
        )


def _others(parameters: AlertParameters) -> Iterator[_Alert]:
    yield from _waits()
    yield from _launches(parameters)
    yield from _machines()
    yield from _process(parameters)
    if parameters.dollars_per_hour is not None:
        yield _Alert(
            "CostOverBudget",
            f"autoscaler_cost_dollars_per_hour > {parameters.dollars_per_hour:g}",
            30 * MINUTE,
            "ticket",
            "The fleet costs {{ $value }} dollars an hour.",
        )


def _waits() -> Iterator[_Alert]:
    waiting = 'sum by (sku, reason) (autoscaler_jobs_waiting_by_reason{{reason=~"{}"}}) > 0'
    yield _Alert(
        "OutOfCapacity",
        waiting.format("capacity|unsupported"),
        15 * MINUTE,
        "page",
        "Jobs of {{ $labels.sku }} wait, because no provider has capacity for it.",
    )
    yield _Alert(
        "LimitReached",
        waiting.format(
            "max_machines|fleet_machines|fleet_dollars|quota|throttled|launch_rate|registration_rate"
        ),
        30 * MINUTE,
        "ticket",
        "Jobs of {{ $labels.sku }} wait, because a limit is reached: {{ $labels.reason }}.",
    )
    yield _Alert(
        "LaunchesRefused",
        waiting.format("configuration|unknown|no_offering"),
        10 * MINUTE,
        "page",
        "Jobs of {{ $labels.sku }} wait, because its machines cannot be launched: {{ $labels.reason }}.",
    )
    yield _Alert(
        "MachinesNotReady",
        waiting.format("boot_deadline|health_check"),
        15 * MINUTE,
        "page",
        "Jobs of {{ $labels.sku }} wait, because its last machines did not become ready: {{ $labels.reason }}.",
    )
    yield _Alert(
        "RegistrationsRefused",
        waiting.format("registration_on_hold|not_assigned"),
        10 * MINUTE,
        "page",
        "Jobs of {{ $labels.sku }} wait, because GitHub gives no runner: {{ $labels.reason }}.",
    )
    yield _Alert(
        "JobWaitsForHours",
        "max by (sku) (autoscaler_oldest_waiting_job_age_seconds) > 7200",
        5 * MINUTE,
        "page",
        "A job of {{ $labels.sku }} has waited for {{ $value | humanizeDuration }}.",
    )


def _launches(parameters: AlertParameters) -> Iterator[_Alert]:
    half_hour = _span(30 * MINUTE * parameters.scale)
    refused = 'autoscaler_runner_exits_total{reason="version_deprecated"}'
    yield _Alert(
        "CircuitBreakerOpen",
        "max by (sku) (autoscaler_sku_circuit_open) > 0",
        30 * MINUTE,
        "page",
        "{{ $labels.sku }} launches one machine at a time, because its last machines failed.",
    )
    yield _Alert(
        "HealthChecksFail",
        f"sum by (sku, check) (increase(autoscaler_health_checks_failed_total[{half_hour}])) >= 3",
        0.0,
        "page",
        "Machines of {{ $labels.sku }} fail their health check {{ $labels.check }}.",
    )
    yield _Alert(
        "RunnerVersionRefused",
        f"sum by (sku) (increase({refused}[{half_hour}])) > 0",
        0.0,
        "page",
        "GitHub refuses the version of actions/runner in the image of {{ $labels.sku }}.",
    )


def _machines() -> Iterator[_Alert]:
    yield _Alert(
        "MachinesDoNotTerminate",
        "autoscaler_machines_not_terminating > 0",
        10 * MINUTE,
        "ticket",
        "{{ $value }} machines still exist after three requests to terminate them, and cost money.",
    )
    yield _Alert(
        "MachinesUnverified",
        "autoscaler_machines_unverified + autoscaler_machines_foreign > 0",
        DAY,
        "ticket",
        "{{ $value }} machines count in the limits, and only an operator can decide about them.",
    )
    yield _Alert(
        "RunnerGroupTooWide",
        "max by (account, runner_group, reason) (autoscaler_runner_group_too_wide) > 0",
        HOUR,
        "ticket",
        "The runner group {{ $labels.runner_group }} of {{ $labels.account }} admits more than access does.",
    )


def _process(parameters: AlertParameters) -> Iterator[_Alert]:
    half_hour = _span(30 * MINUTE * parameters.scale)
    accepted = 'autoscaler_deliveries_total{answer=~"accepted|duplicate|ignored"}'
    yield _Alert(
        "ControllerGone",
        "absent(autoscaler_build_info)",
        5 * MINUTE,
        "page",
        "Prometheus gets no metrics of the controller: it is down, or cannot be reached.",
    )
    yield _Alert(
        "WebhooksSilent",
        f"sum(increase({accepted}[{half_hour}])) == 0 and sum(autoscaler_jobs_in_progress) > 0",
        5 * MINUTE,
        "page",
        "Jobs are running, and GitHub has delivered no webhook for half an hour.",
    )
    yield _Alert(
        "GitHubBudgetLow",
        "autoscaler_github_rate_limit_remaining / (autoscaler_github_rate_limit > 0) < 0.1",
        5 * MINUTE,
        "ticket",
        "App {{ $labels.app }} has {{ $value | humanizePercentage }} of its requests to GitHub left this hour.",
    )
    yield _Alert(
        "GitHubListsStale",
        "max by (account) (autoscaler_github_staleness_seconds) > 600",
        10 * MINUTE,
        "ticket",
        "The lists of {{ $labels.account }} at GitHub are {{ $value | humanizeDuration }} old.",
    )
    yield _Alert(
        "ControllerSlow",
        "autoscaler_event_loop_lag_max_seconds > 1",
        10 * MINUTE,
        "ticket",
        "Webhooks and machines wait for the controller for {{ $value | humanizeDuration }}.",
    )
    yield _Alert(
        "StoreFails",
        f'sum(increase(autoscaler_deliveries_total{{answer=~"store_failed|shed"}}[{half_hour}])) > 0',
        0.0,
        "page",
        "The controller cannot store webhooks, or not fast enough.",
    )


def _quoted(text: str) -> str:
    """Return text as a string of PromQL."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _label(seconds: Seconds) -> str:
    """Return a window as part of a name, such as `5m`, `6h` or `3d`."""
    for unit, name in ((DAY, "d"), (HOUR, "h"), (MINUTE, "m")):
        if seconds % unit == 0:
            return f"{seconds / unit:g}{name}"
    return f"{seconds:g}s"


def _span(seconds: Seconds) -> str:
    """Return a time span as Prometheus reads it."""
    if seconds and seconds % MINUTE == 0:
        return _label(seconds)
    return f"{max(0, round(seconds))}s"
