"""Prometheus' alerting rules for a fleet, from a few parameters.

`autoscaler alerts` prints them, and deploy/prometheus/alerts.yaml has them with the defaults. Every alert has a
page in docs/runbooks/.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from autoscaler.model.identifiers import Seconds
from autoscaler.model.reasons import table
from autoscaler.model.reasons.entry import Code, Runbook, Severity
from autoscaler.model.reasons.table import STILL_FAIL_WITHIN, FaultCode, WaitCode, that_fire
from autoscaler.model.wait_objectives import DEFAULT_OBJECTIVES, WaitObjective
from autoscaler.observability.alerting import (
    DAY,
    HOUR,
    MINUTE,
    Alert,
    burn_rate_alerts,
    increased,
    none_starts_alert,
    recorded_waits,
    span,
)
from autoscaler.observability.replica_alerts import replica_alerts

RUNBOOKS = "docs/runbooks"

STARTS = "autoscaler_job_queue_duration_seconds_count"
"""The counter of jobs that started, as the controller learned it from a webhook or from GitHub's lists."""

ENDS = 'autoscaler_machine_seconds_total{use="job"}'
"""A counter that rises when a job ends, as GitHub shows it, or the end of the job's machine."""


class UnusableAlertError(ValueError):
    """A parameter cannot be used. The text says which values can."""


@dataclass(frozen=True, slots=True)
class AlertParameters:
    """What a fleet's operators choose.

    `scale` shortens every window and delay, so that a test sees in minutes what takes hours. `dollars_per_hour`
    is the cost above which to alert; None for no alert. `runbooks` is the URL of a copy of docs/runbooks.
    """

    objectives: tuple[WaitObjective, ...] = DEFAULT_OBJECTIVES
    dollars_per_hour: float | None = None
    runbooks: str = RUNBOOKS
    scale: float = 1.0

    def __post_init__(self) -> None:
        """Raise UnusableAlertError for a cost that is no amount of dollars."""
        if self.dollars_per_hour is not None and not 0.0 <= self.dollars_per_hour < math.inf:
            raise UnusableAlertError(
                f"{self.dollars_per_hour:g} is not an amount of dollars, such as 50"
            )


def alert_rules(parameters: AlertParameters) -> dict[str, Any]:
    """Return the content of a rules file of Prometheus."""
    recorded = [
        rule
        for index, objective in enumerate(parameters.objectives)
        for rule in recorded_waits(objective, parameters.objectives[:index], parameters.scale)
    ]
    burning = [
        _rule(parameters, alert)
        for index, objective in enumerate(parameters.objectives)
        for alert in (
            none_starts_alert(objective, parameters.objectives[:index], parameters.scale),
            *burn_rate_alerts(objective, parameters.scale),
        )
    ]
    others = [_rule(parameters, alert) for alert in _others(parameters)]
    return {
        "groups": [
            {"name": "autoscaler-wait", "rules": [*recorded, *burning]},
            {"name": "autoscaler", "rules": others},
        ]
    }


def _rule(parameters: AlertParameters, alert: Alert) -> dict[str, Any]:
    return {
        "alert": alert.runbook.name,
        "expr": alert.expression,
        "for": span(alert.after * parameters.scale),
        "labels": {"severity": alert.runbook.severity.value}
        | ({"window": alert.window} if alert.window else {}),
        "annotations": {
            "summary": alert.summary,
            "runbook_url": f"{parameters.runbooks}/{alert.runbook.name}.md",
        },
    }


def _others(parameters: AlertParameters) -> Iterator[Alert]:
    scale = parameters.scale
    yield from _waits(parameters.scale)
    yield _machines_not_ready(scale)
    yield from _launches(scale)
    yield from _machines(scale)
    yield from _github(scale)
    yield from _process(scale)
    yield from replica_alerts(scale)
    if parameters.dollars_per_hour is not None:
        yield Alert(
            Runbook("CostOverBudget", Severity.TICKET),
            f"max(autoscaler_cost_dollars_per_hour) > {parameters.dollars_per_hour:g}",
            30 * MINUTE,
            "The fleet costs {{ $value }} dollars an hour.",
        )


