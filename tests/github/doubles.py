"""A clock that only moves when told, and a telemetry that remembers."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from autoscaler.controller.ports.telemetry import FleetCounts
from autoscaler.model.catalogue import CapacityType
from autoscaler.model.failures import FailureClass
from autoscaler.model.identifiers import Instant, ProviderName, Seconds, SkuName
from autoscaler.model.interruptions import NoticeKind, RerunOutcome
from autoscaler.model.machines import EndGround, ExitReason
from autoscaler.model.prices import PriceSource
from autoscaler.model.unmatched import Unmatched

START: Instant = 1_800_000_000.0


@dataclass
class ManualClock:
    """Implements Clock. Sleeping takes no time but this clock's own."""

    at: Instant = START
    slept: list[Seconds] = field(default_factory=list)

    def now(self) -> Instant:
        return self.at

    async def sleep(self, seconds: Seconds) -> None:
        self.slept.append(seconds)
        self.at += seconds


@dataclass
class RememberingTelemetry:
    """Implements Telemetry; the GitHub edge uses `github_call` and `github_budget` alone."""

    calls: Counter[tuple[str, str]] = field(default_factory=Counter)
    budgets: list[tuple[int, str, str, int | None, int | None]] = field(default_factory=list)

    def github_call(self, endpoint: str, outcome: str, duration: Seconds) -> None:
        assert duration >= 0.0
        self.calls[endpoint, outcome] += 1

    def github_budget(
        self, app: int, account: str, resource: str, remaining: int | None, limit: int | None
    ) -> None:
        self.budgets.append((app, account, resource, remaining, limit))

    def github_staleness(self, account: str, seconds: Seconds) -> None:
        raise AssertionError("the controller's")

    def github_left_out(self, account: str, repositories: int) -> None:
        raise AssertionError("the controller's")

    def provider_call(
        self, provider: ProviderName, operation: str, outcome: str, duration: Seconds
    ) -> None:
        raise AssertionError("not GitHub's")

    def delivery(self, answer: str) -> None:
        raise AssertionError("the server's")

    def bootstrap(self, step: str, answer: str) -> None:
        raise AssertionError("the server's")

    def job_started(self, sku: SkuName, waited: Seconds) -> None:
        raise AssertionError("the controller's")

    def job_refused(self, sku: SkuName, code: str) -> None:
        raise AssertionError("the controller's")

    def job_outside_access(self, sku: SkuName, reason: str) -> None:
        raise AssertionError("the controller's")

    def runner_group(self, account: str, group: str, reason: str, too_wide: bool) -> None:
        raise AssertionError("the controller's")

    def job_completed(self, sku: SkuName, conclusion: str) -> None:
        raise AssertionError("the controller's")

    def job_unmatched(self, reason: Unmatched) -> None:
        raise AssertionError("the controller's")

    def prices(
        self,
        provider: ProviderName,
        capacity_type: CapacityType,
        sources: Mapping[PriceSource, int],
        read_at: Instant | None,
    ) -> None: ...

    def launches(self, sku: SkuName, provider: ProviderName, count: int) -> None:
        raise AssertionError("the controller's")

    def launch_failures(self, sku: SkuName, failure: FailureClass, count: int) -> None:
        raise AssertionError("the controller's")

    def machine_ended(self, sku: SkuName, ground: EndGround) -> None:
        raise AssertionError("the controller's")

    def runner_exited(self, sku: SkuName, reason: ExitReason) -> None:
        raise AssertionError("the controller's")

    def notice(self, provider: ProviderName, kind: str) -> None:
        raise AssertionError("the controller's")

    def machine_interrupted(self, sku: SkuName, kind: NoticeKind) -> None:
        raise AssertionError("the controller's")

    def rerun(self, sku: SkuName, outcome: RerunOutcome) -> None:
        raise AssertionError("the controller's")

    def loop_pass(self, duration: Seconds) -> None:
        raise AssertionError("the controller's")

    def fleet(self, counts: FleetCounts) -> None:
        raise AssertionError("the controller's")
