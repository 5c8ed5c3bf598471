"""Ids, telemetry and the fuse that ends a process in the middle of its work, for tests."""

import asyncio
from dataclasses import dataclass, field

from autoscaler.controller.ports.telemetry import FleetCounts
from autoscaler.model.failures import FailureClass
from autoscaler.model.identifiers import CallId, MachineId, ProviderName, Seconds, SkuName
from autoscaler.model.machines import EndGround


class Fuse:
    """Counts a process's calls of its ports; at the n-th the process hears nothing any more.

    Every call passes it twice: before it has any effect, and after, before its answer arrives.
    """

    def __init__(self, length: int | None = None) -> None:
        self.burnt = 0
        self.blown = asyncio.Event()
        self._length = length

    async def burn(self) -> None:
        """Return, or never: from the n-th time on nothing goes out and nothing comes back."""
        if not self.blown.is_set():
            self.burnt += 1
            if self._length is None or self.burnt < self._length:
                return
            self.blown.set()
        await asyncio.Event().wait()


class SequentialIds:
    """Counts up, so that a run can be repeated. One for all processes of an installation."""

    def __init__(self) -> None:
        self._last = 0

    def machine(self) -> MachineId:
        return MachineId(self._next())

    def call(self) -> CallId:
        return CallId(self._next())

    def token(self) -> str:
        return f"token-{self._next()}"

    def _next(self) -> str:
        self._last += 1
        return f"{self._last:016x}"


@dataclass
class RecordingTelemetry:
    """Keeps every word: (method, label values), and the last counts of the fleet."""

    said: list[tuple[str, ...]] = field(default_factory=list)
    started: list[tuple[SkuName, Seconds]] = field(default_factory=list)
    counts: FleetCounts = field(default_factory=FleetCounts)
    passes: int = 0

    def github_call(self, endpoint: str, outcome: str, duration: Seconds) -> None:
        self.said.append(("github_call", endpoint, outcome))

    def github_budget(
        self, app: int, account: str, resource: str, remaining: int | None, limit: int | None
    ) -> None:
        self.said.append(("github_budget", str(app), account, resource))

    def provider_call(
        self, provider: ProviderName, operation: str, outcome: str, duration: Seconds
    ) -> None:
        self.said.append(("provider_call", provider, operation, outcome))

    def delivery(self, answer: str) -> None:
        self.said.append(("delivery", answer))

    def bootstrap(self, step: str, answer: str) -> None:
        self.said.append(("bootstrap", step, answer))

    def job_started(self, sku: SkuName, waited: Seconds) -> None:
        self.said.append(("job_started", sku))
        self.started.append((sku, waited))

    def job_completed(self, sku: SkuName, conclusion: str) -> None:
        self.said.append(("job_completed", sku, conclusion))

    def launches(self, sku: SkuName, provider: ProviderName, count: int) -> None:
        self.said.extend([("launches", sku, provider)] * count)

    def launch_failures(self, sku: SkuName, failure: FailureClass, count: int) -> None:
        self.said.extend([("launch_failures", sku, failure)] * count)

    def machine_ended(self, sku: SkuName, ground: EndGround) -> None:
        self.said.append(("machine_ended", sku, ground))

    def loop_pass(self, duration: Seconds) -> None:
        self.passes += 1

    def fleet(self, counts: FleetCounts) -> None:
        self.counts = counts
