"""Calls are kept within EC2's request limits."""

import pytest

from autoscaler.providers.ec2.settings import Bucket
from autoscaler.providers.ec2.throttle import Throttle
from tests.providers.doubles import ManualClock


async def test_a_burst_passes_and_then_one_call_a_refill() -> None:
    clock = ManualClock()
    throttle = Throttle(clock)
    for _ in range(50):
        await throttle.admit("CreateFleet")
    assert clock.slept == []
    for _ in range(10):
        await throttle.admit("CreateFleet")
    assert clock.slept == pytest.approx([0.2] * 10)


async def test_each_api_has_a_bucket_of_its_own() -> None:
    clock = ManualClock()
    throttle = Throttle(clock)
    for _ in range(100):
        await throttle.admit("TerminateInstances")
        await throttle.admit("DescribeInstances")
    await throttle.admit("CreateFleet")
    assert clock.slept == []
    await throttle.admit("DescribeInstances")
    assert clock.slept == pytest.approx([1 / 20])


async def test_a_bucket_refills_to_its_capacity_and_no_further() -> None:
    clock = ManualClock()
    throttle = Throttle(clock, {"CreateFleet": Bucket(2, 1)})
    for _ in range(2):
        await throttle.admit("CreateFleet")
    clock.time += 3600
    for _ in range(2):
        await throttle.admit("CreateFleet")
    assert clock.slept == []
    await throttle.admit("CreateFleet")
    assert clock.slept == [1.0]
