"""The port for metrics, by who reports: one method for each thing that is counted or timed.

No method raises or blocks. Label values are bounded.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from autoscaler.model.accounting import FailureCause, MachineUse, RunState, WaitStage
from autoscaler.model.catalogue import CapacityType
from autoscaler.model.deliveries import DeliveryAnswer
from autoscaler.model.identifiers import (
    Instant,
    JobId,
    LaunchRequestId,
    MachineId,
    ProviderName,
    RunnerName,
    Seconds,
    SkuName,
)
from autoscaler.model.jobs.runners import RunnerState
from autoscaler.model.machines.failures import FailureClass
from autoscaler.model.machines.interruptions import NoticeKind, RerunOutcome
from autoscaler.model.machines.machine import ExitReason, MachineState, TerminationReason
from autoscaler.model.prices_and_quotas import PriceSource, QuotaSource
from autoscaler.model.reasons.table import Unmatched, WaitCode


@dataclass(frozen=True, slots=True)
class FleetCounts:
    """The fleet's counts at one moment, by SKU. Jobs that no SKU serves are in `jobs_without_sku` only.

    `waiting_reasons` counts the waiting jobs by reason, those that no SKU admits included.
    `oldest_waiting` is how many seconds the oldest waiting job has been queued. `circuits_open` are the SKUs
    whose circuit breaker is not closed, `option_circuits_open` the SKUs and providers of such launch options.
    `nodes_avoided` has the SKU, the provider and the name of each node that a SKU avoids.
    """

    jobs_waiting: Mapping[SkuName, int] = field(default_factory=dict)
    waiting_reasons: Mapping[tuple[SkuName, WaitCode], int] = field(default_factory=dict)
    oldest_waiting: Mapping[SkuName, Seconds] = field(default_factory=dict)
    jobs_in_progress: Mapping[SkuName, int] = field(default_factory=dict)
    jobs_without_sku: Mapping[Unmatched, int] = field(default_factory=dict)
    jobs_awaiting_approval: Mapping[SkuName, int] = field(default_factory=dict)
    runners: Mapping[tuple[SkuName, RunnerState], int] = field(default_factory=dict)
    machines: Mapping[tuple[SkuName, MachineState], int] = field(default_factory=dict)
    machines_foreign: int = 0
    machines_unverified: int = 0
    machines_not_terminating: int = 0
    dollars_per_hour: float = 0.0
    circuits_open: Collection[SkuName] = ()
    option_circuits_open: Collection[tuple[SkuName, ProviderName]] = ()
    nodes_avoided: Collection[tuple[SkuName, ProviderName, str]] = ()


class Telemetry:
    """All metrics. This class discards what is reported: an adapter overrides the methods that it uses."""

    def github_call(self, endpoint: str, outcome: str, duration: Seconds) -> None:
        """Count a request to GitHub. `endpoint` is a route template, `outcome` the status or an error word."""

    def github_clock(self, ahead: Seconds) -> None:
        """Set by how many seconds this host's clock is ahead of GitHub's; negative if it is behind."""

    def github_budget(
        self, app: int, account: str, resource: str, remaining: int | None, limit: int | None
    ) -> None:
        """Count an answer to an App (`account` is empty) or its installation, and set its rate limit bucket.

        `resource` is GitHub's name of the bucket. `remaining` and `limit` are None if the answer has no such
        headers.
        """

    def provider_call(
        self, provider: ProviderName, operation: str, outcome: str, duration: Seconds
    ) -> None:
        """Count a request to a provider, such as CreateFleet. `outcome` is ok or the error's code."""

    def delivery(self, answer: DeliveryAnswer) -> None:
        """Count a webhook delivery by its outcome."""

    def bootstrap(self, step: str, answer: str) -> None:
        """Count a bootstrap request by its step, and by ok or the reason of the refusal."""

    def event_loop_lag(self, longest: Seconds) -> None:
        """Set the longest delay of a timer of the event loop in the last minute or two."""

    def github_staleness(self, account: str, seconds: Seconds) -> None:
        """Set the age of the oldest data about an account's active runs and repositories."""

    def github_unwatched(self, account: str, repositories: int) -> None:
        """Set the number of an account's repositories that are not watched because there are too many."""

    def runner_group(self, account: str, group: str, reason: str, too_wide: bool) -> None:
        """Set whether a runner group admits more than the `access` of its SKUs, by kind of excess."""

    def runner_deadline(self, sku: SkuName, version: str, at: Instant | None) -> None:
        """Set when GitHub stops giving jobs to the runner version of a SKU's machines.

        None if GitHub has not decided it, or if it or the version is unknown.
        """

    def delivery_lag(self, seconds: Seconds) -> None:
        """Observe how long after the start or the end of a job its first delivery arrived."""

    def job_unmatched(self, reason: Unmatched) -> None:
        """Count a queued job of a configured scope that no SKU serves."""

    def prices(
        self,
        provider: ProviderName,
        capacity_type: CapacityType,
        sources: Mapping[PriceSource, int],
        read_at: Instant | None,
    ) -> None:
        """Set how many prices in use come from each source, and when the provider gave the oldest of them.

        None if the provider gave none.
        """

    def quotas(
        self, provider: ProviderName, sources: Mapping[QuotaSource, int], read_at: Instant | None
    ) -> None:
        """Set how many quotas come from each source, and when the provider gave the oldest (None: none)."""

    def notice(self, provider: ProviderName, kind: str) -> None:
        """Count a message of a provider's queue of notices: a NoticeKind, other or poison."""

    def job_started(self, sku: SkuName, repository: str, waited: Seconds) -> None:
        """Observe the wait of a job that went from queued to in progress."""

    def job_waited(self, sku: SkuName, stages: Mapping[WaitStage, Seconds]) -> None:
        """Observe the stages of such a wait. They add up to it."""

    def job_completed(self, sku: SkuName, repository: str, conclusion: str) -> None:
        """Count a completed job of this fleet."""

    def job_refused(self, sku: SkuName, code: str) -> None:
        """Count a job that no SKU with its labels may run, by reason code."""

    def job_outside_access(self, sku: SkuName, reason: str) -> None:
        """Count a job that ran outside its SKU's `access`, by one of OUTSIDE_ACCESS_REASONS."""

    def launches(
        self, sku: SkuName, provider: ProviderName, capacity_type: CapacityType, count: int
    ) -> None:
        """Count requested machines."""

    def launch_failures(
        self,
        sku: SkuName,
        provider: ProviderName,
        capacity_type: CapacityType | None,
        failure: FailureClass,
        count: int,
    ) -> None:
        """Count slots or machines that failed before they became ready.

        `capacity_type` is None if the launch request is not known.
        """

    def machine_launched(
        self, provider: ProviderName, capacity_type: CapacityType, zone: str
    ) -> None:
        """Count a machine that a provider launched."""

    def machine_terminated(self, sku: SkuName, reason_code: TerminationReason) -> None:
        """Count a machine that ends, when its end is decided or found."""

    def health_check_failed(self, sku: SkuName, check: str, image: str) -> None:
        """Count a machine that failed its health checks, by the first check that failed.

        `image` is the ID of the machine's image at its provider; empty if it is not known.
        """

    def runner_exited(self, sku: SkuName, reason: ExitReason) -> None:
        """Count a machine's report that its runner exited."""

    def machine_interrupted(self, sku: SkuName, kind: NoticeKind) -> None:
        """Count a machine that its provider interrupts, or may interrupt."""

    def rerun(self, sku: SkuName, outcome: RerunOutcome) -> None:
        """Count the outcome of a job whose machine was interrupted."""

    def offering_refused(
        self, provider: ProviderName, capacity_type: CapacityType, zone: str, failure: FailureClass
    ) -> None:
        """Count an offering that a provider refused. `zone` is empty if it refused the whole request."""

    def machine_used(
        self, sku: SkuName, use: MachineUse, seconds: Seconds, dollars: float, repository: str
    ) -> None:
        """Count what a machine's time bought. `repository` is that of its job, empty for other uses."""

    def job_failed(self, sku: SkuName, cause: FailureCause) -> None:
        """Count a job that failed."""

    def run_time(self, repository: str, state: RunState, seconds: Seconds) -> None:
        """Count time in which a run had open jobs."""

    def run_ended(self, repository: str, duration: Seconds) -> None:
        """Observe how long a run had open jobs without a pause."""

    def offerings_on_hold(
        self, counts: Mapping[tuple[ProviderName, CapacityType, FailureClass], int]
    ) -> None:
        """Set how many offerings of the SKUs' launch options are on hold now, by the reason."""

    def reconciliation(self, duration: Seconds) -> None:
        """Observe the duration of one reconciliation."""

    def fleet(self, counts: FleetCounts) -> None:
        """Set the gauges of the fleet after a reconciliation."""

    def store_write(self, operation: str, duration: Seconds) -> None:
        """Observe a durable write as its caller sees it: `commit` of changes, or `accept` of a delivery."""

    def store_size(self, file: int, write_ahead_log: int) -> None:
        """Set the sizes of the store's files, in bytes."""

    def store_disk(self, free: int, size: int) -> None:
        """Set how many bytes of the store's file system are free, and how many it has."""


@dataclass(frozen=True, slots=True)
class Stage:
    """One part of a wait. Moments are Unix seconds."""

    name: str
    began: Instant
    ended: Instant


@dataclass(frozen=True, slots=True)
class WaitTrace:
    """The wait of one job, from `queued_at` to `started_at`. The stages follow each other without gaps.

    The machine's fields are None if GitHub named a runner that the controller does not know.
    """

    job: JobId
    run: int | None
    repository: str
    sku: SkuName
    queued_at: Instant
    started_at: Instant
    stages: tuple[Stage, ...]
    runner: RunnerName | None = None
    machine: MachineId | None = None
    launch_request: LaunchRequestId | None = None
    provider: ProviderName | None = None


class TraceTelemetry(Protocol):
    """Where traces go."""

    def trace_job(self, trace: WaitTrace) -> None:
        """Export the trace of a job that started. Neither raises nor blocks: what cannot be sent is dropped."""
