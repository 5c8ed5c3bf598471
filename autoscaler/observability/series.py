"""Defines all metrics, in a registry of their own. docs/metrics.md lists them."""

import platform
from collections.abc import Iterable, Iterator, Mapping

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from autoscaler.model.accounting import RunState, WaitStage
from autoscaler.model.deliveries import DeliveryAnswer
from autoscaler.model.identifiers import ProviderName, SkuName
from autoscaler.model.prices_and_quotas import READ_AS, PriceSource, QuotaSource
from autoscaler.model.reasons.table import Unmatched
from autoscaler.model.wait_objectives import WAIT_BUCKETS

RUN_BUCKETS = (60, 300, 600, 1200, 1800, 3600, 5400, 7200, 10800, 14400, 21600, 43200, 86400)
"""Seconds. A push to PyTorch takes 3 hours at the median."""

LAG_BUCKETS = (1, 2, 5, 10, 30, 60, 300, 900, 3600)
"""Seconds. GitHub's times are whole seconds, so the smallest bucket is one second."""

CALL_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
PASS_BUCKETS = (0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)

GAUGES: Mapping[str, tuple[str, str]] = {
    "leader": ("1 if this process leads the fleet.", ""),
    "lease_epoch": ("The number of the leader that this process knows of.", ""),
    "jobs_waiting": ("Jobs that wait for a runner.", "sku"),
    "jobs_waiting_by_reason": ("Jobs that wait, by the reason.", "sku reason"),
    "oldest_waiting_job_age_seconds": ("Age of the oldest job that waits for a runner.", "sku"),
    "jobs_without_sku": ("Queued jobs that no SKU serves now.", "reason"),
    "jobs_in_progress": ("Jobs in progress.", "sku"),
    "jobs_awaiting_approval": ("Jobs that GitHub holds back.", "sku"),
    "machines": ("Machines and unanswered slots, by state.", "sku state"),
    "machines_foreign": ("Machines with this fleet's name and the ID of another installation.", ""),
    "machines_unverified": ("Machines that may be running a job, as far as the store shows.", ""),
    "machines_not_terminating": (
        "Machines that still exist after three requests to terminate them.",
        "",
    ),
    "runners": ("Registrations, by state.", "sku state"),
    "offerings_on_hold": (
        "Offerings of the launch options that are on hold.",
        "provider capacity_type reason",
    ),
    "runner_version_deadline_timestamp_seconds": (
        "Unix time from which GitHub gives no jobs to the runner version of the SKU's machines.",
        "sku",
    ),
    "sku_circuit_open": ("1 while the circuit breaker of the SKU is open.", "sku"),
    "launch_option_circuit_open": (
        "1 while the circuit breaker of a launch option of the SKU is open.",
        "sku provider",
    ),
    "node_avoided": (
        "1 while the SKU avoids this node, because machines failed on it.",
        "sku provider node",
    ),
    "cost_dollars_per_hour": ("Present cost of the machines, in US dollars per hour.", ""),
    "github_rate_limit_remaining": (
        "Requests left in GitHub's rate limit bucket.",
        "app account resource",
    ),
    "github_rate_limit": ("Size of GitHub's rate limit bucket per hour.", "app account resource"),
    "github_clock_ahead_seconds": ("How far the controller's clock is ahead of GitHub's.", ""),
    "github_staleness_seconds": (
        "Age of the oldest data about active repositories and runs.",
        "account",
    ),
    "github_repositories_unwatched": (
        "Repositories of the scopes whose jobs are not listed.",
        "account",
    ),
    "runner_group_too_wide": (
        "1 while a runner group admits more than the access of its SKUs.",
        "account runner_group reason",
    ),
    "prices": ("Prices in use, by source.", "provider capacity_type source"),
    "prices_read_timestamp_seconds": (
        "Unix time at which the provider gave the oldest price in use, 0 if none.",
        "provider capacity_type",
    ),
    "quotas": ("Quotas, by source of their limit.", "provider source"),
    "quotas_read_timestamp_seconds": (
        "Unix time at which the provider gave the oldest quota in use, 0 if none.",
        "provider",
    ),
    "store_bytes": ("Size of the store's files.", "file"),
    "store_disk_free_bytes": ("Free bytes of the store's file system.", ""),
    "store_disk_bytes": ("Size of the store's file system.", ""),
    "event_loop_lag_max_seconds": ("Longest recent delay of a due timer of the event loop.", ""),
}
"""By name without the prefix: the text, and the names of the labels with spaces between them."""

