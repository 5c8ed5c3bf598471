"""Prices are read when they are due, stored and reported; a refusal does not stop other reads."""

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pytest
from structlog.testing import capture_logs

from autoscaler.controller.money.price_refresh import (
    AGAIN_FIRST,
    FIRST_WAIT,
    READ_EVERY,
    PriceRefresh,
)
from autoscaler.controller.ports.capabilities import PriceAnswer
from autoscaler.controller.ports.provider import OutcomeUnknownError, ProviderError, provider_errors
from autoscaler.model.catalogue import CapacityType, OperatingSystem
from autoscaler.model.identifiers import Instant
from autoscaler.model.machines.failures import FailureClass
from autoscaler.model.prices_and_quotas import READ_AS, Price, PriceSource, ReadingKind
from tests.controller.controllers import cancelled
from tests.controller.fakes import RecordingTelemetry
from tests.controller.fakes_provider import FakeProvider
from tests.controller.fakes_store import FakeStore
from tests.controller.virtual_time import EPOCH, VirtualClock, on_virtual_time
from tests.planner.fleets import EAST

ON_DEMAND, SPOT = CapacityType.ON_DEMAND, CapacityType.SPOT
G5 = Price(ON_DEMAND, "g5.xlarge", OperatingSystem.LINUX, "", 1.1, EPOCH)
G5_SPOT = Price(SPOT, "g5.xlarge", OperatingSystem.LINUX, "a", 0.4, EPOCH)
DENIED = ProviderError(
    FailureClass.CONFIGURATION, "AccessDeniedException", "not you", hint="mend it"
)


@provider_errors
@dataclass
class FakeReader:
    """A price reader of `g5.xlarge`. Each read takes the next outcome of its script, or returns the price.

    An error of the port is part of the answer; any other error is raised.
    """

    clock: VirtualClock
    kinds: Sequence[CapacityType] = (ON_DEMAND, SPOT)
    latency: float = 1.0
    script: deque[Exception | PriceAnswer] = field(default_factory=deque)
    reads: list[tuple[CapacityType, Instant]] = field(default_factory=list)
    used: dict[tuple[CapacityType, str], tuple[Price, PriceSource]] = field(default_factory=dict)

    @property
    def price_kinds(self) -> Sequence[CapacityType]:
        return self.kinds

    async def read_prices(self, capacity_type: CapacityType) -> PriceAnswer:
        self.reads.append((capacity_type, self.clock.now() - EPOCH))
        await asyncio.sleep(self.latency)
        if self.script and capacity_type is ON_DEMAND:
            step = self.script.popleft()
            if isinstance(step, ProviderError | OutcomeUnknownError):
                return PriceAnswer((), step)
            if isinstance(step, Exception):
                raise step
            return step
        price = G5 if capacity_type is ON_DEMAND else G5_SPOT
        return PriceAnswer((replace(price, read_at=self.clock.now()),))

    def use_prices(self, prices: Sequence[Price], source: PriceSource) -> bool:
        before = self.dollars()
        for price in prices:
            self.used[price.capacity_type, price.instance_type] = price, source
        return before != self.dollars()

    def dollars(self) -> Mapping[tuple[CapacityType, str], float]:
        return {key: price.dollars_per_hour for key, (price, _) in self.used.items()}

    def price_sources(self, capacity_type: CapacityType) -> Mapping[PriceSource, int]:
        found = dict.fromkeys(PriceSource, 0)
        for (kind, _), (_, source) in self.used.items():
            found[source] += kind is capacity_type
        if not any(found.values()):
            found[PriceSource.BUILT_IN] = 1
        return found

    def known_prices(self, capacity_type: CapacityType) -> tuple[Price, ...]:
        return tuple(price for (kind, _), (price, _) in self.used.items() if kind is capacity_type)


class Scene:
    """The prices of one provider, with their cache, clock and listeners."""

    def __init__(self, *cached: Price, kinds: Sequence[CapacityType] = (ON_DEMAND, SPOT)) -> None:
        self.clock = VirtualClock()
        self.reader = FakeReader(self.clock, kinds)
        self.cache = FakeStore()
        for price in cached:
            where = EAST, READ_AS[price.capacity_type]
            self.cache.readings[where] = (*self.cache.readings.get(where, ()), price.reading())
        self.telemetry = RecordingTelemetry()
        self.changed: list[CapacityType] = []
        provider = FakeProvider(EAST)
        provider.prices = self.reader
        self.pricing = PriceRefresh(
            {EAST: provider},
            self.cache,
            self.changed.append,
            self.telemetry,
            self.clock,
        )

    async def run(self, seconds: float) -> None:
        task = asyncio.create_task(self.pricing.run())
        await asyncio.sleep(seconds)
        if task.done():
            await task
        await cancelled(task)

    def read_at(self, kind: CapacityType) -> list[float]:
        return [round(at) for one, at in self.reader.reads if one is kind]