def _of(code: Code, expression: str, after: Seconds, summary: str) -> Alert:
    """Return the alert of a code. `{above}` and `{share}` in the expression are its threshold."""
    known, threshold = code.entry.runbook, code.entry.threshold
    assert known is not None
    for name, value in (("above", threshold.above), ("share", threshold.share)):
        expression = expression.replace(f"{{{name}}}", f"{value:g}")
    return Alert(known, expression, after, summary)


def _within(code: Code, scale: float) -> str:
    return span(code.entry.threshold.within * scale)


def _waiting(codes: Iterable[Code]) -> str:
    return f'autoscaler_jobs_waiting_by_reason{{reason=~"{"|".join(codes)}"}}'


def _waits(scale: float) -> Iterator[Alert]:
    for runbook, after, why in (
        (table.OUT_OF_CAPACITY, 15 * MINUTE, "no provider has capacity for it."),
        (table.LIMIT_REACHED, 30 * MINUTE, "a limit is reached: {{ $labels.reason }}."),
        (
            table.LAUNCHES_REFUSED,
            10 * MINUTE,
            "its machines cannot be launched: {{ $labels.reason }}.",
        ),
        (
            table.REGISTRATIONS_REFUSED,
            10 * MINUTE,
            "GitHub gives no runner: {{ $labels.reason }}.",
        ),
    ):
        waiting = f"sum by (sku, reason) ({_waiting(that_fire(runbook))}) > 0"
        yield Alert(runbook, waiting, after, f"Jobs of {{{{ $labels.sku }}}} wait, because {why}")
    yield from _not_served(scale)
    yield _of(
        FaultCode.JOB_WAITS_FOR_HOURS,
        "max by (sku) (autoscaler_oldest_waiting_job_age_seconds) > {above}",
        5 * MINUTE,
        "A job of {{ $labels.sku }} has waited for {{ $value | humanizeDuration }}.",
    )


def _not_served(scale: float) -> Iterator[Alert]:
    """Yield the alerts for several jobs, or an old one, that no SKU serves or that `access` refuses.

    Both are one rule: Prometheus refuses two with the same name and labels ("duplicate sample").
    """
    several, after = table.NOT_SERVED.above, 5 * MINUTE
    old, step = span((table.NOT_SERVED.within - after) * scale), span(MINUTE * scale)
    for series, kind in (
        ("autoscaler_jobs_without_sku", "No SKU serves"),
        (_waiting(sorted(table.DECIDED_BY_ACCESS)), "access refuses"),
    ):
        yield Alert(
            table.JOBS_NOT_SERVED,
            # The leader may have changed meanwhile: the series goes on at another instance.
            f"sum by (reason) ({series}) >= {several:g} or sum by (reason) "
            f"(min_over_time((max by (sku, reason) ({series}))[{old}:{step}]) "
            f"and max by (sku, reason) ({series} offset {old})) > 0",
            after,
            f"{kind} jobs that GitHub keeps queued for a day: {{{{ $labels.reason }}}}.",
        )


def _machines_not_ready(scale: float) -> Alert:
    """Return the alert for jobs whose machines fail one after the other.

    Such a job waits for a booting machine most of the time, and for the end of a hold in between. So the failed
    machines are counted: with the longest hold and the boot deadline of Windows, two in 46 minutes. Jobs that
    wait for something else, such as a limit or an operator, do not count.
    """
    codes = tuple(that_fire(table.MACHINES_NOT_READY))
    failed = f'autoscaler_launch_failures_total{{reason=~"{"|".join(codes)}"}}'
    waiting = _waiting((*codes, WaitCode.CIRCUIT_OPEN, WaitCode.MACHINE_BOOTING))
    return Alert(
        table.MACHINES_NOT_READY,
        f"({increased(failed, 'sku', span(2 * HOUR * scale), '>= 2')}) "
        f"and on (sku) sum by (sku) ({waiting}) > 0 "
        f"unless on (sku) sum by (sku) (increase({STARTS}[{span(15 * MINUTE * scale)}])) > 0",
        15 * MINUTE,
        'Jobs of {{ $labels.sku }} wait, and {{ printf "%.0f" $value }} of its machines did not become ready '
        "in the last two hours.",
    )


