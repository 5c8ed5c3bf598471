"""The first look: is the fleet fine, and if not, which SKU and why."""

from autoscaler.observability.alert_rules import AlertParameters, alert_rules
from dashboards.panels import Board, Panel, Query, Row, Style, Unit, number, quantiles, rates

_WAIT = "autoscaler_job_queue_duration_seconds"
_ALERTS = sorted(
    {
        rule["alert"]
        for group in alert_rules(AlertParameters(dollars_per_hour=0.0))["groups"]
        for rule in group["rules"]
        if "alert" in rule
    }
)
"""The names of all alerts of `autoscaler alerts`. Prometheus may have others."""

_NOW = Row(
    "Now",
    (
        number("Jobs waiting", "Jobs that wait for a runner.", "sum(autoscaler_jobs_waiting)"),
        number(
            "Oldest wait",
            "The age of the oldest job that waits. Runbook: JobWaitsForHours.",
            "max(autoscaler_oldest_waiting_job_age_seconds)",
            Unit.SECONDS,
            red_from=7200,
        ),
        number(
            "Started within 5 min",
            "The share of the jobs of the last hour that started within 5 minutes of being queued.",
            f'sum(rate({_WAIT}_bucket{{le="300.0"}}[1h])) / (sum(rate({_WAIT}_count[1h])) > 0)',
            Unit.SHARE,
        ),
        number("Jobs in progress", "Jobs in progress.", "sum(autoscaler_jobs_in_progress)"),
        number(
            "Dollars an hour",
            "What the machines cost now, spot at its price of the hour.",
            "autoscaler_cost_dollars_per_hour",
            Unit.DOLLARS,
        ),
        number(
            "Circuit breakers open",
            "SKUs that launch one machine at a time, because their last machines failed.",
            "sum(autoscaler_sku_circuit_open)",
            red_from=1,
        ),
    ),
)

_WAITING = Row(
    "What waits, and why",
    (
        Panel(
            "Waiting jobs by reason",
            "Reason codes are explained in docs/runbooks/reasons.md.",
            (
                Query(
                    "sum by (sku, reason) (autoscaler_jobs_waiting_by_reason) > 0",
                    "{{sku}} {{reason}}",
                ),
            ),
            style=Style.TABLE,
        ),
        Panel(
            "Waiting jobs by SKU",
            "Jobs that wait for a runner, by SKU.",
            (Query("sum by (sku) (autoscaler_jobs_waiting) > 0", "{{sku}}"),),
            style=Style.STACKED,
        ),
        Panel(
            "Time from queued to started",
            "How long the jobs waited that started in each interval.",
            quantiles(_WAIT, ""),
            Unit.SECONDS,
        ),
        Panel(
            "Alerts",
            "Alerts of `autoscaler alerts` that fire.",
            (
                Query(
                    f'ALERTS{{alertstate="firing",alertname=~"{"|".join(_ALERTS)}"}}',
                    "{{alertname}}",
                ),
            ),
            style=Style.TABLE,
        ),
    ),
)

_MACHINES = Row(
    "Machines",
    (
        Panel(
            "Machines by state",
            "`requested` counts launch requests without an answer, by slot.",
            (Query("sum by (state) (autoscaler_machines) > 0", "{{state}}"),),
            style=Style.STACKED,
        ),
        Panel(
            "Failures before ready",
            "Machines that were not launched, or failed before they became ready, each second.",
            rates("autoscaler_launch_failures_total", "", "reason"),
            Unit.EACH_SECOND,
        ),
        Panel(
            "Terminated machines",
            "Machines that the controller decided to terminate, each second.",
            rates("autoscaler_machines_terminated_total", "", "reason"),
            Unit.EACH_SECOND,
        ),
        Panel(
            "Machines that need an operator",
            "Unverified machines, machines of another installation, and machines that do not "
            "terminate. `autoscaler unverified` lists them.",
            (
                Query("autoscaler_machines_unverified", "unverified"),
                Query("autoscaler_machines_foreign", "of another installation"),
                Query("autoscaler_machines_not_terminating", "do not terminate"),
            ),
        ),
    ),
)

OVERVIEW = Board(
    "autoscaler-overview",
    "Fleet: overview",
    "Is the fleet fine, and if not, which SKU waits and why.",
    (_NOW, _WAITING, _MACHINES),
)