@pytest.mark.case(
    "prices differ by region and change: the controller reads them from AWS, and the store keeps "
    "them",
    topic="EC2's API",
    source="Karpenter's pricing provider; AWS: GetProducts",
)
@on_virtual_time
async def test_on_demand_prices_are_read_twice_a_day_and_spot_prices_every_hour() -> None:
    scene = Scene()
    await scene.run(24 * 3600.0)
    day, hour = READ_EVERY[ON_DEMAND], READ_EVERY[SPOT]
    assert [round(at / day) for at in scene.read_at(ON_DEMAND)] == [0, 1]
    assert [round(at / hour) for at in scene.read_at(SPOT)] == list(range(24))
    assert scene.changed == [ON_DEMAND, SPOT], "nothing is priced anew for the same price"
    assert {kind: len(kept) for (_, kind), kept in scene.cache.readings.items()} == {
        ReadingKind.ON_DEMAND_PRICE: 1,
        ReadingKind.SPOT_PRICE: 1,
    }


@on_virtual_time
async def test_stored_prices_are_used_from_the_start_and_recent_ones_are_not_read_again() -> None:
    scene = Scene(replace(G5, read_at=EPOCH - 3600.0), replace(G5_SPOT, read_at=EPOCH - 600.0))
    known = asyncio.create_task(scene.pricing.wait_for_first(EAST))
    scene.reader.latency = 600.0
    await scene.run(0.5)
    assert known.done(), "nothing to wait for"
    assert set(scene.changed) == {ON_DEMAND, SPOT}
    assert scene.reader.used[ON_DEMAND, "g5.xlarge"][1] is PriceSource.CACHE
    again = Scene(replace(G5, read_at=EPOCH - 3600.0))
    await again.run(READ_EVERY[ON_DEMAND])
    assert again.read_at(ON_DEMAND) == [round(READ_EVERY[ON_DEMAND] - 3600.0)]
    assert again.read_at(SPOT)[0] < 5


@on_virtual_time
async def test_prices_are_read_at_the_start_if_the_stored_ones_lack_a_type() -> None:
    """A SKU got a new instance type while the controller was down."""
    scene = Scene(replace(G5, read_at=EPOCH - 60.0), kinds=(ON_DEMAND,))
    newer = replace(G5, instance_type="g6.xlarge")
    scene.reader.used[ON_DEMAND, newer.instance_type] = newer, PriceSource.BUILT_IN
    await scene.run(30.0)
    assert [kind for kind, _ in scene.reader.reads] == [ON_DEMAND]


@on_virtual_time
async def test_the_first_start_waits_for_prices_for_a_bounded_time() -> None:
    for latency, waits in ((5.0, 5.0), (3600.0, FIRST_WAIT)):
        scene = Scene()
        scene.reader.latency = latency
        running = asyncio.create_task(scene.pricing.run())
        began = scene.clock.now()
        await scene.pricing.wait_for_first(EAST)
        assert waits <= scene.clock.now() - began < waits + 0.1
        await cancelled(running)


@on_virtual_time
async def test_no_provider_waits_for_prices_that_it_does_not_read() -> None:
    scene = Scene(kinds=())
    running = asyncio.create_task(scene.pricing.run())
    began = scene.clock.now()
    await scene.pricing.wait_for_first(EAST)
    assert scene.clock.now() - began < 0.1
    assert scene.reader.reads == []
    await cancelled(running)


