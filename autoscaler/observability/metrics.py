"""Every metric of the product, behind the `Telemetry` port. The metrics library stands only here.

It counts what it is told and decides nothing. Every label has a set of values bounded by the
configuration, and every series that a known SKU can have is there from the start, at zero.
docs/metrics.md lists them all; a test holds it to that.
"""

import math
import platform
from collections.abc import Iterable

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

from autoscaler.controller.ports.telemetry import FleetCounts
from autoscaler.model.failures import FailureClass
from autoscaler.model.identifiers import ProviderName, Seconds, SkuName
from autoscaler.model.interruptions import NoticeKind, RerunOutcome
from autoscaler.model.machines import EndGround, MachineState
from autoscaler.observability.labels import BoundedLabel

WAIT_BUCKETS = (1, 2, 5, 10, 20, 30, 45, 60, 90, 120, 180, 300, 600, 1200, 1800, 3600, 7200, 21600)
"""Seconds: a parked machine serves within a few, a cold one in minutes, a drought lasts hours."""

CALL_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
PASS_BUCKETS = (0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)

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
"""What GitHub says of a completed job (docs.github.com: REST API, workflow jobs)."""


class PrometheusTelemetry:
    """The `Telemetry` port on a registry of its own. Belongs to one event loop."""

    content_type = CONTENT_TYPE_LATEST

    def __init__(
        self, skus: Iterable[SkuName], providers: Iterable[ProviderName], version: str
    ) -> None:
        """`skus` and `providers` are the configured names, `version` the product's own."""
        self._registry = CollectorRegistry()
        self._skus = tuple(skus)
        self._providers = tuple(providers)
        self._make_jobs_and_machines()
        self._make_calls()
        self._make_process(version)
        self._bound_labels()
        self._shown: dict[tuple[Gauge, tuple[str, ...]], int] = {}
        self._show_zeroes()

    def render(self) -> bytes:
        """All metrics in Prometheus' text format; to be served as `content_type`."""
        return generate_latest(_WithoutCreated(self._registry))

    def github_call(self, endpoint: str, outcome: str, duration: Seconds) -> None:
        """See `Telemetry.github_call`."""
        route = self._endpoint.value(endpoint)
        self._github_requests.labels(route, self._github_outcome.value(outcome)).inc()
        _observe(self._github_seconds.labels(route), duration)

    def github_budget(
        self, app: int, account: str, resource: str, remaining: int | None, limit: int | None
    ) -> None:
        """See `Telemetry.github_budget`."""
        values = (
            self._app.value(str(app)),
            self._account.value(account),
            self._resource.value(resource),
        )
        self._github_answers.labels(*values).inc()
        if remaining is not None:
            self._github_remaining.labels(*values).set(remaining)
        if limit is not None:
            self._github_limit.labels(*values).set(limit)

    def github_staleness(self, account: str, seconds: Seconds) -> None:
        """See `Telemetry.github_staleness`."""
        self._github_staleness.labels(self._account.value(account)).set(max(seconds, 0.0))

    def provider_call(
        self, provider: ProviderName, operation: str, outcome: str, duration: Seconds
    ) -> None:
        """See `Telemetry.provider_call`."""
        name = self._provider.value(provider)
        what = self._operation.value(operation)
        self._provider_requests.labels(name, what, self._provider_outcome.value(outcome)).inc()
        _observe(self._provider_seconds.labels(name, what), duration)

    def delivery(self, answer: str) -> None:
        """See `Telemetry.delivery`."""
        self._deliveries.labels(self._answer.value(answer)).inc()

    def bootstrap(self, step: str, answer: str) -> None:
        """See `Telemetry.bootstrap`."""
        values = self._step.value(step), self._bootstrap_answer.value(answer)
        self._bootstrap.labels(*values).inc()

    def job_started(self, sku: SkuName, waited: Seconds) -> None:
        """See `Telemetry.job_started`."""
        _observe(self._queue_seconds.labels(self._sku.value(sku)), waited)

    def job_completed(self, sku: SkuName, conclusion: str) -> None:
        """See `Telemetry.job_completed`."""
        values = self._sku.value(sku), self._conclusion.value(conclusion)
        self._completed.labels(*values).inc()

    def launches(self, sku: SkuName, provider: ProviderName, count: int) -> None:
        """See `Telemetry.launches`."""
        values = self._sku.value(sku), self._provider.value(provider)
        self._launches.labels(*values).inc(max(count, 0))

    def launch_failures(self, sku: SkuName, failure: FailureClass, count: int) -> None:
        """See `Telemetry.launch_failures`."""
        self._failures.labels(self._sku.value(sku), failure.value).inc(max(count, 0))

    def machine_ended(self, sku: SkuName, ground: EndGround) -> None:
        """See `Telemetry.machine_ended`."""
        self._ended.labels(self._sku.value(sku), ground.value).inc()

    def notice(self, provider: ProviderName, kind: str) -> None:
        """See `Telemetry.notice`."""
        self._notices.labels(self._provider.value(provider), self._notice_kind.value(kind)).inc()

    def machine_interrupted(self, sku: SkuName, kind: NoticeKind) -> None:
        """See `Telemetry.machine_interrupted`."""
        self._interrupted.labels(self._sku.value(sku), kind.value).inc()

    def rerun(self, sku: SkuName, outcome: RerunOutcome) -> None:
        """See `Telemetry.rerun`."""
        self._reruns.labels(self._sku.value(sku), outcome.value).inc()

    def loop_pass(self, duration: Seconds) -> None:
        """See `Telemetry.loop_pass`."""
        _observe(self._pass_seconds, duration)

    def fleet(self, counts: FleetCounts) -> None:
        """See `Telemetry.fleet`. What is not in `counts` goes to zero."""
        now: dict[tuple[Gauge, tuple[str, ...]], int] = dict.fromkeys(self._shown, 0)
        for gauge, by_sku in (
            (self._waiting, counts.jobs_waiting),
            (self._in_progress, counts.jobs_in_progress),
        ):
            for sku, count in by_sku.items():
                key = (gauge, (self._sku.value(sku),))
                now[key] = now.get(key, 0) + count
        for (sku, state), count in counts.machines.items():
            place = (self._machines, (self._sku.value(sku), state.value))
            now[place] = now.get(place, 0) + count
        for sku in counts.on_trial:
            now[self._on_trial, (self._sku.value(sku),)] = 1
        for (gauge, labels), value in now.items():
            if self._shown.get((gauge, labels)) != value:
                gauge.labels(*labels).set(value)
        self._shown = now
        self._foreign.set(counts.machines_foreign)
        self._dollars.set(counts.dollars_per_hour)

    def _make_jobs_and_machines(self) -> None:
        self._queue_seconds = self._histogram(
            "job_queue_duration_seconds", "From queued to started.", ("sku",), WAIT_BUCKETS
        )
        self._waiting = self._gauge("jobs_waiting", "Jobs that wait for a runner.", ("sku",))
        self._in_progress = self._gauge("jobs_in_progress", "Jobs that run.", ("sku",))
        self._completed = self._counter("jobs_completed", "Jobs that ended.", ("sku", "conclusion"))
        self._machines = self._gauge("machines", "Machines and open slots.", ("sku", "state"))
        self._foreign = self._gauge(
            "machines_foreign", "Machines of this fleet's name and another installation.", ()
        )
        self._launches = self._counter("launches", "Machines asked for.", ("sku", "provider"))
        self._failures = self._counter(
            "launch_failures", "Machines that failed before they could serve.", ("sku", "reason")
        )
        self._ended = self._counter(
            "machines_ended", "Machines that the controller ended.", ("sku", "ground")
        )
        self._on_trial = self._gauge(
            "sku_on_trial", "1 while a SKU launches one machine at a time.", ("sku",)
        )
        self._interrupted = self._counter(
            "machines_interrupted", "Machines that their provider takes back.", ("sku", "kind")
        )
        self._reruns = self._counter(
            "jobs_interrupted", "Jobs whose machine was taken from under them.", ("sku", "outcome")
        )
        self._dollars = self._gauge(
            "cost_dollars_per_hour", "What the machines cost now, in US dollars an hour.", ()
        )

    def _make_calls(self) -> None:
        self._github_requests = self._counter(
            "github_requests", "Requests to GitHub.", ("endpoint", "outcome")
        )
        self._github_seconds = self._histogram(
            "github_request_duration_seconds", "Requests to GitHub.", ("endpoint",), CALL_BUCKETS
        )
        bucket = ("app", "account", "resource")
        self._github_answers = self._counter("github_answers", "Answers of GitHub.", bucket)
        self._github_remaining = self._gauge(
            "github_rate_limit_remaining", "Requests left in GitHub's hour.", bucket
        )
        self._github_limit = self._gauge(
            "github_rate_limit", "Requests that GitHub allows in an hour.", bucket
        )
        self._github_staleness = self._gauge(
            "github_staleness_seconds", "Age of the oldest picture of what is active.", ("account",)
        )
        self._provider_requests = self._counter(
            "provider_requests", "Requests to providers.", ("provider", "operation", "outcome")
        )
        self._provider_seconds = self._histogram(
            "provider_request_duration_seconds",
            "Requests to providers.",
            ("provider", "operation"),
            CALL_BUCKETS,
        )
        self._notices = self._counter(
            "notices", "Messages in providers' queues of notices.", ("provider", "kind")
        )
        self._deliveries = self._counter("deliveries", "Webhook deliveries.", ("answer",))
        self._bootstrap = self._counter(
            "bootstrap_requests", "Requests of booting machines.", ("step", "answer")
        )
        self._pass_seconds = self._histogram(
            "loop_pass_duration_seconds", "Turns of the control loop.", (), PASS_BUCKETS
        )

    def _make_process(self, version: str) -> None:
        build = Info("autoscaler_build", "What is running.", registry=self._registry)
        build.info({"version": version, "python": platform.python_version()})
        ProcessCollector(registry=self._registry)

    def _bound_labels(self) -> None:
        # One each: a flood of one label's values must not use up another's.
        self._sku = BoundedLabel(self._skus)
        self._provider = BoundedLabel(self._providers)
        self._conclusion = BoundedLabel(CONCLUSIONS)
        self._endpoint = BoundedLabel(extra=64)
        self._github_outcome = BoundedLabel(extra=48)
        self._app = BoundedLabel(extra=32)
        self._account = BoundedLabel(("",), extra=64)
        self._resource = BoundedLabel(extra=16)
        self._operation = BoundedLabel(extra=48)
        self._provider_outcome = BoundedLabel(extra=64)
        self._notice_kind = BoundedLabel((*NoticeKind, "other", "poison"))
        self._answer = BoundedLabel(extra=32)
        self._step = BoundedLabel(extra=24)
        self._bootstrap_answer = BoundedLabel(extra=32)

    def _show_zeroes(self) -> None:
        # A counter that begins at one loses its first step to every rate().
        for sku in self._skus:
            self._queue_seconds.labels(sku)
            self._show(self._waiting, sku)
            self._show(self._in_progress, sku)
            self._show(self._on_trial, sku)
            for state in MachineState:
                self._show(self._machines, sku, state.value)
            for provider in self._providers:
                self._launches.labels(sku, provider)
            for failure in FailureClass:
                self._failures.labels(sku, failure.value)
            for kind in NoticeKind:
                self._interrupted.labels(sku, kind.value)
            for outcome in RerunOutcome:
                self._reruns.labels(sku, outcome.value)
            for ground in EndGround:
                self._ended.labels(sku, ground.value)

    def _show(self, gauge: Gauge, *labels: str) -> None:
        gauge.labels(*labels).set(0)
        self._shown[gauge, labels] = 0

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
    """Leaves out the `_created` samples: a third of all series, and of no use here.

    The library can only switch them off for the whole process.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterable[Metric]:
        for metric in self._registry.collect():
            metric.samples = [s for s in metric.samples if not s.name.endswith("_created")]
            yield metric


def _observe(histogram: Histogram, seconds: Seconds) -> None:
    # One NaN would spoil the sum for good; a clock that stepped back is no negative wait.
    if math.isfinite(seconds):
        histogram.observe(max(seconds, 0.0))
