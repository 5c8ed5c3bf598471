"""The metrics, and what is wrong according to them: for operators who look at the fleet without Prometheus.

The thresholds are those of the alerts, without the delays after which an alert fires.
"""

import math
from collections import deque
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from prometheus_client import Gauge

from autoscaler.controller.ports.telemetry import FleetCounts
from autoscaler.model.deliveries import DeliveryAnswer
from autoscaler.model.identifiers import Instant, ProviderName, Seconds, SkuName
from autoscaler.model.machines.machine import MachineState
from autoscaler.model.reasons.faults import Fault
from autoscaler.model.reasons.table import STILL_FAIL_WITHIN, FaultCode
from autoscaler.model.wait_objectives import RECOVERS_AFTER
from autoscaler.model.wording import counted, data_size, duration
from autoscaler.observability.labels import UNKNOWN_IMAGE
from autoscaler.observability.series import Series

BUDGET_RESETS_AFTER: Seconds = 3600.0
WRITES_STEP: Seconds = 30.0

_ARRIVED = frozenset({DeliveryAnswer.ACCEPTED, DeliveryAnswer.DUPLICATE, DeliveryAnswer.IGNORED})
_NOT_STORED = {
    DeliveryAnswer.STORE_FAILED: "the store failed",
    DeliveryAnswer.STORE_STALLED: "the store ended no write for some seconds",
    DeliveryAnswer.SHED: "too many webhooks arrived at once",
}
"""Why a webhook with this outcome was not stored."""
_FOR_A_JOB = frozenset({MachineState.ASSIGNED, MachineState.EXITED})
_SILENT, _LEAK, _SLOW = (
    code.entry.threshold
    for code in (FaultCode.WEBHOOKS_SILENT, FaultCode.LEAK_SUSPECTED, FaultCode.STORE_SLOW)
)


@dataclass(slots=True)
class _Writes:
    """The writes to the store in some seconds, and how many of them were slow."""

    since: Instant
    count: int = 0
    slow: int = 0


