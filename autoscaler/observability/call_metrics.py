"""Implements the parts of the `Telemetry` port about calls, the server, the store and the control loop."""

import math
from collections.abc import Mapping

from prometheus_client import Counter, Histogram

from autoscaler.controller.ports.telemetry import Telemetry
from autoscaler.model.catalogue import CapacityType
from autoscaler.model.deliveries import DeliveryAnswer
from autoscaler.model.identifiers import Instant, ProviderName, Seconds
from autoscaler.model.machines.interruptions import NoticeKind
from autoscaler.model.prices_and_quotas import PriceSource, QuotaSource
from autoscaler.observability.labels import BoundedLabel
from autoscaler.observability.series import Series


class CallMetrics(Telemetry):
    """Reports what the controller calls, and who calls the controller."""

    def __init__(self, series: Series, provider: BoundedLabel) -> None:
        """`provider` is the label that metrics of machines use, too."""
        self._gauges = series.gauges
        self._counters = series.counters
        self._histograms = series.histograms
        self._provider = provider
        # One per label, so that many values of one label do not use up those of another label.
        self._endpoint = BoundedLabel(extra=64)
        self._github_outcome = BoundedLabel(extra=48)
        self._app = BoundedLabel(extra=32)
        self._account = BoundedLabel(("",), extra=64)
        self._group = BoundedLabel(extra=64)
        self._wide = BoundedLabel(("public_repositories", "outside_access"))
        self._resource = BoundedLabel(extra=16)
        self._operation = BoundedLabel(extra=48)
        self._provider_outcome = BoundedLabel(extra=64)
        self._notice_kind = BoundedLabel((*NoticeKind, "other", "poison"))
        self._write = BoundedLabel(("commit", "accept"))
        self._step = BoundedLabel(extra=24)
        self._bootstrap_answer = BoundedLabel(extra=27)

    def github_call(self, endpoint: str, outcome: str, duration: Seconds) -> None:
        """See `Telemetry.github_call`."""
        route = self._endpoint.value(endpoint)
        self._counters["github_requests"].labels(route, self._github_outcome.value(outcome)).inc()
        observe(self._histograms["github_request_duration_seconds"].labels(route), duration)

    def github_clock(self, ahead: Seconds) -> None:
        """See `Telemetry.github_clock`."""
        self._gauges["github_clock_ahead_seconds"].set(ahead)

    def github_budget(
        self, app: int, account: str, resource: str, remaining: int | None, limit: int | None
    ) -> None:
        """See `Telemetry.github_budget`."""
        values = self._bucket(app, account, resource)
        self._counters["github_answers"].labels(*values).inc()
        if remaining is not None:
            self._gauges["github_rate_limit_remaining"].labels(*values).set(remaining)
        if limit is not None:
            self._gauges["github_rate_limit"].labels(*values).set(limit)

    def _bucket(self, app: int, account: str, resource: str) -> tuple[str, str, str]:
        """Return the labels of one of GitHub's rate limits."""
        return (
            self._app.value(str(app)),
            self._account.value(account),
            self._resource.value(resource),
        )

    def github_staleness(self, account: str, seconds: Seconds) -> None:
        """See `Telemetry.github_staleness`."""
        self._gauges["github_staleness_seconds"].labels(self._account.value(account)).set(
            max(seconds, 0.0)
        )

    def github_unwatched(self, account: str, repositories: int) -> None:
        """See `Telemetry.github_unwatched`."""
        self._gauges["github_repositories_unwatched"].labels(self._account.value(account)).set(
            repositories
        )

    def runner_group(self, account: str, group: str, reason: str, too_wide: bool) -> None:
        """See `Telemetry.runner_group`."""
        values = self._account.value(account), self._group.value(group), self._wide.value(reason)
        self._gauges["runner_group_too_wide"].labels(*values).set(too_wide)

    def provider_call(
        self, provider: ProviderName, operation: str, outcome: str, duration: Seconds
    ) -> None:
        """See `Telemetry.provider_call`."""
        name = self._provider.value(provider)
        what = self._operation.value(operation)
        self._counters["provider_requests"].labels(
            name, what, self._provider_outcome.value(outcome)
        ).inc()
        observe(self._histograms["provider_request_duration_seconds"].labels(name, what), duration)

    def delivery(self, answer: DeliveryAnswer) -> None:
        """See `Telemetry.delivery`."""
        self._counters["deliveries"].labels(answer.value).inc()

    def delivery_lag(self, seconds: Seconds) -> None:
        """See `Telemetry.delivery_lag`."""
        observe(self._histograms["delivery_lag_seconds"], seconds)

    def bootstrap(self, step: str, answer: str) -> None:
        """See `Telemetry.bootstrap`."""
        values = self._step.value(step), self._bootstrap_answer.value(answer)
        self._counters["bootstrap_requests"].labels(*values).inc()

    def prices(
        self,
        provider: ProviderName,
        capacity_type: CapacityType,
        sources: Mapping[PriceSource, int],
        read_at: Instant | None,
    ) -> None:
        """See `Telemetry.prices`."""
        place = self._provider.value(provider), capacity_type.value
        for source in PriceSource:
            self._gauges["prices"].labels(*place, source.value).set(sources.get(source, 0))
        self._gauges["prices_read_timestamp_seconds"].labels(*place).set(read_at or 0.0)

    def quotas(
        self, provider: ProviderName, sources: Mapping[QuotaSource, int], read_at: Instant | None
    ) -> None:
        """See `Telemetry.quotas`."""
        place = self._provider.value(provider)
        for source in QuotaSource:
            self._gauges["quotas"].labels(place, source.value).set(sources.get(source, 0))
        self._gauges["quotas_read_timestamp_seconds"].labels(place).set(read_at or 0.0)

    def notice(self, provider: ProviderName, kind: str) -> None:
        """See `Telemetry.notice`."""
        self._counters["notices"].labels(
            self._provider.value(provider), self._notice_kind.value(kind)
        ).inc()

    def store_write(self, operation: str, duration: Seconds) -> None:
        """See `Telemetry.store_write`."""
        observe(
            self._histograms["store_write_duration_seconds"].labels(self._write.value(operation)),
            duration,
        )

    def store_size(self, file: int, write_ahead_log: int) -> None:
        """See `Telemetry.store_size`."""
        self._gauges["store_bytes"].labels("store").set(file)
        self._gauges["store_bytes"].labels("write_ahead_log").set(write_ahead_log)

    def reconciliation(self, duration: Seconds) -> None:
        """See `Telemetry.reconciliation`."""
        observe(self._histograms["reconcile_duration_seconds"], duration)

    def event_loop_lag(self, longest: Seconds) -> None:
        """See `Telemetry.event_loop_lag`."""
        self._gauges["event_loop_lag_max_seconds"].set(max(longest, 0.0))


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
