"""The anatomy of a wait: which part of it takes the time."""

from dashboards.panels import Board, Panel, Query, Row, Style, Unit, quantiles, rates

_CHOSEN = '{sku=~"$sku"}'
_STAGES = "autoscaler_job_wait_seconds_total"
_WAIT = "autoscaler_job_queue_duration_seconds"

_PARTS = Row(
    "Stages",
    (
        Panel(
            "Mean wait by stage",
            "The stages of the mean job that started in each interval. They add up to its wait. "
            "docs/metrics.md says what each stage spans.",
            (
                Query(
                    f"sum by (stage) (rate({_STAGES}{_CHOSEN}[$__rate_interval])) / on () group_left () "
                    f"(sum(rate({_WAIT}_count{_CHOSEN}[$__rate_interval])) > 0)",
                    "{{stage}}",
                ),
            ),
            Unit.SECONDS,
            Style.STACKED,
            width=24,
        ),
        Panel(
            "Waits by SKU and stage",
            "How many seconds jobs of a SKU waited in a stage, in this time range.",
            (Query(f"sum by (sku, stage) (increase({_STAGES}{_CHOSEN}[$__range])) > 0"),),
            Unit.SECONDS,
            Style.TABLE,
        ),
        Panel(
            "Duration of each stage",
            "How long one job waited in a stage, of all SKUs.",
            quantiles("autoscaler_job_wait_stage_duration_seconds", "", "stage"),
            Unit.SECONDS,
        ),
    ),
)

_WHOLE = Row(
    "The whole wait",
    (
        Panel(
            "Time from queued to started",
            "How long the jobs waited that started in each interval.",
            quantiles(_WAIT, _CHOSEN),
            Unit.SECONDS,
        ),
        Panel(
            "Time from queued to started, by SKU",
            "The 90th percentile of the jobs that started in each interval.",
            (
                Query(
                    "histogram_quantile(0.9, "
                    f"sum by (le, sku) (rate({_WAIT}_bucket{_CHOSEN}[$__rate_interval])))",
                    "{{sku}}",
                ),
            ),
            Unit.SECONDS,
        ),
        Panel(
            "Share of runs' wall time spent waiting",
            "The share of the time of workflow runs in which all their open jobs waited for runners: "
            "what the fleet adds to a run.",
            (
                Query(
                    'sum(rate(autoscaler_workflow_run_seconds_total{state="waiting"}[$__rate_interval]))'
                    " / (sum(rate(autoscaler_workflow_run_seconds_total[$__rate_interval])) > 0)",
                    "waiting",
                ),
            ),
            Unit.SHARE,
        ),
        Panel(
            "Wall time of runs",
            "How long runs had open jobs of this fleet without a pause.",
            quantiles("autoscaler_workflow_run_duration_seconds", ""),
            Unit.SECONDS,
        ),
        Panel(
            "Delay of webhooks",
            "How long after the start or the end of a job its webhook arrived.",
            quantiles("autoscaler_delivery_lag_seconds", ""),
            Unit.SECONDS,
        ),
        Panel(
            "Failed jobs by cause",
            "Jobs that failed in each second: because of the infrastructure, or because of their code.",
            rates("autoscaler_jobs_failed_total", _CHOSEN, "cause"),
            Unit.EACH_SECOND,
        ),
    ),
)

WAITS = Board(
    "autoscaler-waits",
    "Fleet: anatomy of a wait",
    "Which part of the wait takes the time.",
    (_PARTS, _WHOLE),
    by_sku=True,
)
