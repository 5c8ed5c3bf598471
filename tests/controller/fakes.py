"""Telemetry that remembers, beside the simulator's ids and crash point, for tests."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from autoscaler.controller.ports.telemetry import FleetCounts, Telemetry
from autoscaler.model.accounting import FailureCause, MachineUse, RunState, WaitStage
from autoscaler.model.catalogue import CapacityType
from autoscaler.model.deliveries import DeliveryAnswer
from autoscaler.model.identifiers import Instant, ProviderName, Seconds, SkuName
from autoscaler.model.machines.failures import FailureClass
from autoscaler.model.machines.interruptions import NoticeKind, RerunOutcome
from autoscaler.model.machines.machine import ExitReason, TerminationReason
from autoscaler.model.prices_and_quotas import PriceSource, QuotaSource
from autoscaler.model.reasons.table import Unmatched
from autoscaler.simulator.world.controller.ids import SequentialIds as SequentialIds
from autoscaler.simulator.world.processes import CrashPoint as CrashPoint


@dataclass
class RecordingTelemetry(Telemetry):
    """Keeps every call as (method, label values), and the last counts of the fleet."""

    runner_deadlines: dict[SkuName, tuple[str, Instant | None]] = field(default_factory=dict)
    prices_reported: list[
        tuple[ProviderName, CapacityType, Mapping[PriceSource, int], Instant | None]
    ] = field(default_factory=list)
    quotas_reported: list[tuple[ProviderName, Mapping[QuotaSource, int], Instant | None]] = field(
        default_factory=list
    )
    said: list[tuple[str, ...]] = field(default_factory=list)
    started: list[tuple[SkuName, Seconds]] = field(default_factory=list)
    counts: FleetCounts = field(default_factory=FleetCounts)
    passes: int = 0
    staleness: dict[str, Seconds] = field(default_factory=dict)
    unwatched: dict[str, int] = field(default_factory=dict)
    lags: list[Seconds] = field(default_factory=list)
    waited: list[tuple[SkuName, dict[WaitStage, Seconds]]] = field(default_factory=list)
    used: list[tuple[SkuName, MachineUse, Seconds, float, str]] = field(default_factory=list)
    runs: list[tuple[str, str, Seconds]] = field(default_factory=list)
    writes: list[tuple[str, Seconds]] = field(default_factory=list)
    sizes: list[tuple[int, int]] = field(default_factory=list)
    disks: list[tuple[int, int]] = field(default_factory=list)
    holds: dict[tuple[ProviderName, CapacityType, FailureClass], int] = field(default_factory=dict)
    delivery_lags: list[Seconds] = field(default_factory=list)

    def github_call(self, endpoint: str, outcome: str, duration: Seconds) -> None:
        self.said.append(("github_call", endpoint, outcome))

    def github_clock(self, ahead: Seconds) -> None:
        self.said.append(("github_clock",))

    def github_budget(
        self, app: int, account: str, resource: str, remaining: int | None, limit: int | None
    ) -> None:
        self.said.append(("github_budget", str(app), account, resource))

    def github_staleness(self, account: str, seconds: Seconds) -> None:
        self.staleness[account] = max(seconds, self.staleness.get(account, 0.0))

    def event_loop_lag(self, longest: Seconds) -> None:
        self.lags.append(longest)

    def github_unwatched(self, account: str, repositories: int) -> None:
        self.unwatched[account] = repositories

    def provider_call(
        self, provider: ProviderName, operation: str, outcome: str, duration: Seconds
    ) -> None:
        self.said.append(("provider_call", provider, operation, outcome))

    def delivery(self, answer: DeliveryAnswer) -> None:
        self.said.append(("delivery", answer))

    def bootstrap(self, step: str, answer: str) -> None:
        self.said.append(("bootstrap", step, answer))

    def job_started(self, sku: SkuName, repository: str, waited: Seconds) -> None:
        self.said.append(("job_started", sku))
        self.started.append((sku, waited))

    def job_waited(self, sku: SkuName, stages: Mapping[WaitStage, Seconds]) -> None:
        self.waited.append((sku, dict(stages)))

    def job_completed(self, sku: SkuName, repository: str, conclusion: str) -> None:
        self.said.append(("job_completed", sku, conclusion))

    def job_unmatched(self, reason: Unmatched) -> None:
        self.said.append(("job_unmatched", reason))

    def job_refused(self, sku: SkuName, code: str) -> None:
        self.said.append(("job_refused", sku, code))

    def job_outside_access(self, sku: SkuName, reason: str) -> None:
        self.said.append(("job_outside_access", sku, reason))

    def runner_group(self, account: str, group: str, reason: str, too_wide: bool) -> None:
        self.said.append(("runner_group", account, group, reason, str(too_wide)))

    def runner_deadline(self, sku: SkuName, version: str, at: Instant | None) -> None:
        self.runner_deadlines[sku] = version, at

    def prices(
        self,
        provider: ProviderName,
        capacity_type: CapacityType,
        sources: Mapping[PriceSource, int],
        read_at: Instant | None,
    ) -> None:
        self.prices_reported.append((provider, capacity_type, sources, read_at))

    def quotas(
        self, provider: ProviderName, sources: Mapping[QuotaSource, int], read_at: Instant | None
    ) -> None:
        self.quotas_reported.append((provider, sources, read_at))

    def launches(
        self, sku: SkuName, provider: ProviderName, capacity_type: CapacityType, count: int
    ) -> None:
        self.said.extend([("launches", sku, provider)] * count)

    def launch_failures(
        self,
        sku: SkuName,
        provider: ProviderName,
        capacity_type: CapacityType | None,
        failure: FailureClass,
        count: int,
    ) -> None:
        self.said.extend([("launch_failures", sku, failure)] * count)

    def machine_launched(
        self, provider: ProviderName, capacity_type: CapacityType, zone: str
    ) -> None:
        self.said.append(("machine_launched", provider, capacity_type, zone))

    def offering_refused(
        self, provider: ProviderName, capacity_type: CapacityType, zone: str, failure: FailureClass
    ) -> None:
        self.said.append(("offering_refused", provider, capacity_type, zone, failure))

    def machine_used(
        self, sku: SkuName, use: MachineUse, seconds: Seconds, dollars: float, repository: str
    ) -> None:
        self.used.append((sku, use, seconds, dollars, repository))

    def job_failed(self, sku: SkuName, cause: FailureCause) -> None:
        self.said.append(("job_failed", sku, cause))

    def run_time(self, repository: str, state: RunState, seconds: Seconds) -> None:
        self.runs.append((repository, state, seconds))

    def run_ended(self, repository: str, duration: Seconds) -> None:
        self.runs.append((repository, "ended", duration))

    def store_write(self, operation: str, duration: Seconds) -> None:
        self.writes.append((operation, duration))

    def store_size(self, file: int, write_ahead_log: int) -> None:
        self.sizes.append((file, write_ahead_log))

    def store_disk(self, free: int, size: int) -> None:
        self.disks.append((free, size))

    def offerings_on_hold(
        self, counts: Mapping[tuple[ProviderName, CapacityType, FailureClass], int]
    ) -> None:
        self.holds = dict(counts)

    def delivery_lag(self, seconds: Seconds) -> None:
        self.delivery_lags.append(seconds)

    def machine_terminated(self, sku: SkuName, reason_code: TerminationReason) -> None:
        self.said.append(("machine_terminated", sku, reason_code))

    def health_check_failed(self, sku: SkuName, check: str, image: str) -> None:
        self.said.append(("health_check_failed", sku, check, image))

    def runner_exited(self, sku: SkuName, reason: ExitReason) -> None:
        self.said.append(("runner_exited", sku, reason))

    def notice(self, provider: ProviderName, kind: str) -> None:
        self.said.append(("notice", provider, kind))

    def machine_interrupted(self, sku: SkuName, kind: NoticeKind) -> None:
        self.said.append(("machine_interrupted", sku, kind))

    def rerun(self, sku: SkuName, outcome: RerunOutcome) -> None:
        self.said.append(("rerun", sku, outcome))

    def reconciliation(self, duration: Seconds) -> None:
        self.passes += 1

    def fleet(self, counts: FleetCounts) -> None:
        self.counts = counts