COUNTERS: Mapping[str, tuple[str, str]] = {
    "jobs_unmatched": ("Queued jobs that no SKU serves.", "reason"),
    "jobs_completed": ("Completed jobs.", "sku conclusion"),
    "jobs_refused": ("Jobs that no SKU with their labels may run.", "sku reason"),
    "jobs_outside_access": (
        "Jobs that ran on a machine whose SKU's access does not admit them.",
        "sku reason",
    ),
    "job_wait_seconds": ("Time that jobs waited, by stage.", "sku stage"),
    "jobs_failed": ("Failed jobs, by cause.", "sku cause"),
    "workflow_run_seconds": ("Time in which workflow runs had open jobs.", "state"),
    "launches": ("Requested machines.", "sku provider capacity_type"),
    "machines_launched": ("Machines that a provider launched.", "provider capacity_type zone"),
    "launch_failures": (
        "Slots and machines that failed before they became ready.",
        "sku provider capacity_type reason",
    ),
    "offerings_refused": (
        "Offerings that a provider refused in its answers to launch requests.",
        "provider capacity_type zone reason",
    ),
    "machines_terminated": ("Machines that end, by the reason.", "sku reason"),
    "health_checks_failed": (
        "Machines that failed their health checks, by the first check that failed and the image.",
        "sku check image",
    ),
    "runner_exits": (
        "Runners that exited, by the reason that their machines report.",
        "sku reason",
    ),
    "machines_interrupted": (
        "Machines that their provider interrupts, or may interrupt.",
        "sku kind",
    ),
    "jobs_interrupted": ("Jobs whose machine was interrupted while they ran.", "sku outcome"),
    "machine_seconds": ("Time of machines, by what it bought.", "sku use"),
    "machine_dollars": ("Cost of machines in US dollars, by what it bought.", "sku use"),
    "repository_jobs_completed": ("Completed jobs of a repository.", "repository conclusion"),
    "repository_workflow_run_seconds": (
        "Time in which workflow runs of a repository had open jobs.",
        "repository state",
    ),
    "repository_machine_seconds": ("Time of machines at the jobs of a repository.", "repository"),
    "repository_machine_dollars": ("Cost of this time in US dollars.", "repository"),
    "github_requests": ("Requests to GitHub.", "endpoint outcome"),
    "github_answers": ("Answers from GitHub, by rate limit bucket.", "app account resource"),
    "provider_requests": ("Requests to providers.", "provider operation outcome"),
    "notices": ("Messages in the providers' interruption queues.", "provider kind"),
    "deliveries": ("Webhook deliveries.", "outcome"),
    "bootstrap_requests": ("Requests from machines' agents.", "step outcome"),
}
"""As above. The library adds `_total` to the names."""

HISTOGRAMS: Mapping[str, tuple[tuple[float, ...], str, str]] = {
    "job_queue_duration_seconds": (WAIT_BUCKETS, "Time from queued to in progress.", "sku"),
    "job_wait_stage_duration_seconds": (
        WAIT_BUCKETS,
        "Time that a job waited in a stage.",
        "stage",
    ),
    "workflow_run_duration_seconds": (
        RUN_BUCKETS,
        "Time in which a workflow run had open jobs without a pause.",
        "",
    ),
    "repository_job_queue_duration_seconds": (
        WAIT_BUCKETS,
        "Time from queued to in progress, of the repositories in metrics.repositories.",
        "repository",
    ),
    "github_request_duration_seconds": (
        CALL_BUCKETS,
        "Duration of requests to GitHub.",
        "endpoint",
    ),
    "provider_request_duration_seconds": (
        CALL_BUCKETS,
        "Duration of requests to providers.",
        "provider operation",
    ),
    "delivery_lag_seconds": (
        LAG_BUCKETS,
        "Time from the start or end of a job to its first delivery.",
        "",
    ),
    "store_write_duration_seconds": (
        PASS_BUCKETS,
        "Duration of durable writes to the store.",
        "operation",
    ),
    "reconcile_duration_seconds": (PASS_BUCKETS, "Duration of one reconciliation.", ""),
}
"""As above, after the upper bounds of the buckets. Each has one without a bound, too."""

