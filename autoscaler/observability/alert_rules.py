"""Prometheus' alerting rules for a fleet, from a few parameters.

`autoscaler alerts` prints them, and deploy/prometheus/alerts.yaml has them with the defaults. Every alert has a
page in docs/runbooks/.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from autoscaler.model.identifiers import Seconds
from autoscaler.model.wait_objectives import DEFAULT_OBJECTIVES, WaitObjective
from autoscaler.observability.alerting import DAY, HOUR, MINUTE, Alert, increased, span
from autoscaler.observability.wait_alerts import burn_rate_alerts, recorded_waits

RUNBOOKS = "docs/runbooks"

STARTS = "autoscaler_job_queue_duration_seconds_count"
"""The counter of jobs that started, as the controller learned it from a webhook or from GitHub's lists."""

WEBHOOK_LATE_BY: Seconds = 5 * MINUTE
"""How long after the start of a job its webhook may be accepted."""


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
        for objective in parameters.objectives
        for alert in burn_rate_alerts(objective, parameters.scale)
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
        "alert": alert.name,
        "expr": alert.expression,
        "for": span(alert.after * parameters.scale),
        "labels": {"severity": alert.severity} | ({"window": alert.window} if alert.window else {}),
        "annotations": {
            "summary": alert.summary,
            "runbook_url": f"{parameters.runbooks}/{alert.name}.md",
        },
    }


def _others(parameters: AlertParameters) -> Iterator[Alert]:
    yield from _waits()
    yield from _launches(parameters)
    yield from _machines(parameters)
    yield from _process(parameters)
    if parameters.dollars_per_hour is not None:
        yield Alert(
            "CostOverBudget",
            f"autoscaler_cost_dollars_per_hour > {parameters.dollars_per_hour:g}",
            30 * MINUTE,
            "ticket",
            "The fleet costs {{ $value }} dollars an hour.",
        )


def _waits() -> Iterator[Alert]:
    waiting = 'sum by (sku, reason) (autoscaler_jobs_waiting_by_reason{{reason=~"{}"}}) > 0'
    yield Alert(
        "OutOfCapacity",
        waiting.format("capacity|unsupported"),
        15 * MINUTE,
        "page",
        "Jobs of {{ $labels.sku }} wait, because no provider has capacity for it.",
    )
    yield Alert(
        "LimitReached",
        waiting.format(
            "max_machines|fleet_machines|fleet_dollars|quota|throttled|launch_rate|registration_rate"
        ),
        30 * MINUTE,
        "ticket",
        "Jobs of {{ $labels.sku }} wait, because a limit is reached: {{ $labels.reason }}.",
    )
    yield Alert(
        "LaunchesRefused",
        waiting.format("configuration|unknown|no_offering"),
        10 * MINUTE,
        "page",
        "Jobs of {{ $labels.sku }} wait, because its machines cannot be launched: {{ $labels.reason }}.",
    )
    yield Alert(
        "RegistrationsRefused",
        waiting.format("registration_on_hold|not_assigned"),
        10 * MINUTE,
        "page",
        "Jobs of {{ $labels.sku }} wait, because GitHub gives no runner: {{ $labels.reason }}.",
    )
    yield Alert(
        "JobWaitsForHours",
        "max by (sku) (autoscaler_oldest_waiting_job_age_seconds) > 7200",
        5 * MINUTE,
        "page",
        "A job of {{ $labels.sku }} has waited for {{ $value | humanizeDuration }}.",
    )