class WatchedSeries(Series):
    """All metrics, and what is wrong according to them.

    It reads gauges. Of what they do not show, it remembers a few values for each label, which the methods of
    `Telemetry` note.
    """

    def __init__(
        self,
        version: str,
        skus: Collection[SkuName],
        providers: Collection[ProviderName],
        now: Callable[[], Instant],
        *,
        webhooks: bool,
    ) -> None:
        """`now` returns the time of the controller's clock. The others are as for `Series`."""
        super().__init__(version, skus, providers, webhooks=webhooks)
        self._now = now
        self._webhooks = webhooks
        self._arrived_at = now()
        self._missed_at: Instant | None = None
        """When the first job since the last webhook started, or ended."""
        self._recent: dict[tuple[str, ...], deque[Instant]] = {}
        """By code and labels: when the last ones happened of what counts for a time."""
        self._started: dict[str, Instant] = {}
        """When the last job of each SKU started."""
        self._excess = 0
        self._excess_since: Instant | None = None
        self._writes: dict[str, deque[_Writes]] = {}
        self._versions: dict[str, str] = {}
        self._budgets: dict[tuple[str, ...], Instant] = {}
        """When each rate limit bucket was read last."""

    def render(self) -> Iterator[bytes]:
        """See `Series.render`. Leaves out rate limits that GitHub has reset since their last answer."""
        self._drop_reset_budgets()
        return super().render()

    def faults(self) -> tuple[Fault, ...]:
        """Return what is wrong now, the most urgent first."""
        self._drop_reset_budgets()
        return (*self._of_deliveries(), *self._of_machines(), *self._of_github(), *self._of_loop())

    def _note_excess(self, counts: FleetCounts) -> None:
        running = sum(counts.jobs_in_progress.values())
        machines = sum(
            count for (_, state), count in counts.machines.items() if state in _FOR_A_JOB
        )
        self._excess = machines - running
        if self._excess <= _LEAK.above + _LEAK.share * running:
            self._excess_since = None
        elif self._excess_since is None:
            self._excess_since = self._now()

    def _note_delivery(self, answer: DeliveryAnswer) -> None:
        if answer in _ARRIVED:
            self._arrived_at, self._missed_at = self._now(), None
        elif answer in _NOT_STORED:
            self._note(FaultCode.STORE_FAILS, answer)

    def _note_start(self, sku: str) -> None:
        self._started[sku] = self._now()
        self._note_webhook_due()

    def _note_webhook_due(self) -> None:
        """Note that a job started or ended: GitHub sends a webhook of each."""
        # One that was accepted a moment ago may have reported this.
        if (
            self._webhooks
            and self._missed_at is None
            and self._now() - self._arrived_at >= _SILENT.above
        ):
            self._missed_at = self._now()

    def _note_write(self, operation: str, duration: Seconds) -> None:
        steps = deque[_Writes](maxlen=int(_SLOW.within / WRITES_STEP))
        steps = self._writes.setdefault(operation, steps)
        now = self._now()
        if not steps or not 0.0 <= now - steps[-1].since < WRITES_STEP:
            steps.append(_Writes(now))
        steps[-1].count += 1
        steps[-1].slow += duration > _SLOW.above

    def _drop_reset_budgets(self) -> None:
        """Remove the series of buckets that GitHub has reset since their last answer."""
        now = self._now()
        for bucket, at in tuple(self._budgets.items()):
            if now - at >= BUDGET_RESETS_AFTER:
                del self._budgets[bucket]
                self.gauges["github_rate_limit_remaining"].remove(*bucket)
                self.gauges["github_rate_limit"].remove(*bucket)

    def _note(self, code: FaultCode, *labels: str) -> None:
        """Remember that something happened that is a fault if it happened often enough."""
        times = deque[Instant](maxlen=max(1, int(code.entry.threshold.above)))
        self._recent.setdefault((code, *labels), times).append(self._now())

    def _recently(
        self, code: FaultCode, within: Seconds | None = None
    ) -> Iterator[tuple[Instant, tuple[str, ...]]]:
        """Yield the labels of what happened often enough, in order, each with the last time."""
        since = self._now() - (code.entry.threshold.within if within is None else within)
        for (of, *labels), times in sorted(self._recent.items()):
            if of == code and len(times) == times.maxlen and times[0] > since:
                yield times[-1], tuple(labels)

    def _of_deliveries(self) -> Iterator[Fault]:
        now, code = self._now(), FaultCode.STORE_FAILS
        if (last := max(self._recently(code), default=None)) is not None:
            at, (answer,) = last
            why = f"{_NOT_STORED[DeliveryAnswer(answer)]} ({answer})"
            over = self._arrived_at if self._arrived_at > at else None
            yield Fault.of(code, ago=duration(now - at), why=why, recovered_at=over)
        silent = now - self._arrived_at
        if self._missed_at is None or silent < _SILENT.within:
            return
        if (missed := now - self._missed_at) >= _SILENT.above:
            ago = duration(missed)
            yield Fault.of(FaultCode.WEBHOOKS_SILENT, ago=ago, silent=duration(silent))

    def _of_machines(self) -> Iterator[Fault]:
        now, code = self._now(), FaultCode.HEALTH_CHECKS_FAIL
        recent = {labels for _, labels in self._recently(code)}
        for at, labels in self._recently(code, STILL_FAIL_WITHIN):
            sku, check, image = labels
            started = self._started.get(sku, -math.inf)
            if labels not in recent and now - started < code.entry.threshold.within:
                continue
            over = at if started > at and now - at >= RECOVERS_AFTER else None
            within = code.entry.threshold.within if labels in recent else STILL_FAIL_WITHIN
            said = {"check": check, "image": image, "within": duration(within)}
            about = image if image != UNKNOWN_IMAGE else sku
            yield Fault.of(code, about, sku=sku, recovered_at=over, **said)
        opened = {sku for (sku,), is_open in _values(self.gauges["sku_circuit_open"]) if is_open}
        for _, (sku,) in self._recently(FaultCode.RUNNER_VERSION_REFUSED):
            if sku in opened:
                yield Fault.of(FaultCode.RUNNER_VERSION_REFUSED, sku=sku)
        outside: dict[str, list[str]] = {}
        for _, (sku, reason) in self._recently(FaultCode.JOB_OUTSIDE_ACCESS):
            outside.setdefault(sku, []).append(reason)
        for sku, reasons in outside.items():
            yield Fault.of(FaultCode.JOB_OUTSIDE_ACCESS, sku=sku, reasons=", ".join(reasons))
        code = FaultCode.RUNNER_VERSION_EXPIRES
        for (sku,), at in _values(self.gauges["runner_version_deadline_timestamp_seconds"]):
            if at - now < code.entry.threshold.above:
                variant = "" if at > now else "over"
                version, time = self._versions[sku], duration(abs(at - now))
                yield Fault.of(code, sku=sku, variant=variant, version=version, time=time)
        if self._excess_since is not None and now - self._excess_since >= _LEAK.within:
            time = duration(now - self._excess_since)
            yield Fault.of(FaultCode.LEAK_SUSPECTED, time=time, excess=self._excess)

    def _of_github(self) -> Iterator[Fault]:
        limits, code = dict(_values(self.gauges["github_rate_limit"])), FaultCode.GITHUB_BUDGET_LOW
        for bucket, remaining in _values(self.gauges["github_rate_limit_remaining"]):
            limit = limits.get(bucket, 0.0) if bucket in self._budgets else 0.0
            if remaining < code.entry.threshold.share * limit:
                app, account, resource = bucket
                yield Fault.of(
                    code,
                    f"App {app}{f', {account}' if account else ''}",
                    remaining=int(remaining),
                    limit=int(limit),
                    resource=resource,
                )
        code = FaultCode.GITHUB_LISTS_STALE
        for (account,), seconds in _values(self.gauges["github_staleness_seconds"]):
            if seconds > code.entry.threshold.above:
                yield Fault.of(code, account, time=duration(seconds))
        for (account, group, reason), wide in _values(self.gauges["runner_group_too_wide"]):
            if wide:
                about, why = f"{account}/{group}", reason.replace("_", " ")
                yield Fault.of(FaultCode.RUNNER_GROUP_TOO_WIDE, about, reason=why)

    def _of_loop(self) -> Iterator[Fault]:
        for _, ahead in _values(self.gauges["github_clock_ahead_seconds"]):
            if abs(ahead) > FaultCode.CLOCK_SKEWED.entry.threshold.above:
                side, time = "ahead of" if ahead > 0 else "behind", duration(abs(ahead))
                yield Fault.of(FaultCode.CLOCK_SKEWED, time=time, side=side)
        for _, lag in _values(self.gauges["event_loop_lag_max_seconds"]):
            if lag > FaultCode.CONTROLLER_SLOW.entry.threshold.above:
                yield Fault.of(FaultCode.CONTROLLER_SLOW, lag=lag)
        free, size = (self._single(f"store_disk_{name}") for name in ("free_bytes", "bytes"))
        if free < FaultCode.STORE_DISK_LOW.entry.threshold.share * size:
            yield Fault.of(FaultCode.STORE_DISK_LOW, free=data_size(free), size=data_size(size))
        now = self._now()
        for operation, steps in sorted(self._writes.items()):
            recent = [step for step in steps if now - step.since < _SLOW.within]
            slow, writes = sum(one.slow for one in recent), sum(one.count for one in recent)
            if slow >= _SLOW.count and slow > _SLOW.share * writes:
                yield Fault.of(
                    FaultCode.STORE_SLOW,
                    slow=slow,
                    writes=counted(writes, "write"),
                    operation=operation,
                    within=duration(_SLOW.within),
                )

    def _single(self, name: str) -> float:
        """Return the value of a gauge without labels; 0 if it was never set."""
        return next((value for _, value in _values(self.gauges[name])), 0.0)


def _values(gauge: Gauge) -> Iterator[tuple[tuple[str, ...], float]]:
    """Yield the labels and the value of each series, in order."""
    samples = (sample for metric in gauge.collect() for sample in metric.samples)
    found = ((tuple(sample.labels.values()), sample.value) for sample in samples)
    return iter(sorted(found))
