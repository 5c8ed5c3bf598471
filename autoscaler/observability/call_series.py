"""Defines the metrics of calls, of the server, of the store and of the control loop."""

from collections.abc import Iterable

from autoscaler.model.deliveries import DeliveryAnswer
from autoscaler.model.identifiers import ProviderName
from autoscaler.model.prices_and_quotas import READ_AS, PriceSource, QuotaSource
from autoscaler.observability.registry import Registry

LAG_BUCKETS = (1, 2, 5, 10, 30, 60, 300, 900, 3600)
"""Seconds. GitHub's times are whole seconds, so the smallest bucket is one second."""

CALL_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
PASS_BUCKETS = (0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)


class CallSeries:
    """GitHub, providers, their prices and quotas, deliveries, machines' requests, the store and the loop."""

    def __init__(self, registry: Registry, providers: Iterable[ProviderName]) -> None:
        """`providers` are the configured names."""
        self._make_github(registry)
        self._make_providers(registry)
        self._make_process(registry)
        for answer in DeliveryAnswer:
            self.deliveries.labels(answer.value)
        self._show_no_readings(tuple(providers))

    def _make_github(self, registry: Registry) -> None:
        self.github_requests = registry.counter(
            "github_requests", "Requests to GitHub.", ("endpoint", "outcome")
        )
        self.github_seconds = registry.histogram(
            "github_request_duration_seconds",
            "Duration of requests to GitHub.",
            ("endpoint",),
            CALL_BUCKETS,
        )
        bucket = ("app", "account", "resource")
        self.github_answers = registry.counter(
            "github_answers", "Answers from GitHub, by rate limit bucket.", bucket
        )
        self.github_remaining = registry.gauge(
            "github_rate_limit_remaining", "Requests left in GitHub's rate limit bucket.", bucket
        )
        self.github_limit = registry.gauge(
            "github_rate_limit", "Size of GitHub's rate limit bucket per hour.", bucket
        )
        self.github_clock = registry.gauge(
            "github_clock_ahead_seconds",
            "How far the controller's clock is ahead of GitHub's.",
            (),
        )
        self.github_staleness = registry.gauge(
            "github_staleness_seconds",
            "Age of the oldest data about active repositories and runs.",
            ("account",),
        )
        self.github_unwatched = registry.gauge(
            "github_repositories_unwatched",
            "Repositories of the scopes whose jobs are not listed.",
            ("account",),
        )
        self.group_too_wide = registry.gauge(
            "runner_group_too_wide",
            "1 while a runner group admits more than the access of its SKUs.",
            ("account", "runner_group", "reason"),
        )

    def _make_providers(self, registry: Registry) -> None:
        self.provider_requests = registry.counter(
            "provider_requests", "Requests to providers.", ("provider", "operation", "outcome")
        )
        self.provider_seconds = registry.histogram(
            "provider_request_duration_seconds",
            "Duration of requests to providers.",
            ("provider", "operation"),
            CALL_BUCKETS,
        )
        self.notices = registry.counter(
            "notices", "Messages in the providers' interruption queues.", ("provider", "kind")
        )
        self.prices = registry.gauge(
            "prices",
            "Prices in use, by source.",
            ("provider", "capacity_type", "source"),
        )
        self.prices_read_at = registry.gauge(
            "prices_read_timestamp_seconds",
            "Unix time at which the provider gave the oldest price in use, 0 if none.",
            ("provider", "capacity_type"),
        )
        self.quotas = registry.gauge(
            "quotas", "Quotas, by source of their limit.", ("provider", "source")
        )
        self.quotas_read_at = registry.gauge(
            "quotas_read_timestamp_seconds",
            "Unix time at which the provider gave the oldest quota in use, 0 if none.",
            ("provider",),
        )

    def _make_process(self, registry: Registry) -> None:
        self.deliveries = registry.counter("deliveries", "Webhook deliveries.", ("outcome",))
        self.delivery_lag = registry.histogram(
            "delivery_lag_seconds",
            "Time from the start or end of a job to its first delivery.",
            (),
            LAG_BUCKETS,
        )
        self.store_writes = registry.histogram(
            "store_write_duration_seconds",
            "Duration of durable writes to the store.",
            ("operation",),
            PASS_BUCKETS,
        )
        self.store_bytes = registry.gauge("store_bytes", "Size of the store's files.", ("file",))
        self.bootstrap = registry.counter(
            "bootstrap_requests", "Requests from machines' agents.", ("step", "outcome")
        )
        self.reconcile_seconds = registry.histogram(
            "reconcile_duration_seconds",
            "Duration of one reconciliation.",
            (),
            PASS_BUCKETS,
        )
        self.event_loop_lag = registry.gauge(
            "event_loop_lag_max_seconds",
            "Longest recent delay of a due timer of the event loop.",
            (),
        )

    def _show_no_readings(self, providers: tuple[ProviderName, ...]) -> None:
        for provider in providers:
            self.quotas_read_at.labels(provider)
            for known_from in QuotaSource:
                self.quotas.labels(provider, known_from.value)
            for kind in READ_AS:
                self.prices_read_at.labels(provider, kind.value)
                for source in PriceSource:
                    self.prices.labels(provider, kind.value, source.value)
