"""One or several SKUs: their jobs, machines and failures."""

from dashboards.panels import Board, Panel, Query, Row, Style, Unit, quantiles, rates, rises

_CHOSEN = '{sku=~"$sku"}'

_JOBS = Row(
    "Jobs",
    (
        Panel(
            "Waiting jobs by reason",
            "Reason codes are explained in docs/runbooks/reasons.md.",
            (
                Query(
                    f"sum by (reason) (autoscaler_jobs_waiting_by_reason{_CHOSEN}) > 0",
                    "{{reason}}",
                ),
            ),
            style=Style.STACKED,
        ),
        Panel(
            "Age of the oldest waiting job",
            "How long the oldest job has waited for a runner, by SKU.",
            (
                Query(
                    f"max by (sku) (autoscaler_oldest_waiting_job_age_seconds{_CHOSEN})", "{{sku}}"
                ),
            ),
            Unit.SECONDS,
        ),
        Panel(
            "Time from queued to started",
            "How long the jobs waited that started in each interval.",
            quantiles("autoscaler_job_queue_duration_seconds", _CHOSEN),
            Unit.SECONDS,
        ),
        Panel(
            "Completed jobs",
            "Jobs that completed in each second, by GitHub's conclusion.",
            rates("autoscaler_jobs_completed_total", _CHOSEN, "conclusion"),
            Unit.EACH_SECOND,
        ),
        Panel(
            "Jobs in progress",
            "Jobs in progress, by SKU.",
            (Query(f"sum by (sku) (autoscaler_jobs_in_progress{_CHOSEN})", "{{sku}}"),),
            style=Style.STACKED,
        ),
        Panel(
            "Interrupted jobs",
            "Jobs whose machine was taken from them in this time range, by what became of the re-run.",
            rises("autoscaler_jobs_interrupted_total", _CHOSEN, "sku", "outcome"),
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
            (Query(f"sum by (state) (autoscaler_machines{_CHOSEN}) > 0", "{{state}}"),),
            style=Style.STACKED,
        ),
        Panel(
            "Requested machines",
            "Machines that the controller requested in each second, by provider.",
            rates("autoscaler_launches_total", _CHOSEN, "provider"),
            Unit.EACH_SECOND,
        ),
        Panel(
            "Failures before ready",
            "Machines that were not launched, or failed before they became ready, in this time range.",
            rises("autoscaler_launch_failures_total", _CHOSEN, "sku", "reason"),
            style=Style.TABLE,
        ),
        Panel(
            "Failed health checks",
            "Machines that failed their health checks in this time range, by image and first failed check.",
            rises("autoscaler_health_checks_failed_total", _CHOSEN, "sku", "image", "check"),
            style=Style.TABLE,
        ),
        Panel(
            "Runner exits",
            "Why runners exited in this time range.",
            rises("autoscaler_runner_exits_total", _CHOSEN, "sku", "reason"),
            style=Style.TABLE,
        ),
        Panel(
            "Terminated machines",
            "Machines that the controller decided to terminate in this time range.",
            rises("autoscaler_machines_terminated_total", _CHOSEN, "sku", "reason"),
            style=Style.TABLE,
        ),
        Panel(
            "Circuit breaker",
            "1 while the SKU, or its launch options at a provider, launch one machine at a time, because the "
            "last ones failed.",
            (
                Query(f"max by (sku) (autoscaler_sku_circuit_open{_CHOSEN})", "{{sku}}"),
                Query(
                    f"max by (sku, provider) (autoscaler_launch_option_circuit_open{_CHOSEN})",
                    "{{sku}} at {{provider}}",
                ),
            ),
        ),
        Panel(
            "Avoided nodes",
            "Nodes that the SKU avoids, because its machines failed on them.",
            (
                Query(
                    f"max by (sku, provider, node) (autoscaler_node_avoided{_CHOSEN})",
                    "{{node}} of {{provider}}: {{sku}}",
                ),
            ),
        ),
        Panel(
            "Interruptions",
            "Machines that their provider interrupted, or may interrupt, in this time range.",
            rises("autoscaler_machines_interrupted_total", _CHOSEN, "sku", "kind"),
            style=Style.TABLE,
        ),
    ),
)

SKU = Board(
    "autoscaler-sku",
    "Fleet: SKU",
    "The jobs, machines and failures of the chosen SKUs.",
    (_JOBS, _MACHINES),
    by_sku=True,
)
