"""Implements the parts of the `Telemetry` port about calls, the server, the store and the control loop."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from prometheus_client import Counter, Histogram

from autoscaler.controller.ports.telemetry import Telemetry
from autoscaler.model.catalogue import CapacityType
from autoscaler.model.deliveries import DeliveryAnswer
from autoscaler.model.identifiers import Instant, ProviderName, Seconds, SkuName
from autoscaler.model.jobs.job import Admission
from autoscaler.model.jobs.runner_group_excess import OUTSIDE_ACCESS_REASONS
from autoscaler.model.machines.failures import HEALTH_CHECKS
from autoscaler.model.machines.interruptions import NoticeKind
from autoscaler.model.prices_and_quotas import PriceSource, QuotaSource
from autoscaler.observability.labels import IMAGE, UNKNOWN_IMAGE, BoundedLabel
from autoscaler.observability.watched import WatchedSeries

CONCLUSIONS = (
    "success",
    "failure",
    "cancelled",
    "skipped",
    "timed_out",
    "action_required",
    "neutral",
    "stale",
    "startup_failure",
)
"""GitHub's conclusions of a completed job (docs.github.com: REST API, workflow jobs)."""


def counts(counter: str, *labels: str) -> Callable[..., None]:
    """Return a method of `Telemetry` that adds one to a counter. Its arguments are the values of the labels.

    The names of the labels are those of `CallMetrics.bounded`.
    """

    def report(self: "CallMetrics", *words: str) -> None:
        self.counters[counter].labels(*self.bounded(labels, words)).inc()

    return report


def observes(histogram: str, *labels: str) -> Callable[..., None]:
    """Return a method of `Telemetry` that observes a duration, its last argument; see `counts`."""

    def report(self: "CallMetrics", *arguments: Any) -> None:
        *words, duration = arguments
        found = self.histograms[histogram]
        observe(found.labels(*self.bounded(labels, words)) if labels else found, duration)

    return report


def sets(gauge: str, *labels: str, least: float = 0.0) -> Callable[..., None]:
    """Return a method of `Telemetry` that sets a gauge to its last argument, at least to `least`."""

    def report(self: "CallMetrics", *arguments: Any) -> None:
        *words, value = arguments
        found = self.gauges[gauge]
        (found.labels(*self.bounded(labels, words)) if labels else found).set(max(value, least))

    return report


