"""Calls are kept within EC2's limits of requests and of machines, and back off when refused."""

from collections.abc import Callable

import pytest

from autoscaler.model.catalogue import Rate
from autoscaler.model.identifiers import Seconds
from autoscaler.providers.ec2.worker.throttle import (
    RESOURCE_BUCKETS,
    Throttle,
    request_bucket,
    resource_bucket,
)
from tests.providers.doubles import ManualClock


@pytest.mark.case(
    "EC2 throttles requests by a bucket for each API",
    topic="EC2's API",
    source="EC2: request throttling",
)
@pytest.mark.parametrize(
    ("api", "capacity", "refill"),
    [
        ("CreateFleet", 50, 5),
        ("CreateLaunchTemplate", 50, 5),
        ("CreateTags", 100, 10),
        ("DeleteVolume", 50, 5),
        ("DescribeInstances", 100, 20),
        ("GetConsoleOutput", 100, 20),
        ("RunInstances", 5, 2),
        ("TerminateInstances", 100, 5),
    ],
)
def test_request_buckets_have_ec2s_published_sizes(api: str, capacity: int, refill: float) -> None:
    assert request_bucket(api, {}) == Rate(capacity, refill)
    assert request_bucket(api, {api: Rate(7, 7)}) == Rate(7, 7)


@pytest.mark.case(
    "machines count against buckets, too: 1,000 and 2 a second for launches, 20 for terminations",
    topic="EC2's API",
    source="EC2: request throttling",
)
def test_machine_buckets_have_ec2s_published_sizes() -> None:
    assert {"TerminateInstances": Rate(1000, 20)} == RESOURCE_BUCKETS
    assert resource_bucket("DescribeInstances", {}) is None
    assert resource_bucket("CreateFleet", {}) is None
    assert resource_bucket("CreateFleet", {"CreateFleet": Rate(9, 9)}) == Rate(9, 9)


async def test_each_api_has_a_bucket_of_machines_of_its_own() -> None:
    clock = ManualClock()
    throttle = Throttle(clock, {}, {"CreateFleet": Rate(10, 1)})
    await throttle.admit("TerminateInstances", machines=1000)
    await throttle.admit("CreateFleet", machines=10)
    assert clock.slept == []
    await throttle.admit("CreateFleet", machines=5)
    assert sum(clock.slept) == 5.0


async def test_after_a_burst_one_request_is_sent_for_each_refilled_token() -> None:
    clock = ManualClock()
    throttle = Throttle(clock)
    for _ in range(50):
        await throttle.admit("CreateFleet")
    assert clock.slept == []
    for _ in range(10):
        await throttle.admit("CreateFleet")
    assert clock.slept == pytest.approx([0.2] * 10)


async def test_a_thousand_machines_are_requested_at_once_and_then_twenty_a_second() -> None:
    clock = ManualClock()
    throttle = Throttle(clock)
    await throttle.admit("TerminateInstances", 1000)
    assert clock.slept == []
    await throttle.admit("TerminateInstances", 100)
    await throttle.admit("TerminateInstances", 10)
    assert clock.slept == pytest.approx([5.0, 0.5])


async def test_a_request_larger_than_its_bucket_waits_for_a_full_bucket() -> None:
    clock = ManualClock()
    throttle = Throttle(clock, resources={"CreateFleet": Rate(10, 1)})
    await throttle.admit("CreateFleet", 1000)
    await throttle.admit("CreateFleet", 1000)
    assert clock.slept == pytest.approx([10.0])


async def test_each_api_has_buckets_of_its_own() -> None:
    clock = ManualClock()
    throttle = Throttle(clock)
    for _ in range(100):
        await throttle.admit("TerminateInstances", 10)
        await throttle.admit("DescribeInstances")
    await throttle.admit("CreateFleet", 1000)
    assert clock.slept == []
    await throttle.admit("DescribeInstances")
    assert clock.slept == pytest.approx([1 / 20])


