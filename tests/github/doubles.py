"""A clock that only tests advance, and a telemetry that keeps its calls."""

from collections import Counter
from dataclasses import dataclass, field

from autoscaler.controller.ports.telemetry import Telemetry
from autoscaler.model.identifiers import Instant, Seconds

START: Instant = 1_800_000_000.0


@dataclass
class ManualClock:
    """Implements Clock. Sleeping advances this clock and takes no real time."""

    at: Instant = START
    slept: list[Seconds] = field(default_factory=list)

    def now(self) -> Instant:
        return self.at

    async def sleep(self, seconds: Seconds) -> None:
        self.slept.append(seconds)
        self.at += seconds


@dataclass
class RememberingTelemetry(Telemetry):
    """Keeps what the GitHub edge reports."""

    calls: Counter[tuple[str, str]] = field(default_factory=Counter)
    clocks: list[Seconds] = field(default_factory=list)
    budgets: list[tuple[int, str, str, int | None, int | None]] = field(default_factory=list)

    def github_call(self, endpoint: str, outcome: str, duration: Seconds) -> None:
        assert duration >= 0.0
        self.calls[endpoint, outcome] += 1

    def github_clock(self, ahead: Seconds) -> None:
        self.clocks.append(ahead)

    def github_budget(
        self, app: int, account: str, resource: str, remaining: int | None, limit: int | None
    ) -> None:
        self.budgets.append((app, account, resource, remaining, limit))