class CallMetrics(WatchedSeries, Telemetry):
    """Reports what the controller calls, and who calls the controller."""

    def __init__(
        self,
        version: str,
        skus: Collection[SkuName],
        providers: Collection[ProviderName],
        now: Callable[[], Instant],
        *,
        webhooks: bool,
    ) -> None:
        """See `WatchedSeries`."""
        super().__init__(version, skus, providers, now, webhooks=webhooks)
        self._sku = BoundedLabel(skus)
        # One per label, so that many values of one label do not use up those of another label.
        self._labels = {
            "sku": self._sku,
            "conclusion": BoundedLabel(CONCLUSIONS),
            "check": BoundedLabel(HEALTH_CHECKS),
            "image": BoundedLabel((UNKNOWN_IMAGE,), extra=32, form=IMAGE),
            "refusal": BoundedLabel(Admission),
            "access": BoundedLabel(OUTSIDE_ACCESS_REASONS),
            "zone": BoundedLabel(("",), extra=64),
            "provider": BoundedLabel(providers),
            "endpoint": BoundedLabel(extra=64),
            "github_outcome": BoundedLabel(extra=48),
            "app": BoundedLabel(extra=32),
            "account": BoundedLabel(("",), extra=64),
            "group": BoundedLabel(extra=64),
            "wide": BoundedLabel(("public_repositories", "outside_access")),
            "resource": BoundedLabel(extra=16),
            "operation": BoundedLabel(extra=48),
            "provider_outcome": BoundedLabel(extra=64),
            "notice_kind": BoundedLabel((*NoticeKind, "other", "poison")),
            "write": BoundedLabel(("commit", "accept")),
            "step": BoundedLabel(extra=24),
            "bootstrap_answer": BoundedLabel(extra=27),
        }

    def bounded(self, labels: Sequence[str], words: Sequence[str]) -> tuple[str, ...]:
        """Return the values of labels for these words. The label `fixed` has the values of an enumeration."""
        pairs = zip(labels, words, strict=True)
        return tuple(
            str(word) if label == "fixed" else self._labels[label].value(word)
            for label, word in pairs
        )

    github_clock = sets("github_clock_ahead_seconds", least=-math.inf)
    github_staleness = sets("github_staleness_seconds", "account")
    github_unwatched = sets("github_repositories_unwatched", "account")
    delivery_lag = observes("delivery_lag_seconds")
    bootstrap = counts("bootstrap_requests", "step", "bootstrap_answer")
    notice = counts("notices", "provider", "notice_kind")
    reconciliation = observes("reconcile_duration_seconds")
    event_loop_lag = sets("event_loop_lag_max_seconds")

    def github_call(self, endpoint: str, outcome: str, duration: Seconds) -> None:
        """See `Telemetry.github_call`."""
        values = self.bounded(("endpoint", "github_outcome"), (endpoint, outcome))
        self.counters["github_requests"].labels(*values).inc()
        observe(self.histograms["github_request_duration_seconds"].labels(values[0]), duration)

    def github_budget(
        self, app: int, account: str, resource: str, remaining: int | None, limit: int | None
    ) -> None:
        """See `Telemetry.github_budget`."""
        values = self.bounded(("app", "account", "resource"), (str(app), account, resource))
        self.counters["github_answers"].labels(*values).inc()
        if remaining is not None:
            self.gauges["github_rate_limit_remaining"].labels(*values).set(remaining)
        if limit is not None:
            self.gauges["github_rate_limit"].labels(*values).set(limit)
        if remaining is not None and limit:
            self._budgets[values] = self._now()

    def delivery(self, answer: DeliveryAnswer) -> None:
        """See `Telemetry.delivery`."""
        self.counters["deliveries"].labels(answer.value).inc()
        self._note_delivery(answer)

    def store_write(self, operation: str, duration: Seconds) -> None:
        """See `Telemetry.store_write`."""
        label = self._labels["write"].value(operation)
        observe(self.histograms["store_write_duration_seconds"].labels(label), duration)
        self._note_write(label, duration)

    def runner_group(self, account: str, group: str, reason: str, too_wide: bool) -> None:
        """See `Telemetry.runner_group`."""
        values = self.bounded(("account", "group", "wide"), (account, group, reason))
        self.gauges["runner_group_too_wide"].labels(*values).set(too_wide)

    def provider_call(
        self, provider: ProviderName, operation: str, outcome: str, duration: Seconds
    ) -> None:
        """See `Telemetry.provider_call`."""
        words = provider, operation, outcome
        values = self.bounded(("provider", "operation", "provider_outcome"), words)
        self.counters["provider_requests"].labels(*values).inc()
        place = self.histograms["provider_request_duration_seconds"].labels(*values[:2])
        observe(place, duration)

    def prices(
        self,
        provider: ProviderName,
        capacity_type: CapacityType,
        sources: Mapping[PriceSource, int],
        read_at: Instant | None,
    ) -> None:
        """See `Telemetry.prices`."""
        place = self._labels["provider"].value(provider), capacity_type.value
        for source in PriceSource:
            self.gauges["prices"].labels(*place, source.value).set(sources.get(source, 0))
        self.gauges["prices_read_timestamp_seconds"].labels(*place).set(read_at or 0.0)

    def quotas(
        self, provider: ProviderName, sources: Mapping[QuotaSource, int], read_at: Instant | None
    ) -> None:
        """See `Telemetry.quotas`."""
        place = self._labels["provider"].value(provider)
        for source in QuotaSource:
            self.gauges["quotas"].labels(place, source.value).set(sources.get(source, 0))
        self.gauges["quotas_read_timestamp_seconds"].labels(place).set(read_at or 0.0)

    def store_size(self, file: int, write_ahead_log: int) -> None:
        """See `Telemetry.store_size`."""
        self.gauges["store_bytes"].labels("store").set(file)
        self.gauges["store_bytes"].labels("write_ahead_log").set(write_ahead_log)

    def store_disk(self, free: int, size: int) -> None:
        """See `Telemetry.store_disk`."""
        self.gauges["store_disk_free_bytes"].set(free)
        self.gauges["store_disk_bytes"].set(size)


def add(counter: Counter, amount: float) -> None:
    """Add an amount, if it is a number. A negative one counts as nothing."""
    if math.isfinite(amount):
        counter.inc(max(amount, 0.0))


def observe(histogram: Histogram, seconds: Seconds) -> None:
    """Observe a duration, if it is a number.

    NaN would make the sum NaN for ever. A clock that was set back would give a negative duration.
    """
    if math.isfinite(seconds):
        histogram.observe(max(seconds, 0.0))
