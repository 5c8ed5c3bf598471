"""Stand-ins for the ports that a provider is given: a clock, telemetry, and an `Api`."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from autoscaler.controller.ports.telemetry import FleetCounts
from autoscaler.model.catalogue import CapacityType
from autoscaler.model.failures import FailureClass
from autoscaler.model.identifiers import Instant, ProviderName, Seconds, SkuName
from autoscaler.model.interruptions import NoticeKind, RerunOutcome
from autoscaler.model.machines import EndGround, ExitReason
from autoscaler.model.prices import PriceSource
from autoscaler.model.unmatched import Unmatched


@dataclass(slots=True)
class ManualClock:
    """Time that passes only when somebody sleeps or the test says so."""

    time: Instant = 1_000_000.0
    slept: list[Seconds] = field(default_factory=list)

    def now(self) -> Instant:
        return self.time

    async def sleep(self, seconds: Seconds) -> None:
        self.slept.append(seconds)
        self.time += seconds
        await asyncio.sleep(0)


@dataclass(slots=True)
class RememberingTelemetry:
    """Keeps the calls to providers as (operation, outcome)."""

    calls: list[tuple[str, str]] = field(default_factory=list)

    def provider_call(
        self, provider: ProviderName, operation: str, outcome: str, duration: Seconds
    ) -> None:
        self.calls.append((operation, outcome))

    def github_call(self, endpoint: str, outcome: str, duration: Seconds) -> None: ...

    def github_budget(
        self, app: int, account: str, resource: str, remaining: int | None, limit: int | None
    ) -> None: ...

    def github_staleness(self, account: str, seconds: Seconds) -> None: ...

    def github_left_out(self, account: str, repositories: int) -> None: ...

    def delivery(self, answer: str) -> None: ...

    def bootstrap(self, step: str, answer: str) -> None: ...

    def job_started(self, sku: SkuName, waited: Seconds) -> None: ...

    def job_refused(self, sku: SkuName, code: str) -> None: ...

    def job_outside_access(self, sku: SkuName, reason: str) -> None: ...

    def runner_group(self, account: str, group: str, reason: str, too_wide: bool) -> None: ...

    def job_completed(self, sku: SkuName, conclusion: str) -> None: ...

    def job_unmatched(self, reason: Unmatched) -> None: ...

    def prices(
        self,
        provider: ProviderName,
        capacity_type: CapacityType,
        sources: Mapping[PriceSource, int],
        read_at: Instant | None,
    ) -> None: ...

    def launches(self, sku: SkuName, provider: ProviderName, count: int) -> None: ...

    def launch_failures(self, sku: SkuName, failure: FailureClass, count: int) -> None: ...

    def machine_ended(self, sku: SkuName, ground: EndGround) -> None: ...

    def runner_exited(self, sku: SkuName, reason: ExitReason) -> None: ...

    def notice(self, provider: ProviderName, kind: str) -> None: ...

    def machine_interrupted(self, sku: SkuName, kind: NoticeKind) -> None: ...

    def rerun(self, sku: SkuName, outcome: RerunOutcome) -> None: ...

    def loop_pass(self, duration: Seconds) -> None: ...

    def fleet(self, counts: FleetCounts) -> None: ...


@dataclass(slots=True)
class ScriptedApi:
    """An `Api` that answers by a function of the operation and its arguments."""

    answer: Callable[[str, Mapping[str, Any]], Any]
    calls: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)

    async def call(self, operation: str, arguments: Mapping[str, Any]) -> Any:
        self.calls.append((operation, arguments))
        await asyncio.sleep(0)
        return self.answer(operation, arguments)

    async def close(self) -> None: ...