def _launches(parameters: AlertParameters) -> Iterator[Alert]:
    half_hour = span(30 * MINUTE * parameters.scale)
    yield _machines_not_ready(parameters)
    refused = 'autoscaler_runner_exits_total{reason="version_deprecated"}'
    yield Alert(
        "CircuitBreakerOpen",
        "max by (sku) (autoscaler_sku_circuit_open) > 0",
        30 * MINUTE,
        "page",
        "{{ $labels.sku }} launches one machine at a time, because its last machines failed.",
    )
    yield Alert(
        "CircuitBreakerOpen",
        "max by (sku, provider) (autoscaler_launch_option_circuit_open) > 0"
        " unless on (sku) max by (sku) (autoscaler_sku_circuit_open) > 0",
        30 * MINUTE,
        "ticket",
        "{{ $labels.sku }} launches one machine at a time at {{ $labels.provider }}, "
        "because the last launches or machines there failed.",
    )
    yield Alert(
        "NodeAvoided",
        "max by (sku, provider, node) (autoscaler_node_avoided) > 0",
        5 * MINUTE,
        "ticket",
        "{{ $labels.sku }} avoids the node {{ $labels.node }} of {{ $labels.provider }}, "
        "because its machines failed there.",
    )
    yield Alert(
        "HealthChecksFail",
        increased("autoscaler_health_checks_failed_total", "sku, check, image", half_hour, ">= 3"),
        0.0,
        "page",
        "Machines of {{ $labels.sku }} with the image {{ $labels.image }} "
        "fail their health check {{ $labels.check }}.",
    )
    yield Alert(
        "RunnerVersionRefused",
        # A job with root may report it of its own machine. The circuit breaker opens if two machines do.
        f"({increased(refused, 'sku', half_hour, '> 0')}) "
        "and on (sku) max by (sku) (autoscaler_sku_circuit_open) > 0",
        2 * MINUTE,
        "page",
        "GitHub refuses the version of actions/runner in the image of {{ $labels.sku }}.",
    )
    ends = "min by (sku) (autoscaler_runner_version_deadline_timestamp_seconds)"
    yield Alert(
        "RunnerVersionExpires",
        f"{ends} - time() < {7 * DAY * parameters.scale:g}",
        HOUR,
        "ticket",
        "{{ if gt $value 0.0 }}GitHub will give no more jobs to the runner version of {{ $labels.sku }} in "
        "{{ $value | humanizeDuration }}{{ else }}GitHub gives no more jobs to the runner version of "
        "{{ $labels.sku }}{{ end }}.",
    )


def _machines_not_ready(parameters: AlertParameters) -> Alert:
    """Return the alert for jobs whose machines fail one after the other.

    Such a job waits for a booting machine most of the time, and for the end of a hold in between. So the failed
    machines are counted: with the longest hold and the boot deadline of Windows, two in 46 minutes. Jobs that
    wait for something else, such as a limit or an operator, do not count.
    """
    failed = 'autoscaler_launch_failures_total{reason=~"boot_deadline|health_check"}'
    codes = "boot_deadline|health_check|circuit_open|machine_booting"
    waiting = f'autoscaler_jobs_waiting_by_reason{{reason=~"{codes}"}}'
    return Alert(
        "MachinesNotReady",
        f"({increased(failed, 'sku', span(2 * HOUR * parameters.scale), '>= 2')}) "
        f"and on (sku) sum by (sku) ({waiting}) > 0 "
        f"unless on (sku) sum by (sku) (increase({STARTS}[{span(15 * MINUTE * parameters.scale)}])) > 0",
        15 * MINUTE,
        "page",
        'Jobs of {{ $labels.sku }} wait, and {{ printf "%.0f" $value }} of its machines did not become ready '
        "in the last two hours.",
    )


