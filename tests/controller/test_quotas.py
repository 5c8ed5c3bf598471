"""Quotas are stored and reported: after a restart without permission to read them, the last ones apply."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from structlog.testing import capture_logs

from autoscaler.controller.money.quotas import READ_EVERY as UPKEEP_EVERY
from autoscaler.controller.ports.provider import OutcomeUnknownError, ProviderError
from autoscaler.controller.ports.store import StoreError
from autoscaler.model.identifiers import ProviderName
from autoscaler.model.machines.failures import FailureClass
from autoscaler.model.prices_and_quotas import QuotaSource, Reading, ReadingKind
from tests.controller.controllers import Controller, World, cancelled
from tests.controller.fakes_provider import FakeProvider
from tests.controller.fakes_store import FakeStore
from tests.controller.virtual_time import EPOCH, VirtualClock, on_virtual_time
from tests.planner.fleets import EAST

G = "on-demand/G"
DENIED = ProviderError(
    FailureClass.CONFIGURATION, "AccessDeniedException", "not you", hint="mend it"
)
UNLISTED = ProviderError(
    FailureClass.CONFIGURATION, "UnauthorizedOperation", "not you", hint="mend it"
)


@dataclass
class FakeLimits:
    """An account with one quota. `says` is the answer to a read: vCPUs, or an error."""

    clock: VirtualClock
    says: float | ProviderError | OutcomeUnknownError
    known: Reading | None = None
    source: QuotaSource = QuotaSource.UNKNOWN
    problem: ProviderError | OutcomeUnknownError | None = None

    def use_kept(self, readings: Sequence[Reading]) -> None:
        for reading in readings:
            self.known, self.source = reading, QuotaSource.CACHE

    def readings(self) -> tuple[Reading, ...]:
        return () if self.known is None else (self.known,)

    def sources(self) -> Mapping[QuotaSource, int]:
        return dict.fromkeys(QuotaSource, 0) | {self.source: 1}

    def read(self) -> dict[str, int]:
        if isinstance(self.says, Exception):
            self.problem = self.says
        else:
            self.problem = None
            self.known = Reading(G, self.says, self.clock.now())
            self.source = QuotaSource.API
        return {} if self.known is None else {f"east/{G}": int(self.known.value)}


@dataclass
class LimitedProvider(FakeProvider):
    """A provider that reads its account each time, as the port requires."""

    name_: ProviderName = EAST
    account: FakeLimits = field(kw_only=True)

    def __post_init__(self) -> None:
        super().__init__(self.name_)
        self.limits = self.account

    async def quotas(self) -> Mapping[str, int]:
        known = self.account.read()
        await super().quotas()
        return known


class Process:
    """One controller process, as far as quotas are concerned. The world survives it."""

    def __init__(self, world: World, cache: FakeStore, limits: FakeLimits) -> None:
        provider = LimitedProvider(account=limits)
        self.cache = cache
        self.provider = provider
        world.providers[EAST] = provider
        world.store = cache
        self.controller = Controller(world)

    @property
    def quotas(self) -> Mapping[str, int]:
        return self.controller.state.quotas

    async def run(self, seconds: float) -> list[Any]:
        with capture_logs() as logs:
            await self.controller.resume()
            task = asyncio.create_task(self.controller.run_tasks())
            await asyncio.sleep(seconds)
            if task.done():
                await task
            await cancelled(task)
        return logs


def events(logs: list[Any], name: str) -> list[Any]:
    return [line for line in logs if line["event"] == name]


@pytest.mark.case(
    "Service Quotas refuses or does not answer after a restart: the last values are used",
    topic="EC2's API",
    source="Service Quotas: ListServiceQuotas",
)
@on_virtual_time
async def test_read_quotas_are_stored_and_survive_a_refusal_after_a_restart() -> None:
    world, cache = World(), FakeStore()
    first = Process(world, cache, FakeLimits(world.clock, 64.0))
    logs = await first.run(5.0)
    assert first.quotas == {f"east/{G}": 64}
    (kept,) = cache.readings[EAST, ReadingKind.QUOTA]
    assert (kept.name, kept.value) == (G, 64.0)
    assert [line["sources"] for line in events(logs, "quotas_in_use")] == [{"api": 1}]
    await asyncio.sleep(3600.0)

    again = Process(world, cache, FakeLimits(world.clock, DENIED))
    logs = await again.run(5.0)
    assert again.quotas == {f"east/{G}": 64}
    assert cache.readings[EAST, ReadingKind.QUOTA] == (kept,), "with the time of the last reading"
    (refused,) = events(logs, "quotas_not_read")
    assert "AccessDeniedException" in refused["error"]
    assert refused["hint"] == "mend it", "the provider's own hint"
    assert refused["in_use"] == {"cache": 1}
    assert refused["age_seconds"] == pytest.approx(3605.0, abs=10.0)


@on_virtual_time
async def test_unknown_quotas_are_logged() -> None:
    world = World()
    process = Process(world, FakeStore(), FakeLimits(world.clock, OutcomeUnknownError("late")))
    logs = await process.run(5.0)
    assert process.quotas == {}
    (refused,) = events(logs, "quotas_not_read")
    assert (refused["in_use"], refused["age_seconds"], refused["hint"]) == (
        {"unknown": 1},
        None,
        None,
    )
    assert process.cache.readings == {}
    assert world.telemetry.quotas_reported[-1] == (EAST, {**NONE, QuotaSource.UNKNOWN: 1}, None)


NONE = dict.fromkeys(QuotaSource, 0)


@on_virtual_time
async def test_a_lasting_refusal_is_logged_once_and_its_end_too() -> None:
    world, cache = World(), FakeStore()
    cache.readings[EAST, ReadingKind.QUOTA] = (Reading(G, 32.0, EPOCH - 60.0),)
    process = Process(world, cache, FakeLimits(world.clock, DENIED))
    logs = await process.run(3 * UPKEEP_EVERY)
    assert len(events(logs, "quotas_not_read")) == 1
    assert world.telemetry.quotas_reported[-1] == (
        EAST,
        {**NONE, QuotaSource.CACHE: 1},
        EPOCH - 60.0,
    )
    process.provider.account.says = 48.0
    logs = await process.run(5.0)
    assert process.quotas == {f"east/{G}": 48}
    assert [line["sources"] for line in events(logs, "quotas_in_use")] == [{"api": 1}]
    assert events(logs, "quotas_not_read") == []


@on_virtual_time
async def test_another_refusal_is_logged_and_another_wording_is_not() -> None:
    world = World()
    process = Process(world, FakeStore(), FakeLimits(world.clock, DENIED))
    codes = []
    for answer in (
        DENIED,
        ProviderError(FailureClass.CONFIGURATION, "AccessDeniedException", "not you, request 2"),
        UNLISTED,
    ):
        process.provider.account.says = answer
        logs = await process.run(5.0)
        codes += [line["error"].partition(":")[0] for line in events(logs, "quotas_not_read")]
    assert codes == ["AccessDeniedException", "UnauthorizedOperation"]


@on_virtual_time
async def test_a_refusal_of_quotas_and_machines_is_one_line_with_what_is_in_use() -> None:
    """EC2 needs both for the quotas that are left."""
    world, cache = World(), FakeStore()
    cache.readings[EAST, ReadingKind.QUOTA] = (Reading(G, 32.0, EPOCH - 60.0),)
    process = Process(world, cache, FakeLimits(world.clock, OutcomeUnknownError("late")))
    process.provider.quota_script.extend([UNLISTED] * 3)
    logs = await process.run(3 * UPKEEP_EVERY)
    (refused,) = events(logs, "quotas_not_read")
    assert refused["log_level"] == "warning"
    assert "UnauthorizedOperation" in refused["error"]
    assert (refused["hint"], refused["in_use"]) == ("mend it", {"cache": 1})
    process.provider.account.says = 64.0
    (again,) = events(await process.run(5.0), "quotas_in_use")
    assert again["sources"] == {"api": 1}


@on_virtual_time
async def test_a_provider_without_stored_quotas_logs_only_a_refusal_and_its_end() -> None:
    world = World()
    controller = Controller(world)
    east = world.east
    with capture_logs() as logs:
        await controller.resume()
        task = asyncio.create_task(controller.run_tasks())
        await asyncio.sleep(5.0)
        assert [line for line in logs if line["event"].startswith("quotas_")] == []
        east.quota_script.extend([DENIED] * 2)
        await asyncio.sleep(3 * UPKEEP_EVERY)
        await cancelled(task)
    said = [line for line in logs if line["event"].startswith("quotas_")]
    assert [(line["event"], line.get("hint")) for line in said] == [
        ("quotas_not_read", "mend it"),
        ("quotas_in_use", None),
    ]


@on_virtual_time
async def test_a_store_that_cannot_keep_quotas_ends_the_process() -> None:
    world, cache = World(), FakeStore()
    cache.readings_broken = True
    process = Process(world, cache, FakeLimits(world.clock, 64.0))
    with pytest.raises(BaseExceptionGroup) as group:
        await process.run(5.0)
    assert group.group_contains(StoreError)
