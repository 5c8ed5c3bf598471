"""The port for metrics, by who reports: one method for each thing that is counted or timed.

No method raises or blocks. Label values are bounded.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from autoscaler.model.catalogue import CapacityType
from autoscaler.model.failures import FailureClass
from autoscaler.model.identifiers import Instant, ProviderName, Seconds, SkuName
from autoscaler.model.interruptions import NoticeKind, RerunOutcome
from autoscaler.model.machines import ExitReason, MachineState, TerminationReason
from autoscaler.model.prices import PriceSource
from autoscaler.model.quotas import QuotaSource
from autoscaler.model.unmatched import Unmatched


@dataclass(frozen=True, slots=True)
class FleetCounts:
    """The fleet at one moment, by SKU. Jobs that no SKU serves are not included.

    `oldest_waiting` is how many seconds the oldest waiting job has been queued.
    `circuits_open` are the SKUs whose circuit breaker is not closed.
    """

    jobs_waiting: Mapping[SkuName, int] = field(default_factory=dict)
    oldest_waiting: Mapping[SkuName, Seconds] = field(default_factory=dict)
    jobs_in_progress: Mapping[SkuName, int] = field(default_factory=dict)
    machines: Mapping[tuple[SkuName, MachineState], int] = field(default_factory=dict)
    machines_foreign: int = 0
    machines_unverified: int = 0
    machines_not_terminating: int = 0
    dollars_per_hour: float = 0.0
    circuits_open: Collection[SkuName] = ()


class GitHubTelemetry(Protocol):
    """The GitHub client reports its requests."""

    def github_call(self, endpoint: str, outcome: str, duration: Seconds) -> None:
        """One request to GitHub. `endpoint` is a route template; `outcome` the status or an error word."""

    def github_budget(
        self, app: int, account: str, resource: str, remaining: int | None, limit: int | None
    ) -> None:
        """One answer to an App (`account` empty) or its installation, and what that bucket holds.

        `resource` is GitHub's name of the bucket; None where GitHub told no numbers.
        """


class SyncTelemetry(Protocol):
    """Reports how well GitHub's lists are known."""

    def github_staleness(self, account: str, seconds: Seconds) -> None:
        """How old the oldest picture is that was read of an account's active runs and repositories."""

    def github_unwatched(self, account: str, repositories: int) -> None:
        """How many of an account's repositories are too many to be looked at."""


class GroupTelemetry(Protocol):
    """Reports the access of runner groups."""

    def runner_group(self, account: str, group: str, reason: str, too_wide: bool) -> None:
        """Whether a runner group admits more than the `access` of its SKUs, by what more it admits."""


class ProviderTelemetry(Protocol):
    """A provider reports its requests."""

    def provider_call(
        self, provider: ProviderName, operation: str, outcome: str, duration: Seconds
    ) -> None:
        """One request to a provider, such as CreateFleet; `outcome` is ok or the error's code."""


class DeliveryTelemetry(Protocol):
    """The webhook endpoint reports deliveries."""

    def delivery(self, answer: str) -> None:
        """One webhook delivery by what became of it: accepted, duplicate, ignored, ping, bad_signature, ..."""


class BootstrapTelemetry(Protocol):
    """The bootstrap endpoint reports requests of machines."""

    def bootstrap(self, step: str, answer: str) -> None:
        """One bootstrap request: its step, and ok or the refusal's reason."""


class UnmatchedTelemetry(Protocol):
    """Reports jobs that no SKU serves."""

    def job_unmatched(self, reason: Unmatched) -> None:
        """A job of a configured scope was queued that no SKU serves."""


class PriceTelemetry(Protocol):
    """Reports the sources of prices."""

    def prices(
        self,
        provider: ProviderName,
        capacity_type: CapacityType,
        sources: Mapping[PriceSource, int],
        read_at: Instant | None,
    ) -> None:
        """How many prices in use come from where, and when the provider gave them; None: never."""


class QuotaTelemetry(Protocol):
    """Reports the sources of quotas."""

    def quotas(
        self, provider: ProviderName, sources: Mapping[QuotaSource, int], read_at: Instant | None
    ) -> None:
        """How many quotas come from where, and when the provider gave the oldest; None: never."""


class NoticeTelemetry(Protocol):
    """Reports messages of the queues of notices."""

    def notice(self, provider: ProviderName, kind: str) -> None:
        """One message of a provider's queue of notices: a NoticeKind, other or poison."""


class RecordTelemetry(Protocol):
    """The journal reports what changed in the records."""

    def job_started(self, sku: SkuName, waited: Seconds) -> None:
        """A job went from queued to in progress."""

    def job_completed(self, sku: SkuName, conclusion: str) -> None:
        """A job of ours ended."""

    def job_refused(self, sku: SkuName, code: str) -> None:
        """A job that no SKU of its labels may run, by the reason code."""

    def job_outside_access(self, sku: SkuName, reason: str) -> None:
        """A job ran on a machine whose SKU's `access` does not admit it: repository, fork or scope."""

    def launches(self, sku: SkuName, provider: ProviderName, count: int) -> None:
        """Machines asked for."""

    def launch_failures(self, sku: SkuName, failure: FailureClass, count: int) -> None:
        """Slots or machines that failed before they could serve."""

    def machine_terminated(self, sku: SkuName, reason_code: TerminationReason) -> None:
        """The controller decided to end a machine."""

    def runner_exited(self, sku: SkuName, reason: ExitReason) -> None:
        """A machine reported that its runner has left."""

    def machine_interrupted(self, sku: SkuName, kind: NoticeKind) -> None:
        """A machine of ours is taken back by its provider, or may be."""

    def rerun(self, sku: SkuName, outcome: RerunOutcome) -> None:
        """What became of a job whose machine was taken from under it."""


class LoopTelemetry(Protocol):
    """The control loop reports its turns."""

    def loop_pass(self, duration: Seconds) -> None:
        """One turn of the control loop."""

    def fleet(self, counts: FleetCounts) -> None:
        """The fleet after a turn of the control loop."""


class LagTelemetry(Protocol):
    """Reports delays of the event loop."""

    def event_loop_lag(self, longest: Seconds) -> None:
        """The longest time in the last minute or two that a due timer of the event loop waited."""


class Telemetry(
    GitHubTelemetry,
    SyncTelemetry,
    GroupTelemetry,
    ProviderTelemetry,
    DeliveryTelemetry,
    BootstrapTelemetry,
    UnmatchedTelemetry,
    PriceTelemetry,
    QuotaTelemetry,
    NoticeTelemetry,
    RecordTelemetry,
    LoopTelemetry,
    LagTelemetry,
    Protocol,
):
    """Everything that is reported, for what puts the parts together."""
