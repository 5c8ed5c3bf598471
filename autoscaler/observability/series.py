"""Defines every metric: name, help text and labels. docs/metrics.md lists them, and a test compares both.

The counters and gauges of configured SKUs exist from the start, at zero.
"""

import platform
from collections.abc import Iterable

from prometheus_client import (
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
from autoscaler.model.prices import READ_AS, PriceSource
from autoscaler.model.quotas import QuotaSource
from autoscaler.model.unmatched import Unmatched

WAIT_BUCKETS = (5, 10, 20, 30, 60, 90, 120, 300, 600, 1800, 3600, 7200, 21600)
"""Seconds. A job starts on a ready machine in seconds, on a new one in minutes, without capacity in hours."""

RUN_BUCKETS = (60, 300, 600, 1200, 1800, 3600, 5400, 7200, 10800, 14400, 21600, 43200, 86400)
"""Seconds. A push to PyTorch takes 3 hours at the median."""

LAG_BUCKETS = (1, 2, 5, 10, 30, 60, 300, 900, 3600)
"""Seconds. GitHub's times are whole seconds, so the smallest bucket is one second."""

CALL_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
PASS_BUCKETS = (0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)


class Series:
    """All metrics, in their own registry."""

    def __init__(
        self, skus: Iterable[SkuName], providers: Iterable[ProviderName], version: str
    ) -> None:
        """`skus` and `providers` are the configured names, `version` is the version of this program."""
        self._registry = CollectorRegistry()
        self._make_jobs()
        self._make_machines()
        self._make_use()
        self._make_repositories()
        self._make_calls()
        self._make_process(version)
        self.shown: dict[tuple[Gauge, tuple[str, ...]], float] = {}
        """Present values of the gauges that `Telemetry.fleet` sets."""
        self._show_zeroes(tuple(skus))
        self._show_no_readings(tuple(providers))

    def render(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(_WithoutCreated(self._registry))

    def _make_jobs(self) -> None:
        self.queue_seconds = self._histogram(
            "job_queue_duration_seconds", "Time from queued to in progress.", ("sku",), WAIT_BUCKETS
        )
        self.waiting = self._gauge("jobs_waiting", "Jobs that wait for a runner.", ("sku",))
        self.waiting_reasons = self._gauge(
            "jobs_waiting_by_reason", "Jobs that wait, by the reason.", ("sku", "reason")
        )
        self.oldest_waiting = self._gauge(
            "oldest_waiting_job_age_seconds",
            "Age of the oldest job that waits for a runner.",
            ("sku",),
        )
        self.unmatched = self._counter(
            "jobs_unmatched", "Queued jobs that no SKU serves.", ("reason",)
        )
        self.in_progress = self._gauge("jobs_in_progress", "Jobs in progress.", ("sku",))
        self.completed = self._counter("jobs_completed", "Completed jobs.", ("sku", "conclusion"))
        self.refused = self._counter(
            "jobs_refused", "Jobs that no SKU with their labels may run.", ("sku", "code")
        )
        self.outside_access = self._counter(
            "jobs_outside_access",
            "Jobs that ran on a machine whose SKU's access does not admit them.",
            ("sku", "reason"),
        )
        self.awaiting_approval = self._gauge(
            "jobs_awaiting_approval", "Jobs that GitHub holds back.", ("sku",)
        )
        self.wait_seconds = self._counter(
            "job_wait_seconds", "Time that jobs waited, by stage.", ("sku", "stage")
        )
        self.stage_seconds = self._histogram(
            "job_wait_stage_duration_seconds",
            "Time that a job waited in a stage.",
            ("stage",),
            WAIT_BUCKETS,
        )
        self.failed = self._counter("jobs_failed", "Failed jobs, by cause.", ("sku", "cause"))
        self.run_seconds = self._counter(
            "workflow_run_seconds", "Time in which workflow runs had open jobs.", ("state",)
        )
        self.run_duration = self._histogram(
            "workflow_run_duration_seconds",
            "Time in which a workflow run had open jobs without a pause.",
            (),
            RUN_BUCKETS,
        )

    def _make_machines(self) -> None:
        self.machines = self._gauge(
            "machines", "Machines and unanswered slots, by state.", ("sku", "state")
        )
        self.foreign = self._gauge(
            "machines_foreign",
            "Machines with this fleet's name and the ID of another installation.",
            (),
        )
        self.unverified = self._gauge(
            "machines_unverified",
            "Machines that may be running a job, as far as the store shows.",
            (),
        )
        self.not_terminating = self._gauge(
            "machines_not_terminating",
            "Machines that still exist after three requests to terminate them.",
            (),
        )
        self.runners = self._gauge("runners", "Registrations, by state.", ("sku", "state"))
        self.launches = self._counter(
            "launches", "Requested machines.", ("sku", "provider", "capacity_type")
        )
        self.launched = self._counter(
            "machines_launched",
            "Machines that a provider launched.",
            ("provider", "capacity_type", "zone"),
        )
        self.failures = self._counter(
            "launch_failures",
            "Slots and machines that failed before they became ready.",
            ("sku", "provider", "capacity_type", "reason"),
        )
        self.holds = self._gauge(
            "offerings_on_hold",
            "Offerings of the launch options that are on hold.",
            ("provider", "capacity_type", "reason"),
        )
        self.ended = self._counter(
            "machines_terminated",
            "Machines that end, by the reason.",
            ("sku", "reason"),
        )
        self.health_checks = self._counter(
            "health_checks_failed",
            "Machines that failed their health checks, by the first check that failed.",
            ("sku", "check"),
        )
        self.exits = self._counter(
            "runner_exits",
            "Runners that exited, by the reason that their machines report.",
            ("sku", "reason"),
        )
        self.circuit_open = self._gauge(
            "sku_circuit_open", "1 while the circuit breaker of the SKU is open.", ("sku",)
        )
        self.interrupted = self._counter(
            "machines_interrupted",
            "Machines that their provider interrupts, or may interrupt.",
            ("sku", "kind"),
        )
        self.reruns = self._counter(
            "jobs_interrupted",
            "Jobs whose machine was interrupted while they ran.",
            ("sku", "outcome"),
        )

    def _make_use(self) -> None:
        use = ("sku", "use")
        self.machine_seconds = self._counter(
            "machine_seconds", "Time of machines, by what it bought.", use
        )
        self.machine_dollars = self._counter(
            "machine_dollars", "Cost of machines in US dollars, by what it bought.", use
        )
        self.prices = self._gauge(
            "prices",
            "Prices in use, by source.",
            ("provider", "capacity_type", "source"),
        )
        self.prices_read_at = self._gauge(
            "prices_read_timestamp_seconds",
            "Unix time at which the provider gave the oldest price in use, 0 if none.",
            ("provider", "capacity_type"),
        )
        self.quotas = self._gauge(
            "quotas", "Quotas, by source of their limit.", ("provider", "source")
        )
        self.quotas_read_at = self._gauge(
            "quotas_read_timestamp_seconds",
            "Unix time at which the provider gave the oldest quota in use, 0 if none.",
            ("provider",),
        )
        self.dollars = self._gauge(
            "cost_dollars_per_hour", "Present cost of the machines, in US dollars per hour.", ()
        )

    def _make_repositories(self) -> None:
        one = ("repository",)
        self.repository_queue_seconds = self._histogram(
            "repository_job_queue_duration_seconds",
            "Time from queued to in progress, of the repositories in metrics.repositories.",
            one,
            WAIT_BUCKETS,
        )
        self.repository_completed = self._counter(
            "repository_jobs_completed", "Completed jobs of a repository.", (*one, "conclusion")
        )
        self.repository_run_seconds = self._counter(
            "repository_workflow_run_seconds",
            "Time in which workflow runs of a repository had open jobs.",
            (*one, "state"),
        )
        self.repository_seconds = self._counter(
            "repository_machine_seconds", "Time of machines at the jobs of a repository.", one
        )
        self.repository_dollars = self._counter(
            "repository_machine_dollars", "Cost of this time in US dollars.", one
        )

    def _make_calls(self) -> None:
        self.github_requests = self._counter(
            "github_requests", "Requests to GitHub.", ("endpoint", "outcome")
        )
        self.github_seconds = self._histogram(
            "github_request_duration_seconds",
            "Duration of requests to GitHub.",
            ("endpoint",),
            CALL_BUCKETS,
        )
        bucket = ("app", "account", "resource")
        self.github_answers = self._counter(
            "github_answers", "Answers from GitHub, by rate limit bucket.", bucket
        )
        self.github_remaining = self._gauge(
            "github_rate_limit_remaining", "Requests left in GitHub's rate limit bucket.", bucket
        )
        self.github_limit = self._gauge(
            "github_rate_limit", "Size of GitHub's rate limit bucket per hour.", bucket
        )
        self.github_staleness = self._gauge(
            "github_staleness_seconds",
            "Age of the oldest data about active repositories and runs.",
            ("account",),
        )
        self.github_unwatched = self._gauge(
            "github_repositories_unwatched",
            "Repositories of the scopes whose jobs are not listed.",
            ("account",),
        )
        self.group_too_wide = self._gauge(
            "runner_group_too_wide",
            "1 while a runner group admits more than the access of its SKUs.",
            ("account", "runner_group", "reason"),
        )
        self.provider_requests = self._counter(
            "provider_requests", "Requests to providers.", ("provider", "operation", "outcome")
        )
        self.provider_seconds = self._histogram(
            "provider_request_duration_seconds",
            "Duration of requests to providers.",
            ("provider", "operation"),
            CALL_BUCKETS,
        )
        self.notices = self._counter(
            "notices", "Messages in the providers' interruption queues.", ("provider", "kind")
        )
        self.deliveries = self._counter("deliveries", "Webhook deliveries.", ("answer",))
        self.delivery_lag = self._histogram(
            "delivery_lag_seconds",
            "Time from the start or end of a job to its first delivery.",
            (),
            LAG_BUCKETS,
        )
        self.store_writes = self._histogram(
            "store_write_duration_seconds",
            "Duration of durable writes to the store.",
            ("operation",),
            PASS_BUCKETS,
        )
        self.store_bytes = self._gauge("store_bytes", "Size of the store's files.", ("file",))
        self.bootstrap = self._counter(
            "bootstrap_requests", "Requests from machines' agents.", ("step", "answer")
        )
        self.pass_seconds = self._histogram(
            "loop_pass_duration_seconds",
            "Duration of a pass of the control loop.",
            (),
            PASS_BUCKETS,
        )
        self.event_loop_lag = self._gauge(
            "event_loop_lag_max_seconds",
            "Longest recent delay of a due timer of the event loop.",
            (),
        )

    def _make_process(self, version: str) -> None:
        build = Info(
            "autoscaler_build", "Version of this program and of Python.", registry=self._registry
        )
        build.info({"version": version, "python": platform.python_version()})
        ProcessCollector(registry=self._registry)

    def _show_zeroes(self, skus: tuple[SkuName, ...]) -> None:
        """Let the series exist whose number does not grow with SKUs times reasons (docs/metrics.md)."""
        for reason in Unmatched:
            self.unmatched.labels(reason.value)
        for answer in DeliveryAnswer:
            self.deliveries.labels(answer.value)
        for stage in WaitStage:
            self.stage_seconds.labels(stage.value)
        for state in RunState:
            self.run_seconds.labels(state.value)
        for sku in skus:
            self.queue_seconds.labels(sku)
            self._show(self.waiting, sku)
            self._show(self.oldest_waiting, sku)
            self._show(self.in_progress, sku)
            self._show(self.circuit_open, sku)

    def _show_no_readings(self, providers: tuple[ProviderName, ...]) -> None:
        for provider in providers:
            self.quotas_read_at.labels(provider)
            for known_from in QuotaSource:
                self.quotas.labels(provider, known_from.value)
            for kind in READ_AS:
                self.prices_read_at.labels(provider, kind.value)
                for source in PriceSource:
                    self.prices.labels(provider, kind.value, source.value)

    def _show(self, gauge: Gauge, *labels: str) -> None:
        gauge.labels(*labels).set(0)
        self.shown[gauge, labels] = 0

    def _gauge(self, name: str, text: str, labels: tuple[str, ...]) -> Gauge:
        return Gauge(f"autoscaler_{name}", text, labels, registry=self._registry)

    def _counter(self, name: str, text: str, labels: tuple[str, ...]) -> Counter:
        return Counter(f"autoscaler_{name}", text, labels, registry=self._registry)

    def _histogram(
        self, name: str, text: str, labels: tuple[str, ...], buckets: tuple[float, ...]
    ) -> Histogram:
        return Histogram(
            f"autoscaler_{name}", text, labels, registry=self._registry, buckets=buckets
        )


class _WithoutCreated(Collector):
    """Removes the `_created` samples, a third of all series, which nothing here uses.

    The library can only disable them for the whole process.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterable[Metric]:
        for metric in self._registry.collect():
            metric.samples = [s for s in metric.samples if not s.name.endswith("_created")]
            yield metric
