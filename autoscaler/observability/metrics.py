"""Implements the `Telemetry` port with Prometheus metrics. Each label has a bounded set of values."""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client import Gauge

from autoscaler.controller.ports.telemetry import FleetCounts
from autoscaler.model.accounting import MachineUse, RunState, WaitStage
from autoscaler.model.catalogue import CapacityType
from autoscaler.model.identifiers import Instant, ProviderName, Seconds, SkuName
from autoscaler.model.machines.failures import FailureClass
from autoscaler.model.machines.machine import ExitReason
from autoscaler.model.reasons.table import FaultCode
from autoscaler.observability.call_metrics import CallMetrics, add, counts, observe
from autoscaler.observability.labels import UNKNOWN_IMAGE
from autoscaler.views.cost import Spent

MOST_NODES = 50
"""Avoided nodes that have series."""


class PrometheusTelemetry(CallMetrics):
    """A `Telemetry` with its own registry, for use by one event loop."""

    def __init__(
        self,
        skus: Iterable[SkuName],
        providers: Iterable[ProviderName],
        version: str,
        repositories: Iterable[str] = (),
        *,
        now: Callable[[], Instant] = time.time,
        webhooks: bool = True,
    ) -> None:
        """`skus` and `providers` are the configured names, `version` is the version of this program.

        `repositories` are those that have series of their own. `now` returns the controller's time.
        `webhooks`: GitHub sends webhooks, so that their absence is a fault.
        """
        super().__init__(version, tuple(skus), tuple(providers), now, webhooks=webhooks)
        self._avoided: set[tuple[str, ...]] = set()
        self._holds: dict[tuple[str, ...], int] = {}
        self._repositories = {name.lower(): name for name in repositories}
        self._spent: dict[tuple[str, MachineUse], float] = {}

    def spent(self) -> Spent:
        """Return the dollars since the start by SKU and use, of the time that is over."""
        return dict(self._spent)

    job_failed = counts("jobs_failed", "sku", "fixed")
    job_unmatched = counts("jobs_unmatched", "fixed")
    job_refused = counts("jobs_refused", "sku", "refusal")
    machine_launched = counts("machines_launched", "provider", "fixed", "zone")
    offering_refused = counts("offerings_refused", "provider", "fixed", "zone", "fixed")
    machine_terminated = counts("machines_terminated", "sku", "fixed")
    machine_interrupted = counts("machines_interrupted", "sku", "fixed")
    rerun = counts("jobs_interrupted", "sku", "fixed")

    def job_started(self, sku: SkuName, repository: str, waited: Seconds) -> None:
        """See `Telemetry.job_started`."""
        observe(self.histograms["job_queue_duration_seconds"].labels(self._sku.value(sku)), waited)
        if (name := self._repositories.get(repository.lower())) is not None:
            observe(self.histograms["repository_job_queue_duration_seconds"].labels(name), waited)
        self._note_start(self._sku.value(sku))

    def job_waited(self, sku: SkuName, stages: Mapping[WaitStage, Seconds]) -> None:
        """See `Telemetry.job_waited`."""
        name = self._sku.value(sku)
        for stage, seconds in stages.items():
            add(self.counters["job_wait_seconds"].labels(name, stage.value), seconds)
            observe(self.histograms["job_wait_stage_duration_seconds"].labels(stage.value), seconds)

    def job_completed(self, sku: SkuName, repository: str, conclusion: str) -> None:
        """See `Telemetry.job_completed`."""
        values = self.bounded(("sku", "conclusion"), (sku, conclusion))
        self.counters["jobs_completed"].labels(*values).inc()
        if (name := self._repositories.get(repository.lower())) is not None:
            self.counters["repository_jobs_completed"].labels(name, values[1]).inc()

    def machine_used(
        self, sku: SkuName, use: MachineUse, seconds: Seconds, dollars: float, repository: str
    ) -> None:
        """See `Telemetry.machine_used`."""
        values = self._sku.value(sku), use.value
        add(self.counters["machine_seconds"].labels(*values), seconds)
        add(self.counters["machine_dollars"].labels(*values), dollars)
        if (name := self._repositories.get(repository.lower())) is not None:
            add(self.counters["repository_machine_seconds"].labels(name), seconds)
            add(self.counters["repository_machine_dollars"].labels(name), dollars)
        if use is MachineUse.JOB:
            # The machine shows that its job ended, also while GitHub answers no list.
            self._note_webhook_due()
        if math.isfinite(dollars):
            key = values[0], use
            self._spent[key] = self._spent.get(key, 0.0) + max(0.0, dollars)

    def run_time(self, repository: str, state: RunState, seconds: Seconds) -> None:
        """See `Telemetry.run_time`."""
        add(self.counters["workflow_run_seconds"].labels(state.value), seconds)
        if (name := self._repositories.get(repository.lower())) is not None:
            add(self.counters["repository_workflow_run_seconds"].labels(name, state.value), seconds)

    def run_ended(self, repository: str, duration: Seconds) -> None:  # noqa: ARG002
        """See `Telemetry.run_ended`."""
        observe(self.histograms["workflow_run_duration_seconds"], duration)

    def offerings_on_hold(
        self, counts: Mapping[tuple[ProviderName, CapacityType, FailureClass], int]
    ) -> None:
        """See `Telemetry.offerings_on_hold`."""
        now = dict.fromkeys(self._holds, 0)
        for (provider, kind, reason), count in counts.items():
            key = self.bounded(("provider", "fixed", "fixed"), (provider, kind, reason))
            now[key] = now.get(key, 0) + count
        for key, count in now.items():
            self.gauges["offerings_on_hold"].labels(*key).set(count)
        self._holds = now

    def launches(
        self, sku: SkuName, provider: ProviderName, capacity_type: CapacityType, count: int
    ) -> None:
        """See `Telemetry.launches`."""
        values = self.bounded(("sku", "provider", "fixed"), (sku, provider, capacity_type))
        self.counters["launches"].labels(*values).inc(max(count, 0))

    def launch_failures(
        self,
        sku: SkuName,
        provider: ProviderName,
        capacity_type: CapacityType | None,
        failure: FailureClass,
        count: int,
    ) -> None:
        """See `Telemetry.launch_failures`."""
        words = sku, provider, capacity_type or "unknown", failure
        values = self.bounded(("sku", "provider", "fixed", "fixed"), words)
        self.counters["launch_failures"].labels(*values).inc(max(count, 0))

    def health_check_failed(self, sku: SkuName, check: str, image: str) -> None:
        """See `Telemetry.health_check_failed`."""
        values = self.bounded(("sku", "check", "image"), (sku, check, image or UNKNOWN_IMAGE))
        self.counters["health_checks_failed"].labels(*values).inc()
        self._note(FaultCode.HEALTH_CHECKS_FAIL, *values)

    def job_outside_access(self, sku: SkuName, reason: str) -> None:
        """See `Telemetry.job_outside_access`."""
        values = self.bounded(("sku", "access"), (sku, reason))
        self.counters["jobs_outside_access"].labels(*values).inc()
        self._note(FaultCode.JOB_OUTSIDE_ACCESS, *values)

    def runner_exited(self, sku: SkuName, reason: ExitReason) -> None:
        """See `Telemetry.runner_exited`."""
        name = self._sku.value(sku)
        self.counters["runner_exits"].labels(name, reason.value).inc()
        if reason is ExitReason.VERSION_DEPRECATED:
            self._note(FaultCode.RUNNER_VERSION_REFUSED, name)

    def runner_deadline(self, sku: SkuName, version: str, at: Instant | None) -> None:
        """See `Telemetry.runner_deadline`. Without a deadline there is no series: 0 would be a time."""
        name = self._sku.value(sku)
        self._versions[name] = version
        if at is None or not math.isfinite(at):
            self.gauges["runner_version_deadline_timestamp_seconds"].remove(name)
        else:
            self.gauges["runner_version_deadline_timestamp_seconds"].labels(name).set(at)

    def fleet(self, counts: FleetCounts) -> None:
        """See `Telemetry.fleet`. Sets every series that `counts` does not contain to zero."""
        now: dict[tuple[Gauge, tuple[str, ...]], float] = dict.fromkeys(self.shown, 0)
        for gauge, by_sku in (
            (self.gauges["jobs_waiting"], counts.jobs_waiting),
            (self.gauges["jobs_in_progress"], counts.jobs_in_progress),
            (self.gauges["jobs_awaiting_approval"], counts.jobs_awaiting_approval),
        ):
            for sku, count in by_sku.items():
                key = (gauge, (self._sku.value(sku),))
                now[key] = now.get(key, 0) + count
        for why, count in counts.jobs_without_sku.items():
            now[self.gauges["jobs_without_sku"], (why.value,)] = count
        for (sku, code), count in counts.waiting_reasons.items():
            reason = (self.gauges["jobs_waiting_by_reason"], (self._sku.value(sku), code.value))
            now[reason] = now.get(reason, 0) + count
        for sku, age in counts.oldest_waiting.items():
            # SKUs that left the configuration share one series, which shows the oldest job of all.
            key = (self.gauges["oldest_waiting_job_age_seconds"], (self._sku.value(sku),))
            now[key] = max(now.get(key, 0.0), age)
        for (sku, state), count in counts.machines.items():
            place = (self.gauges["machines"], (self._sku.value(sku), state.value))
            now[place] = now.get(place, 0) + count
        for (sku, at), count in counts.runners.items():
            place = (self.gauges["runners"], (self._sku.value(sku), at.value))
            now[place] = now.get(place, 0) + count
        now.update(dict.fromkeys(self._open_circuits(counts), 1))
        # A series begins with its first count: most states of most SKUs are rare.
        now = {key: value for key, value in now.items() if value or key in self.shown}
        for (gauge, labels), value in now.items():
            if self.shown.get((gauge, labels)) != value:
                gauge.labels(*labels).set(value)
        self.shown = now
        self._show_avoided(counts)
        self.gauges["machines_foreign"].set(counts.machines_foreign)
        self.gauges["machines_unverified"].set(counts.machines_unverified)
        self.gauges["machines_not_terminating"].set(counts.machines_not_terminating)
        self.gauges["cost_dollars_per_hour"].set(counts.dollars_per_hour)
        self._note_excess(counts)

    def _show_avoided(self, counts: FleetCounts) -> None:
        """Show the nodes that are avoided, and only these: nodes come and go, so old series are removed."""
        now = {
            (*self.bounded(("sku", "provider"), (sku, provider)), node)
            for sku, provider, node in sorted(counts.nodes_avoided)[:MOST_NODES]
        }
        for gone in self._avoided - now:
            self.gauges["node_avoided"].remove(*gone)
        for new in now - self._avoided:
            self.gauges["node_avoided"].labels(*new).set(1)
        self._avoided = now

    def _open_circuits(self, counts: FleetCounts) -> Iterator[tuple[Gauge, tuple[str, ...]]]:
        for sku in counts.circuits_open:
            yield self.gauges["sku_circuit_open"], (self._sku.value(sku),)
        for sku, provider in counts.option_circuits_open:
            option = self.bounded(("sku", "provider"), (sku, provider))
            yield self.gauges["launch_option_circuit_open"], option

    def replica(self, *, leads: bool, epoch: int) -> None:
        """Set whether this process leads, and the epoch of the lease (0 without one)."""
        self.leads = leads
        self.gauges["leader"].set(leads)
        self.gauges["lease_epoch"].set(epoch)

    def use_skus(self, skus: Iterable[SkuName]) -> None:
        """Use these names as label values, too: the configuration has changed."""
        self._sku.allow(skus)
