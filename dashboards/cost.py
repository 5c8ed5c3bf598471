"""What the fleet costs, and what the money buys."""

from dashboards.panels import Board, Panel, Query, Row, Style, Unit, number

_CHOSEN = '{sku=~"$sku"}'
_DOLLARS = "autoscaler_machine_dollars_total"
_SECONDS = "autoscaler_machine_seconds_total"

_SPEND = Row(
    "Dollars",
    (
        number(
            "Dollars an hour",
            "What the machines cost now, spot at its price of the hour.",
            "autoscaler_cost_dollars_per_hour",
            Unit.DOLLARS,
        ),
        number(
            "Dollars in this time range",
            "The cost of the chosen SKUs' machines. A part counts when it is over.",
            f"sum(increase({_DOLLARS}{_CHOSEN}[$__range]))",
            Unit.DOLLARS,
        ),
        number(
            "Share spent on jobs",
            "The share of this cost that ran jobs. The rest is boot, idle time and failed launches.",
            f'sum(increase({_DOLLARS}{{sku=~"$sku",use="job"}}[$__range])) '
            f"/ (sum(increase({_DOLLARS}{_CHOSEN}[$__range])) > 0)",
            Unit.SHARE,
        ),
        number(
            "Dollars a job",
            "The whole cost in this time range for each completed job.",
            f"sum(increase({_DOLLARS}{_CHOSEN}[$__range])) "
            f"/ (sum(increase(autoscaler_jobs_completed_total{_CHOSEN}[$__range])) > 0)",
            Unit.DOLLARS,
        ),
    ),
)

_USES = Row(
    "What it buys",
    (
        Panel(
            "Dollars an hour by use",
            "boot: until ready; ready: until the job, or the end; end: after the job; failed_launch: "
            "never ready.",
            (
                Query(
                    f"sum by (use) (rate({_DOLLARS}{_CHOSEN}[$__rate_interval])) * 3600", "{{use}}"
                ),
            ),
            Unit.DOLLARS,
            Style.STACKED,
        ),
        Panel(
            "Dollars by SKU and use",
            "What each SKU's machines cost in this time range.",
            (Query(f"sum by (sku, use) (increase({_DOLLARS}{_CHOSEN}[$__range])) > 0"),),
            Unit.DOLLARS,
            Style.TABLE,
        ),
        Panel(
            "Machine time by use",
            "Machines that were paid for, on average, by what they did.",
            (Query(f"sum by (use) (rate({_SECONDS}{_CHOSEN}[$__rate_interval]))", "{{use}}"),),
            style=Style.STACKED,
        ),
        Panel(
            "Dollars by repository",
            "The cost of machines at the jobs of each repository of metrics.repositories.",
            (
                Query(
                    "sum by (repository) "
                    "(increase(autoscaler_repository_machine_dollars_total[$__range])) > 0"
                ),
            ),
            Unit.DOLLARS,
            Style.TABLE,
        ),
    ),
)

_BUYING = Row(
    "How it is bought",
    (
        Panel(
            "Launched machines",
            "Machines that providers launched in each second, by capacity type.",
            (
                Query(
                    "sum by (provider, capacity_type) "
                    "(rate(autoscaler_machines_launched_total[$__rate_interval]))",
                    "{{provider}} {{capacity_type}}",
                ),
            ),
            Unit.EACH_SECOND,
            Style.STACKED,
        ),
        Panel(
            "Offerings on hold",
            "Instance types in a zone that are not used now, by why the last launch failed.",
            (
                Query(
                    "sum by (provider, capacity_type, reason) (autoscaler_offerings_on_hold) > 0",
                    "{{provider}} {{capacity_type}} {{reason}}",
                ),
            ),
        ),
    ),
)

COST = Board(
    "autoscaler-cost",
    "Fleet: cost",
    "What the fleet costs, and what the money buys.",
    (_SPEND, _USES, _BUYING),
    by_sku=True,
)