def _launches(scale: float) -> Iterator[Alert]:
    yield _of(
        WaitCode.CIRCUIT_OPEN,
        "max by (sku) (autoscaler_sku_circuit_open) > 0",
        30 * MINUTE,
        "{{ $labels.sku }} launches one machine at a time, because its last machines failed.",
    )
    yield _of(
        FaultCode.OPTION_CIRCUIT_OPEN,
        "max by (sku, provider) (autoscaler_launch_option_circuit_open) > 0"
        " unless on (sku) max by (sku) (autoscaler_sku_circuit_open) > 0",
        30 * MINUTE,
        "{{ $labels.sku }} launches one machine at a time at {{ $labels.provider }}, "
        "because the last launches or machines there failed.",
    )
    yield _of(
        FaultCode.NODE_AVOIDED,
        "max by (sku, provider, node) (autoscaler_node_avoided) > 0",
        5 * MINUTE,
        "{{ $labels.sku }} avoids the node {{ $labels.node }} of {{ $labels.provider }}, "
        "because its machines failed there.",
    )
    code = FaultCode.HEALTH_CHECKS_FAIL
    failed, by = "autoscaler_health_checks_failed_total", "sku, check, image"
    within, still = _within(code, scale), span(STILL_FAIL_WITHIN * scale)
    yield _of(
        code,
        # A circuit breaker launches few machines: until a job of the SKU starts, older failures count, too.
        f"({increased(failed, by, within, '>= {above}')}) or ({increased(failed, by, still, '>= {above}')} "
        f"unless on (sku) sum by (sku) (increase({STARTS}[{within}])) > 0)",
        0.0,
        "Machines of {{ $labels.sku }} with the image {{ $labels.image }} "
        "fail their health check {{ $labels.check }}.",
    )
    refused = 'autoscaler_runner_exits_total{reason="version_deprecated"}'
    within = _within(FaultCode.RUNNER_VERSION_REFUSED, scale)
    yield _of(
        FaultCode.RUNNER_VERSION_REFUSED,
        # A job with root may report it of its own machine. The circuit breaker opens if two machines do.
        f"({increased(refused, 'sku', within, '> 0')}) "
        "and on (sku) max by (sku) (autoscaler_sku_circuit_open) > 0",
        2 * MINUTE,
        "GitHub refuses the version of actions/runner in the image of {{ $labels.sku }}.",
    )
    ends = "min by (sku) (autoscaler_runner_version_deadline_timestamp_seconds)"
    notice = FaultCode.RUNNER_VERSION_EXPIRES.entry.threshold.above
    yield _of(
        FaultCode.RUNNER_VERSION_EXPIRES,
        f"{ends} - time() < {notice * scale:g}",
        HOUR,
        "{{ if gt $value 0.0 }}GitHub will give no more jobs to the runner version of {{ $labels.sku }} in "
        "{{ $value | humanizeDuration }}{{ else }}GitHub gives no more jobs to the runner version of "
        "{{ $labels.sku }}{{ end }}.",
    )


def _machines(scale: float) -> Iterator[Alert]:
    code = FaultCode.JOB_OUTSIDE_ACCESS
    outside = "autoscaler_jobs_outside_access_total"
    yield _of(
        code,
        increased(outside, "sku, reason", _within(code, scale), "> 0"),
        0.0,
        "GitHub gave machines of {{ $labels.sku }} to jobs that access does not admit: {{ $labels.reason }}.",
    )
    yield _of(
        FaultCode.MACHINES_NOT_TERMINATING,
        "max(autoscaler_machines_not_terminating) > 0",
        10 * MINUTE,
        "Machines still exist after three requests to terminate them, and cost money: {{ $value }}.",
    )
    yield _of(
        FaultCode.MACHINES_UNVERIFIED,
        "max(autoscaler_machines_unverified + autoscaler_machines_foreign) > 0",
        DAY,
        "Machines count in the limits, and only an operator can decide about them: {{ $value }}.",
    )
    yield _of(
        FaultCode.LEAK_SUSPECTED,
        'sum(autoscaler_machines{state=~"assigned|exited"}) - sum(autoscaler_jobs_in_progress)'
        " > {above} + {share} * sum(autoscaler_jobs_in_progress)",
        HOUR,
        "For an hour, {{ $value }} more machines are assigned or exited than jobs are in progress.",
    )
    yield _of(
        FaultCode.RUNNER_GROUP_TOO_WIDE,
        "max by (account, runner_group, reason) (autoscaler_runner_group_too_wide) > 0",
        HOUR,
        "The runner group {{ $labels.runner_group }} of {{ $labels.account }} admits more than access does.",
    )


