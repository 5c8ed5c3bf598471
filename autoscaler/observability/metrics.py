"""Implements the `Telemetry` port with Prometheus metrics. Each label has a bounded set of values."""

import math
from collections.abc import Iterable, Mapping

from prometheus_client import CONTENT_TYPE_LATEST, Counter, Gauge, Histogram

from autoscaler.controller.ports.telemetry import FleetCounts
from autoscaler.model.access import OUTSIDE_ACCESS_REASONS
from autoscaler.model.accounting import FailureCause, MachineUse, RunState, WaitStage
from autoscaler.model.catalogue import CapacityType
from autoscaler.model.deliveries import DeliveryAnswer
from autoscaler.model.failures import HEALTH_CHECKS, FailureClass
from autoscaler.model.identifiers import Instant, ProviderName, Seconds, SkuName
from autoscaler.model.interruptions import NoticeKind, RerunOutcome
from autoscaler.model.jobs import Admission
from autoscaler.model.machines import ExitReason, TerminationReason
from autoscaler.model.prices import PriceSource
from autoscaler.model.quotas import QuotaSource
from autoscaler.model.unmatched import Unmatched
from autoscaler.observability.labels import BoundedLabel
from autoscaler.observability.series import Series

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


class PrometheusTelemetry:
    """A `Telemetry` with its own registry, for use by one event loop. `render` may run in another thread."""

    content_type = CONTENT_TYPE_LATEST

    def __init__(
        self,
        skus: Iterable[SkuName],
        providers: Iterable[ProviderName],
        version: str,
        repositories: Iterable[str] = (),
    ) -> None:
        """`skus` and `providers` are the configured names, `version` is the version of this program.

        `repositories` are those that have series of their own.
        """
        skus, providers = tuple(skus), tuple(providers)
        self._repositories = {name.lower(): name for name in repositories}
        self._holds: dict[tuple[str, str, str], int] = {}
        self._series = Series(skus, providers, version)
        self._shown = self._series.shown
        self._bound_labels(skus, providers)

    def render(self) -> bytes:
        """Return all metrics in Prometheus' text format. Its media type is `content_type`."""
        return self._series.render()

    def github_call(self, endpoint: str, outcome: str, duration: Seconds) -> None:
        """See `Telemetry.github_call`."""
        route = self._endpoint.value(endpoint)
        self._series.github_requests.labels(route, self._github_outcome.value(outcome)).inc()
        _observe(self._series.github_seconds.labels(route), duration)

    def github_budget(
        self, app: int, account: str, resource: str, remaining: int | None, limit: int | None
    ) -> None:
        """See `Telemetry.github_budget`."""
        values = (
            self._app.value(str(app)),
            self._account.value(account),
            self._resource.value(resource),
        )
        self._series.github_answers.labels(*values).inc()
        if remaining is not None:
            self._series.github_remaining.labels(*values).set(remaining)
        if limit is not None:
            self._series.github_limit.labels(*values).set(limit)

    def github_staleness(self, account: str, seconds: Seconds) -> None:
        """See `Telemetry.github_staleness`."""
        self._series.github_staleness.labels(self._account.value(account)).set(max(seconds, 0.0))

    def github_unwatched(self, account: str, repositories: int) -> None:
        """See `Telemetry.github_unwatched`."""
        self._series.github_unwatched.labels(self._account.value(account)).set(repositories)

    def runner_group(self, account: str, group: str, reason: str, too_wide: bool) -> None:
        """See `Telemetry.runner_group`."""
        values = self._account.value(account), self._group.value(group), self._wide.value(reason)
        self._series.group_too_wide.labels(*values).set(too_wide)

    def provider_call(
        self, provider: ProviderName, operation: str, outcome: str, duration: Seconds
    ) -> None:
        """See `Telemetry.provider_call`."""
        name = self._provider.value(provider)
        what = self._operation.value(operation)
        self._series.provider_requests.labels(
            name, what, self._provider_outcome.value(outcome)
        ).inc()
        _observe(self._series.provider_seconds.labels(name, what), duration)

    def delivery(self, answer: DeliveryAnswer) -> None:
        """See `Telemetry.delivery`."""
        self._series.deliveries.labels(answer.value).inc()

    def bootstrap(self, step: str, answer: str) -> None:
        """See `Telemetry.bootstrap`."""
        values = self._step.value(step), self._bootstrap_answer.value(answer)
        self._series.bootstrap.labels(*values).inc()

    def job_started(self, sku: SkuName, repository: str, waited: Seconds) -> None:
        """See `Telemetry.job_started`."""
        _observe(self._series.queue_seconds.labels(self._sku.value(sku)), waited)
        if (name := self._repositories.get(repository.lower())) is not None:
            _observe(self._series.repository_queue_seconds.labels(name), waited)

    def job_waited(self, sku: SkuName, stages: Mapping[WaitStage, Seconds]) -> None:
        """See `Telemetry.job_waited`."""
        name = self._sku.value(sku)
        for stage, seconds in stages.items():
            _add(self._series.wait_seconds.labels(name, stage.value), seconds)
            _observe(self._series.stage_seconds.labels(stage.value), seconds)

    def job_completed(self, sku: SkuName, repository: str, conclusion: str) -> None:
        """See `Telemetry.job_completed`."""
        values = self._sku.value(sku), self._conclusion.value(conclusion)
        self._series.completed.labels(*values).inc()
        if (name := self._repositories.get(repository.lower())) is not None:
            self._series.repository_completed.labels(name, values[1]).inc()

    def job_failed(self, sku: SkuName, cause: FailureCause) -> None:
        """See `Telemetry.job_failed`."""
        self._series.failed.labels(self._sku.value(sku), cause.value).inc()

    def machine_used(
        self, sku: SkuName, use: MachineUse, seconds: Seconds, dollars: float, repository: str
    ) -> None:
        """See `Telemetry.machine_used`."""
        values = self._sku.value(sku), use.value
        _add(self._series.machine_seconds.labels(*values), seconds)
        _add(self._series.machine_dollars.labels(*values), dollars)
        if (name := self._repositories.get(repository.lower())) is not None:
            _add(self._series.repository_seconds.labels(name), seconds)
            _add(self._series.repository_dollars.labels(name), dollars)

    def run_time(self, repository: str, state: RunState, seconds: Seconds) -> None:
        """See `Telemetry.run_time`."""
        _add(self._series.run_seconds.labels(state.value), seconds)
        if (name := self._repositories.get(repository.lower())) is not None:
            _add(self._series.repository_run_seconds.labels(name, state.value), seconds)

    def run_ended(self, repository: str, duration: Seconds) -> None:  # noqa: ARG002
        """See `Telemetry.run_ended`."""
        _observe(self._series.run_duration, duration)

    def store_write(self, operation: str, duration: Seconds) -> None:
        """See `Telemetry.store_write`."""
        _observe(self._series.store_writes.labels(self._write.value(operation)), duration)

    def store_size(self, file: int, write_ahead_log: int) -> None:
        """See `Telemetry.store_size`."""
        self._series.store_bytes.labels("store").set(file)
        self._series.store_bytes.labels("write_ahead_log").set(write_ahead_log)

    def offerings_on_hold(
        self, counts: Mapping[tuple[ProviderName, CapacityType, FailureClass], int]
    ) -> None:
        """See `Telemetry.offerings_on_hold`."""
        now = dict.fromkeys(self._holds, 0)
        for (provider, kind, reason), count in counts.items():
            key = (self._provider.value(provider), kind.value, reason.value)
            now[key] = now.get(key, 0) + count
        for key, count in now.items():
            self._series.holds.labels(*key).set(count)
        self._holds = now

    def delivery_lag(self, seconds: Seconds) -> None:
        """See `Telemetry.delivery_lag`."""
        _observe(self._series.delivery_lag, seconds)

    def job_unmatched(self, reason: Unmatched) -> None:
        """See `Telemetry.job_unmatched`."""
        self._series.unmatched.labels(reason.value).inc()

    def job_refused(self, sku: SkuName, code: str) -> None:
        """See `Telemetry.job_refused`."""
        self._series.refused.labels(self._sku.value(sku), self._code.value(code)).inc()

    def job_outside_access(self, sku: SkuName, reason: str) -> None:
        """See `Telemetry.job_outside_access`."""
        values = self._sku.value(sku), self._access.value(reason)
        self._series.outside_access.labels(*values).inc()

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
            self._series.prices.labels(*place, source.value).set(sources.get(source, 0))
        self._series.prices_read_at.labels(*place).set(read_at or 0.0)

    def quotas(
        self, provider: ProviderName, sources: Mapping[QuotaSource, int], read_at: Instant | None
    ) -> None:
        """See `Telemetry.quotas`."""
        place = self._provider.value(provider)
        for source in QuotaSource:
            self._series.quotas.labels(place, source.value).set(sources.get(source, 0))
        self._series.quotas_read_at.labels(place).set(read_at or 0.0)

    def launches(
        self, sku: SkuName, provider: ProviderName, capacity_type: CapacityType, count: int
    ) -> None:
        """See `Telemetry.launches`."""
        values = self._sku.value(sku), self._provider.value(provider), capacity_type.value
        self._series.launches.labels(*values).inc(max(count, 0))

    def launch_failures(
        self,
        sku: SkuName,
        provider: ProviderName,
        capacity_type: CapacityType | None,
        failure: FailureClass,
        count: int,
    ) -> None:
        """See `Telemetry.launch_failures`."""
        kind = capacity_type.value if capacity_type is not None else "unknown"
        values = self._sku.value(sku), self._provider.value(provider), kind, failure.value
        self._series.failures.labels(*values).inc(max(count, 0))

    def machine_launched(
        self, provider: ProviderName, capacity_type: CapacityType, zone: str
    ) -> None:
        """See `Telemetry.machine_launched`."""
        values = self._provider.value(provider), capacity_type.value, self._zone.value(zone)
        self._series.launched.labels(*values).inc()

    def machine_terminated(self, sku: SkuName, reason_code: TerminationReason) -> None:
        """See `Telemetry.machine_terminated`."""
        self._series.ended.labels(self._sku.value(sku), reason_code.value).inc()

    def health_check_failed(self, sku: SkuName, check: str) -> None:
        """See `Telemetry.health_check_failed`."""
        self._series.health_checks.labels(self._sku.value(sku), self._check.value(check)).inc()

    def runner_exited(self, sku: SkuName, reason: ExitReason) -> None:
        """See `Telemetry.runner_exited`."""
        self._series.exits.labels(self._sku.value(sku), reason.value).inc()

    def notice(self, provider: ProviderName, kind: str) -> None:
        """See `Telemetry.notice`."""
        self._series.notices.labels(
            self._provider.value(provider), self._notice_kind.value(kind)
        ).inc()

    def machine_interrupted(self, sku: SkuName, kind: NoticeKind) -> None:
        """See `Telemetry.machine_interrupted`."""
        self._series.interrupted.labels(self._sku.value(sku), kind.value).inc()

    def rerun(self, sku: SkuName, outcome: RerunOutcome) -> None:
        """See `Telemetry.rerun`."""
        self._series.reruns.labels(self._sku.value(sku), outcome.value).inc()

    def loop_pass(self, duration: Seconds) -> None:
        """See `Telemetry.loop_pass`."""
        _observe(self._series.pass_seconds, duration)

    def event_loop_lag(self, longest: Seconds) -> None:
        """See `Telemetry.event_loop_lag`."""
        self._series.event_loop_lag.set(max(longest, 0.0))

    def fleet(self, counts: FleetCounts) -> None:
        """See `Telemetry.fleet`. Sets every series that `counts` does not contain to zero."""
        now: dict[tuple[Gauge, tuple[str, ...]], float] = dict.fromkeys(self._shown, 0)
        for gauge, by_sku in (
            (self._series.waiting, counts.jobs_waiting),
            (self._series.in_progress, counts.jobs_in_progress),
            (self._series.awaiting_approval, counts.jobs_awaiting_approval),
        ):
            for sku, count in by_sku.items():
                key = (gauge, (self._sku.value(sku),))
                now[key] = now.get(key, 0) + count
        for (sku, code), count in counts.waiting_reasons.items():
            reason = (self._series.waiting_reasons, (self._sku.value(sku), code.value))
            now[reason] = now.get(reason, 0) + count
        for sku, age in counts.oldest_waiting.items():
            # SKUs that left the configuration share one series, which shows the oldest job of all.
            key = (self._series.oldest_waiting, (self._sku.value(sku),))
            now[key] = max(now.get(key, 0.0), age)
        for (sku, state), count in counts.machines.items():
            place = (self._series.machines, (self._sku.value(sku), state.value))
            now[place] = now.get(place, 0) + count
        for (sku, at), count in counts.runners.items():
            place = (self._series.runners, (self._sku.value(sku), at.value))
            now[place] = now.get(place, 0) + count
        for sku in counts.circuits_open:
            now[self._series.circuit_open, (self._sku.value(sku),)] = 1
        # A series begins with its first count: most states of most SKUs are rare.
        now = {key: value for key, value in now.items() if value or key in self._shown}
        for (gauge, labels), value in now.items():
            if self._shown.get((gauge, labels)) != value:
                gauge.labels(*labels).set(value)
        self._shown = now
        self._series.foreign.set(counts.machines_foreign)
        self._series.unverified.set(counts.machines_unverified)
        self._series.not_terminating.set(counts.machines_not_terminating)
        self._series.dollars.set(counts.dollars_per_hour)

    def use_skus(self, skus: Iterable[SkuName]) -> None:
        """Use these names as label values, too: the configuration has changed."""
        self._sku.allow(skus)

    def _bound_labels(self, skus: tuple[SkuName, ...], providers: tuple[ProviderName, ...]) -> None:
        # One per label, so that many values of one label do not use up those of another label.
        self._sku = BoundedLabel(skus)
        self._provider = BoundedLabel(providers)
        self._conclusion = BoundedLabel(CONCLUSIONS)
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
        self._check = BoundedLabel(HEALTH_CHECKS)
        self._code = BoundedLabel(Admission)
        self._access = BoundedLabel(OUTSIDE_ACCESS_REASONS)
        self._zone = BoundedLabel(extra=64)
        self._write = BoundedLabel(("commit", "accept"))
        self._step = BoundedLabel(extra=24)
        self._bootstrap_answer = BoundedLabel(extra=27)


def _add(counter: Counter, amount: float) -> None:
    if math.isfinite(amount):
        counter.inc(max(amount, 0.0))


def _observe(histogram: Histogram, seconds: Seconds) -> None:
    # NaN would make the sum NaN for ever. A clock that was set back would give a negative duration.
    if math.isfinite(seconds):
        histogram.observe(max(seconds, 0.0))
