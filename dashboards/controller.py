"""The controller's own process and its providers."""

from dashboards.panels import Board, Panel, Query, Row, Unit, quantiles, rates

_PROCESS = Row(
    "Process",
    (
        Panel(
            "Longest delay of the event loop",
            "Webhooks and machines waited this long. Runbook: ControllerSlow.",
            (Query("autoscaler_event_loop_lag_max_seconds"),),
            Unit.SECONDS,
        ),
        Panel(
            "Duration of reconciliations",
            "How long one reconciliation takes: applying events, planning, recording.",
            quantiles("autoscaler_reconcile_duration_seconds", ""),
            Unit.SECONDS,
        ),
        Panel(
            "Writes to the store",
            "How long a durable write took for its caller. Runbook: StoreSlow.",
            quantiles("autoscaler_store_write_duration_seconds", "", "operation"),
            Unit.SECONDS,
        ),
        Panel(
            "Size of the store",
            "The size of the store's file and of its write-ahead log.",
            (Query("autoscaler_store_bytes", "{{file}}"),),
            Unit.BYTES,
        ),
        Panel(
            "CPU",
            "Processors in use. One process plans and accepts, so 1 is its limit.",
            (
                Query(
                    "rate(process_cpu_seconds_total[$__rate_interval]) "
                    "and on (instance, job) autoscaler_build_info",
                    "{{instance}}",
                ),
            ),
        ),
        Panel(
            "Memory",
            "Memory of the process.",
            (
                Query(
                    "process_resident_memory_bytes and on (instance, job) autoscaler_build_info",
                    "{{instance}}",
                ),
            ),
            Unit.BYTES,
        ),
        Panel(
            "Leader",
            "1 at the replica that leads. Runbooks: NoLeader, LeaderChangesOften, ReplicaBehind.",
            (Query("autoscaler_leader", "{{instance}}"),),
        ),
        Panel(
            "Version",
            "The running version. A change is a new release.",
            (Query("autoscaler_build_info", "{{version}} Python {{python}}"),),
        ),
        Panel(
            "Requests of machines",
            "Requests of booting machines in each second, by outcome.",
            rates("autoscaler_bootstrap_requests_total", "", "step", "outcome"),
            Unit.EACH_SECOND,
        ),
    ),
)

_PROVIDERS = Row(
    "Providers",
    (
        Panel(
            "Requests",
            "Requests to providers in each second, by operation.",
            rates("autoscaler_provider_requests_total", "", "provider", "operation"),
            Unit.EACH_SECOND,
        ),
        Panel(
            "Failed requests",
            "Requests that a provider refused or did not answer, in each second, by error.",
            rates(
                "autoscaler_provider_requests_total",
                '{outcome!="ok"}',
                "provider",
                "operation",
                "outcome",
            ),
            Unit.EACH_SECOND,
        ),
        Panel(
            "Duration of requests",
            "How long providers take to answer.",
            quantiles("autoscaler_provider_request_duration_seconds", "", "provider"),
            Unit.SECONDS,
        ),
        Panel(
            "Interruption notices",
            "Messages in the interruption queues, in each second.",
            rates("autoscaler_notices_total", "", "provider", "kind"),
            Unit.EACH_SECOND,
        ),
        Panel(
            "Sources of prices",
            "Prices in use, by where they come from. built_in is the table of this version.",
            (
                Query(
                    "sum by (provider, source) (autoscaler_prices) > 0", "{{provider}} {{source}}"
                ),
            ),
        ),
        Panel(
            "Sources of quotas",
            "Quotas in use, by where their limit comes from. unknown: EC2 refuses when one is reached.",
            (
                Query(
                    "sum by (provider, source) (autoscaler_quotas) > 0", "{{provider}} {{source}}"
                ),
            ),
        ),
    ),
)

CONTROLLER = Board(
    "autoscaler-controller",
    "Fleet: controller",
    "The controller's own process, and its requests to providers.",
    (_PROCESS, _PROVIDERS),
)