async def test_a_bucket_refills_to_its_capacity_and_no_further() -> None:
    clock = ManualClock()
    throttle = Throttle(clock, {"CreateFleet": Rate(2, 1)})
    for _ in range(2):
        await throttle.admit("CreateFleet")
    clock.time += 3600
    for _ in range(2):
        await throttle.admit("CreateFleet")
    assert clock.slept == []
    await throttle.admit("CreateFleet")
    assert clock.slept == [1.0]


async def test_a_refusal_empties_the_bucket() -> None:
    clock = ManualClock()
    throttle = Throttle(clock, {"CreateFleet": Rate(50, 0.5)})
    throttle.refused("CreateFleet")
    await throttle.admit("CreateFleet")
    assert clock.slept == [2.0]


@pytest.mark.case(
    "RequestLimitExceeded: the bucket is empty, and delays grow",
    topic="EC2's API",
    source="EC2: request throttling",
)
async def test_consecutive_refusals_double_the_backoff_and_simultaneous_ones_count_once() -> None:
    clock = ManualClock()
    throttle = Throttle(clock)
    waits = []
    for _ in range(9):
        for _ in range(3):
            throttle.refused("DescribeInstances")
        began = clock.time
        await throttle.admit("DescribeInstances")
        waits.append(clock.time - began)
    assert waits == pytest.approx([1, 2, 4, 8, 16, 32, 60, 60, 60])


async def test_an_accepted_request_resets_the_backoff_and_retry_after_extends_it() -> None:
    clock = ManualClock()
    throttle = Throttle(clock)
    for _ in range(2):
        throttle.refused("DescribeInstances")
        await throttle.admit("DescribeInstances")
    throttle.accepted("DescribeInstances")
    throttle.refused("DescribeInstances")
    await throttle.admit("DescribeInstances")
    throttle.refused("DescribeInstances", 30.0)
    await throttle.admit("DescribeInstances")
    await throttle.admit("CreateFleet")
    assert clock.slept == pytest.approx([1.0, 2.0, 1.0, 30.0])


class Interrupted(ManualClock):
    """A clock that runs one scripted action during each sleep."""

    def __init__(self, *meanwhile: Callable[[], None]) -> None:
        super().__init__()
        self._meanwhile = list(meanwhile)

    async def sleep(self, seconds: Seconds) -> None:
        if self._meanwhile:
            self._meanwhile.pop(0)()
        await super().sleep(seconds)


@pytest.mark.case(
    "EC2 throttles while calls already wait",
    topic="EC2's API",
    source="EC2: request throttling",
)
async def test_a_waiting_request_observes_a_backoff_that_begins_meanwhile() -> None:
    clock = Interrupted(
        lambda: throttle.refused("CreateFleet", 30.0),
        lambda: throttle.refused("CreateFleet", 45.0),
        lambda: throttle.refused("DescribeInstances", 90.0),
    )
    throttle = Throttle(clock, {"CreateFleet": Rate(1, 0.1)})
    await throttle.admit("CreateFleet")
    began = clock.time
    await throttle.admit("CreateFleet")
    assert clock.slept == pytest.approx([10.0, 20.0, 25.0])
    assert clock.time - began == pytest.approx(55.0)


async def test_an_answer_to_an_earlier_call_does_not_end_the_back_off() -> None:
    clock = ManualClock()
    throttle = Throttle(clock)
    throttle.refused("CreateFleet")
    throttle.accepted("CreateFleet")
    await throttle.admit("CreateFleet")
    assert clock.slept == [1.0]


async def test_a_request_without_machines_uses_no_machine_tokens() -> None:
    clock = ManualClock()
    throttle = Throttle(clock, resources={"TerminateInstances": Rate(1, 0.001)})
    for _ in range(5):
        await throttle.admit("TerminateInstances")
    assert clock.slept == []
    await throttle.admit("TerminateInstances", 1)
    assert clock.slept == []
    await throttle.admit("TerminateInstances", 1)
    assert clock.slept == [pytest.approx(1000.0)]