OF_EVERY_REPLICA = frozenset(
    (
        "build",
        "leader",
        "lease_epoch",
        "deliveries",
        "store_write_duration_seconds",
        "event_loop_lag_max_seconds",
    )
)
"""What a replica that does not lead has, too: it knows no jobs and machines, so 0 would be wrong."""


class Series:
    """All metrics, with the prefix `autoscaler_`, and those of the process."""

    def __init__(
        self,
        version: str,
        skus: Iterable[SkuName],
        providers: Iterable[ProviderName],
        *,
        webhooks: bool,
    ) -> None:
        """`version` is the version of this program. `skus` and `providers` are the configured names.

        Without `webhooks` no series of deliveries exists: the alert on their absence reads them.
        """
        self._registry = CollectorRegistry()
        build = Info(
            "autoscaler_build", "Version of this program and of Python.", registry=self._registry
        )
        build.info({"version": version, "python": platform.python_version()})
        ProcessCollector(registry=self._registry)
        self.gauges = {
            name: Gauge(f"autoscaler_{name}", text, labels.split(), registry=self._registry)
            for name, (text, labels) in GAUGES.items()
        }
        self.counters = {
            name: Counter(f"autoscaler_{name}", text, labels.split(), registry=self._registry)
            for name, (text, labels) in COUNTERS.items()
        }
        self.histograms = {
            name: Histogram(
                f"autoscaler_{name}", text, labels.split(), registry=self._registry, buckets=buckets
            )
            for name, (buckets, text, labels) in HISTOGRAMS.items()
        }
        self.leads = True
        """Whether this process leads the fleet. Otherwise it shows the metrics of OF_EVERY_REPLICA."""
        self.shown: dict[tuple[Gauge, tuple[str, ...]], float] = {}
        """Present values of the gauges that `Telemetry.fleet` sets."""
        self._show_zeroes(skus)
        if webhooks:
            for answer in DeliveryAnswer:
                self.counters["deliveries"].labels(answer.value)
        self._show_no_readings(providers)

    content_type = CONTENT_TYPE_LATEST

    def render(self) -> Iterator[bytes]:
        """Yield all metrics in Prometheus' text format, one at a time. The media type is `content_type`."""
        for metric in self._registry.collect():
            prefix, _, name = metric.name.partition("_")
            if prefix == "autoscaler" and not self.leads and name not in OF_EVERY_REPLICA:
                continue
            yield generate_latest(_WithoutCreated(metric))

    def _show_zeroes(self, skus: Iterable[SkuName]) -> None:
        """Let the series exist whose number does not grow with SKUs times reasons (docs/metrics.md)."""
        for reason in Unmatched:
            self.counters["jobs_unmatched"].labels(reason.value)
            self.gauges["jobs_without_sku"].labels(reason.value)
        for stage in WaitStage:
            self.histograms["job_wait_stage_duration_seconds"].labels(stage.value)
        for state in RunState:
            self.counters["workflow_run_seconds"].labels(state.value)
        for sku in skus:
            self.histograms["job_queue_duration_seconds"].labels(sku)
            for name in _OF_SKUS:
                self.gauges[name].labels(sku).set(0)
                self.shown[self.gauges[name], (sku,)] = 0

    def _show_no_readings(self, providers: Iterable[ProviderName]) -> None:
        gauges = self.gauges
        for provider in providers:
            gauges["quotas_read_timestamp_seconds"].labels(provider)
            for known_from in QuotaSource:
                gauges["quotas"].labels(provider, known_from.value)
            for kind in READ_AS:
                gauges["prices_read_timestamp_seconds"].labels(provider, kind.value)
                for source in PriceSource:
                    gauges["prices"].labels(provider, kind.value, source.value)


_OF_SKUS = (
    "jobs_waiting",
    "oldest_waiting_job_age_seconds",
    "jobs_in_progress",
    "sku_circuit_open",
)


class _WithoutCreated(Collector):
    """A metric without its `_created` samples, a third of all series, which nothing here uses.

    The library can only disable them for the whole process.
    """

    def __init__(self, metric: Metric) -> None:
        metric.samples = [s for s in metric.samples if not s.name.endswith("_created")]
        self._metric = metric

    def collect(self) -> Iterable[Metric]:
        return (self._metric,)