@pytest.mark.case(
    "the Pricing API refuses (a service control policy, no permission): nothing waits for it",
    topic="EC2's API",
    source="Karpenter#3522; Karpenter#2604",
)
@on_virtual_time
async def test_a_refused_price_request_is_logged_with_a_hint_and_retried_with_backoff() -> None:
    scene = Scene(kinds=(ON_DEMAND,))
    scene.reader.script.extend([DENIED] * 3)
    with capture_logs() as logs:
        known = asyncio.create_task(scene.pricing.wait_for_first(EAST))
        await scene.run(8 * AGAIN_FIRST)
    assert known.done(), "a refusal holds nothing up"
    gaps = [
        b - a for a, b in zip(scene.read_at(ON_DEMAND), scene.read_at(ON_DEMAND)[1:], strict=False)
    ]
    assert [round(gap / AGAIN_FIRST) for gap in gaps] == [1, 2, 4]
    warned = [line for line in logs if line["event"] == "prices_not_read"]
    assert len(warned) == 3
    assert "AccessDeniedException" in warned[0]["error"]
    assert warned[0]["hint"] == "mend it", "the provider's own hint"
    assert warned[0]["in_use"] == {"built_in": 1}
    reported = [
        line["sources"]
        for line in logs
        if line["event"] == "prices_in_use" and line["capacity_type"] == "on-demand"
    ]
    assert reported == [{"built_in": 1}, {"api": 1}]


@on_virtual_time
async def test_known_prices_stay_in_use_while_no_price_can_be_read() -> None:
    scene = Scene(
        replace(G5, dollars_per_hour=1.3, read_at=EPOCH - 99 * 3600.0), kinds=(ON_DEMAND,)
    )
    scene.reader.script.extend(
        [OutcomeUnknownError("time-out"), TypeError("a bug"), PriceAnswer(())]
    )
    with capture_logs() as logs:
        await scene.run(2 * AGAIN_FIRST)
    assert scene.changed == [ON_DEMAND], "nothing is priced anew for a failure"
    used, source = scene.reader.used[ON_DEMAND, "g5.xlarge"]
    assert (used.dollars_per_hour, source) == (1.3, PriceSource.CACHE)
    assert scene.cache.readings[EAST, ReadingKind.ON_DEMAND_PRICE][0].value == 1.3
    assert [line["hint"] for line in logs if line["event"] == "prices_not_read"] == [None] * 2


@on_virtual_time
async def test_metrics_show_the_source_of_prices_and_when_they_were_read() -> None:
    scene = Scene(replace(G5, read_at=EPOCH - 99 * 3600.0), kinds=(ON_DEMAND,))
    await scene.run(5.0)
    reported = [said[1:] for said in scene.telemetry.prices_reported if said[1] is ON_DEMAND]
    assert [
        (next(source for source, number in sources.items() if number), read_at)
        for _, sources, read_at in reported
    ] == [(PriceSource.CACHE, EPOCH - 99 * 3600.0), (PriceSource.API, reported[1][2])]
    assert reported[1][2] is not None
    assert reported[1][2] >= EPOCH


@pytest.mark.case(
    "one request for prices fails among many (`ThrottlingException`, `InternalErrorException`): "
    "its prices stay as they were, the others are used "
    "and kept",
    topic="EC2's API",
    source="AWS: GetProducts",
)
@on_virtual_time
async def test_a_partial_answer_replaces_only_the_prices_that_it_has() -> None:
    long_ago = EPOCH - 99 * 3600.0
    g6 = replace(G5, instance_type="g6.xlarge", dollars_per_hour=0.8, read_at=long_ago)
    scene = Scene(replace(G5, dollars_per_hour=1.3, read_at=long_ago), g6, kinds=(ON_DEMAND,))
    scene.reader.script.append(PriceAnswer((G5,), OutcomeUnknownError("time-out")))
    with capture_logs() as logs:
        await scene.run(AGAIN_FIRST + 5.0)
    kept = {one.name: one.value for one in scene.cache.readings[EAST, ReadingKind.ON_DEMAND_PRICE]}
    assert kept == {"g5.xlarge/linux/": 1.1, "g6.xlarge/linux/": 0.8}
    assert scene.reader.dollars() == {(ON_DEMAND, "g5.xlarge"): 1.1, (ON_DEMAND, "g6.xlarge"): 0.8}
    (warned,) = (line for line in logs if line["event"] == "prices_not_read")
    assert warned["error"] == "time-out"
    assert warned["in_use"] == {"api": 1, "cache": 1}
    assert len(scene.read_at(ON_DEMAND)) == 2, "asked again soon"
    *_, (_, _, _, read_at) = scene.telemetry.prices_reported
    assert read_at == long_ago, "the oldest price in use"


@on_virtual_time
async def test_a_provider_that_lists_no_price_causes_a_warning() -> None:
    scene = Scene(kinds=(ON_DEMAND,))
    scene.reader.script.append(PriceAnswer(()))
    with capture_logs() as logs:
        await scene.run(10.0)
    (line,) = [one for one in logs if one["event"] == "prices_not_read"]
    assert (line["error"], line["hint"]) == ("the provider lists none of these types", None)