def _machines(parameters: AlertParameters) -> Iterator[Alert]:
    outside = "autoscaler_jobs_outside_access_total"
    yield Alert(
        "JobsOutsideAccess",
        increased(outside, "sku, reason", span(30 * MINUTE * parameters.scale), "> 0"),
        0.0,
        "ticket",
        "GitHub gave machines of {{ $labels.sku }} to jobs that access does not admit: {{ $labels.reason }}.",
    )
    yield Alert(
        "MachinesDoNotTerminate",
        "autoscaler_machines_not_terminating > 0",
        10 * MINUTE,
        "ticket",
        "Machines still exist after three requests to terminate them, and cost money: {{ $value }}.",
    )
    yield Alert(
        "MachinesUnverified",
        "autoscaler_machines_unverified + autoscaler_machines_foreign > 0",
        DAY,
        "ticket",
        "Machines count in the limits, and only an operator can decide about them: {{ $value }}.",
    )
    yield Alert(
        "LeakSuspected",
        'sum(autoscaler_machines{state=~"assigned|exited"}) - sum(autoscaler_jobs_in_progress)'
        " > 5 + 0.1 * sum(autoscaler_jobs_in_progress)",
        HOUR,
        "ticket",
        "For an hour, {{ $value }} more machines are assigned or exited than jobs are in progress.",
    )
    yield Alert(
        "RunnerGroupTooWide",
        "max by (account, runner_group, reason) (autoscaler_runner_group_too_wide) > 0",
        HOUR,
        "ticket",
        "The runner group {{ $labels.runner_group }} of {{ $labels.account }} admits more than access does.",
    )


def _process(parameters: AlertParameters) -> Iterator[Alert]:
    half_hour = span(30 * MINUTE * parameters.scale)
    accepted = 'autoscaler_deliveries_total{outcome=~"accepted|duplicate|ignored"}'
    yield Alert(
        "ControllerGone",
        "absent(autoscaler_build_info)",
        5 * MINUTE,
        "page",
        "Prometheus gets no metrics of the controller: it is down, or cannot be reached.",
    )
    yield Alert(
        "WebhooksSilent",
        # GitHub sends a webhook when a job starts. The last operand needs half an hour of data.
        f"sum(increase({accepted}[{half_hour}])) == 0 and sum(increase({STARTS}[{half_hour}])) > 0 "
        f"and sum({accepted} offset {half_hour})",
        WEBHOOK_LATE_BY,
        "page",
        "Jobs have started, and the controller has accepted no webhook for half an hour.",
    )
    yield Alert(
        "GitHubBudgetLow",
        "autoscaler_github_rate_limit_remaining / (autoscaler_github_rate_limit > 0) < 0.1",
        5 * MINUTE,
        "ticket",
        "App {{ $labels.app }} has {{ $value | humanizePercentage }} of its requests to GitHub left this hour.",
    )
    yield Alert(
        "GitHubListsStale",
        "max by (account) (autoscaler_github_staleness_seconds) > 600",
        10 * MINUTE,
        "ticket",
        "The lists of {{ $labels.account }} at GitHub are {{ $value | humanizeDuration }} old.",
    )
    yield Alert(
        "ClockSkewed",
        "abs(autoscaler_github_clock_ahead_seconds) > 30",
        5 * MINUTE,
        "ticket",
        "The clock of the controller's host is {{ $value | humanizeDuration }} off GitHub's.",
    )
    yield Alert(
        "ControllerSlow",
        "autoscaler_event_loop_lag_max_seconds > 1",
        10 * MINUTE,
        "ticket",
        "Webhooks and machines wait for the controller for {{ $value | humanizeDuration }}.",
    )
    yield Alert(
        "StoreSlow",
        "histogram_quantile(0.99, sum by (le, operation) "
        f"(rate(autoscaler_store_write_duration_seconds_bucket[{span(5 * MINUTE * parameters.scale)}]))) > 0.5",
        10 * MINUTE,
        "ticket",
        "One of 100 writes to the store takes {{ $value | humanizeDuration }} ({{ $labels.operation }}).",
    )
    not_stored = 'autoscaler_deliveries_total{outcome=~"store_failed|store_stalled|shed"}'
    yield Alert(
        "StoreFails",
        f"sum(increase({not_stored}[{half_hour}])) > 0",
        0.0,
        "page",
        "The controller cannot store webhooks, or not fast enough.",
    )
