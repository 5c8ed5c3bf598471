"""What the controller spends of GitHub's limits, and how late it knows."""

from dashboards.panels import Board, Panel, Query, Row, Unit, quantiles, rates

_BUDGET = Row(
    "Budget",
    (
        Panel(
            "Requests left",
            "Requests left in each rate limit bucket of GitHub. It is full again within an hour.",
            (
                Query(
                    "min by (app, account, resource) (autoscaler_github_rate_limit_remaining)",
                    "{{app}} {{account}} {{resource}}",
                ),
            ),
        ),
        Panel(
            "Share left",
            "The share of each bucket that is left. Runbook: GitHubBudgetLow.",
            (
                Query(
                    "min by (app, account, resource) "
                    "(autoscaler_github_rate_limit_remaining / (autoscaler_github_rate_limit > 0))",
                    "{{app}} {{account}} {{resource}}",
                ),
            ),
            Unit.SHARE,
        ),
        Panel(
            "Requests by endpoint",
            "Requests to GitHub in each second, by route.",
            rates("autoscaler_github_requests_total", "", "endpoint"),
            Unit.EACH_SECOND,
        ),
        Panel(
            "Failed requests",
            "Requests that GitHub refused or did not answer, in each second.",
            rates(
                "autoscaler_github_requests_total", '{outcome!~"2..|304"}', "endpoint", "outcome"
            ),
            Unit.EACH_SECOND,
        ),
    ),
)

_TRUTH = Row(
    "Webhooks and lists",
    (
        Panel(
            "Deliveries",
            "Webhook deliveries in each second, by outcome.",
            rates("autoscaler_deliveries_total", "", "outcome"),
            Unit.EACH_SECOND,
        ),
        Panel(
            "Age of GitHub's lists",
            "A job whose webhook is lost is found this late. Runbook: GitHubListsStale.",
            (
                Query(
                    "max by (account) (autoscaler_github_staleness_seconds)",
                    "{{account}}",
                ),
            ),
            Unit.SECONDS,
        ),
        Panel(
            "Duration of requests",
            "How long GitHub takes to answer.",
            quantiles("autoscaler_github_request_duration_seconds", ""),
            Unit.SECONDS,
        ),
        Panel(
            "Jobs without a SKU",
            "Queued jobs that no SKU serves, in each second. `job_unmatched` in the log names their labels.",
            rates("autoscaler_jobs_unmatched_total", "", "reason"),
            Unit.EACH_SECOND,
        ),
        Panel(
            "Unwatched repositories",
            "Repositories of a scope whose lists are not read: a job whose webhook is lost gets no machine.",
            (
                Query(
                    "max by (account) (autoscaler_github_repositories_unwatched)",
                    "{{account}}",
                ),
            ),
        ),
        Panel(
            "Runner groups that admit too much",
            "1 while a runner group admits more than the access of its SKUs. Runbook: RunnerGroupTooWide.",
            (
                Query(
                    "max by (account, runner_group, reason) (autoscaler_runner_group_too_wide)",
                    "{{account}} {{runner_group}} {{reason}}",
                ),
            ),
        ),
    ),
)

GITHUB = Board(
    "autoscaler-github",
    "Fleet: GitHub",
    "What the controller spends of GitHub's limits, and how late it knows what GitHub knows.",
    (_BUDGET, _TRUTH),
)
