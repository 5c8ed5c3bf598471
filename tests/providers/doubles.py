"""Stand-ins for the ports that a provider is given: a clock, telemetry, and an `Api`."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from autoscaler.controller.ports.telemetry import Telemetry
from autoscaler.model.identifiers import Instant, ProviderName, Seconds


@dataclass(slots=True)
class ManualClock:
    """A clock that only sleeping or a test advances."""

    time: Instant = 1_000_000.0
    slept: list[Seconds] = field(default_factory=list)

    def now(self) -> Instant:
        return self.time

    async def sleep(self, seconds: Seconds) -> None:
        self.slept.append(seconds)
        self.time += seconds
        await asyncio.sleep(0)


@dataclass
class RememberingTelemetry(Telemetry):
    """Keeps the calls to providers as (operation, outcome)."""

    calls: list[tuple[str, str]] = field(default_factory=list)

    def provider_call(
        self, provider: ProviderName, operation: str, outcome: str, duration: Seconds
    ) -> None:
        self.calls.append((operation, outcome))


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