def _github(scale: float) -> Iterator[Alert]:
    yield Alert(
        Runbook("ControllerGone", Severity.PAGE),
        "absent(autoscaler_build_info)",
        5 * MINUTE,
        "Prometheus gets no metrics of the controller: it is down, or cannot be reached.",
    )
    code = FaultCode.WEBHOOKS_SILENT
    half_hour = _within(code, scale)
    accepted = 'autoscaler_deliveries_total{outcome=~"accepted|duplicate|ignored"}'
    yield _of(
        code,
        # GitHub sends a webhook when a job starts or ends. The last operand needs half an hour of data.
        f"sum(increase({accepted}[{half_hour}])) == 0 and (sum(increase({STARTS}[{half_hour}])) > 0 "
        f"or sum(increase({ENDS}[{half_hour}])) > 0) and sum({accepted} offset {half_hour})",
        code.entry.threshold.above,
        "Jobs have started or ended, and the controller has accepted no webhook for half an hour.",
    )
    yield _of(
        FaultCode.GITHUB_BUDGET_LOW,
        "min by (app, account, resource) "
        "(autoscaler_github_rate_limit_remaining / (autoscaler_github_rate_limit > 0)) < {share}",
        5 * MINUTE,
        "App {{ $labels.app }} has {{ $value | humanizePercentage }} of its requests to GitHub left this hour.",
    )
    yield _of(
        FaultCode.GITHUB_LISTS_STALE,
        "max by (account) (autoscaler_github_staleness_seconds) > {above}",
        10 * MINUTE,
        "The lists of {{ $labels.account }} at GitHub are {{ $value | humanizeDuration }} old.",
    )
    yield _of(
        FaultCode.CLOCK_SKEWED,
        "abs(autoscaler_github_clock_ahead_seconds) > {above}",
        5 * MINUTE,
        "The clock of the controller's host is {{ $value | humanizeDuration }} off GitHub's.",
    )


def _store_slow(scale: float) -> Alert:
    code, name = FaultCode.STORE_SLOW, "autoscaler_store_write_duration_seconds"
    within, threshold = _within(code, scale), code.entry.threshold
    every = f"sum by (operation) (increase({name}_count[{within}]))"
    fast = f'sum by (operation) (increase({name}_bucket{{le="{{above}}"}}[{within}]))'
    slow = f"({every} - {fast})"
    return _of(
        code,
        f"{slow} >= {threshold.count} and {slow} > {{share}} * {every}",
        10 * MINUTE,
        'In five minutes, {{ printf "%.0f" $value }} writes to the store ({{ $labels.operation }}) took more '
        "than half a second.",
    )


def _process(scale: float) -> Iterator[Alert]:
    yield _of(
        FaultCode.CONTROLLER_SLOW,
        "autoscaler_event_loop_lag_max_seconds > {above}",
        10 * MINUTE,
        "Webhooks and machines wait for the controller for {{ $value | humanizeDuration }}.",
    )
    yield _store_slow(scale)
    share = FaultCode.STORE_DISK_LOW.entry.threshold.share
    yield _of(
        FaultCode.STORE_DISK_LOW,
        f"autoscaler_store_disk_free_bytes < {share:g} * autoscaler_store_disk_bytes",
        5 * MINUTE,
        "The store's disk has {{ $value | humanize1024 }}B left. The controller stops when it is full.",
    )
    not_stored = 'autoscaler_deliveries_total{outcome=~"store_failed|store_stalled|shed"}'
    yield _of(
        FaultCode.STORE_FAILS,
        f"sum(increase({not_stored}[{_within(FaultCode.STORE_FAILS, scale)}])) > 0",
        0.0,
        "The controller cannot store webhooks, or not fast enough.",
    )
