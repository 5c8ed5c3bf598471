"""EC2's request limits in the lab: which requests are refused, and that these have no effect."""

import asyncio

import pytest
from botocore.exceptions import ClientError

from autoscaler.model.catalogue import Rate
from lab.ec2.query import Ec2Error
from lab.ec2.throttling import (
    LAUNCHING,
    LISTING,
    PUBLISHED,
    RequestLimits,
    Throttling,
)
from tests.lab.ec2.harness import Fixture, launched


class Now:
    """A time that only tests advance."""

    def __init__(self) -> None:
        self.at = 1000.0

    def __call__(self) -> float:
        return self.at


def admitted(throttling: Throttling, most: int, **fields: str) -> int:
    """How many of so many requests pass at once."""
    refused = 0
    for _ in range(most):
        try:
            throttling.admit(fields)
        except Ec2Error:
            refused += 1
    return most - refused


@pytest.mark.case(
    "EC2 throttles requests by a bucket for each API",
    topic="EC2's API",
    source="EC2: request throttling",
)
@pytest.mark.parametrize(
    ("fields", "capacity", "refill"),
    [
        ({"Action": "RunInstances"}, 5, 2),
        ({"Action": "StartInstances"}, 5, 2),
        ({"Action": "TerminateInstances"}, 100, 5),
        ({"Action": "CreateTags"}, 100, 10),
        ({"Action": "CreateFleet"}, 50, 5),
        ({"Action": "CreateLaunchTemplate"}, 50, 5),
        ({"Action": "DescribeSubnets"}, 100, 20),
        ({"Action": "DescribeInstances", "MaxResults": "500"}, 100, 20),
        ({"Action": "DescribeInstances", "Filter.1.Name": "tag:a"}, 100, 20),
        ({"Action": "DescribeInstances", "InstanceId.1": "i-1"}, 100, 20),
        ({"Action": "DescribeInstances"}, 50, 10),
    ],
)
def test_published_sizes_of_request_buckets(
    fields: dict[str, str], capacity: int, refill: int
) -> None:
    now = Now()
    throttling = Throttling(now)
    throttling.limits = PUBLISHED
    assert admitted(throttling, 200, **fields) == capacity
    now.at += 1.0
    assert admitted(throttling, 200, **fields) == refill
    now.at += 3600.0
    assert admitted(throttling, 200, **fields) == capacity


@pytest.mark.case(
    "EC2 throttles requests by a bucket for each API",
    topic="EC2's API",
    source="EC2: request throttling",
)
def test_each_api_has_a_bucket_of_its_own() -> None:
    throttling = Throttling(Now())
    throttling.limits = PUBLISHED
    assert admitted(throttling, 200, Action="DescribeInstances") == 50
    assert admitted(throttling, 200, Action="DescribeImages") == 100
    assert throttling.refused == {LISTING: 150, "DescribeImages": 100}


@pytest.mark.case(
    "machines count against buckets, too: 1,000 and 2 a second for launches, 20 for terminations",
    topic="EC2's API",
    source="EC2: request throttling",
)
def test_published_sizes_of_the_buckets_of_instances() -> None:
    now = Now()
    throttling = Throttling(now)
    throttling.limits = PUBLISHED
    for take, refill in ((throttling.launch, 2), (throttling.terminate, 20)):
        take(600)
        with pytest.raises(Ec2Error, match="RequestLimitExceeded"):
            take(401)
        # The refused one took nothing.
        take(400)
        now.at += 1.0
        take(refill)
        with pytest.raises(Ec2Error):
            take(1)


def test_without_limits_nothing_is_refused_and_setting_them_fills_the_buckets() -> None:
    throttling = Throttling(Now())
    assert admitted(throttling, 500, Action="RunInstances") == 500
    throttling.limits = PUBLISHED
    assert admitted(throttling, 500, Action="RunInstances") == 5
    throttling.limits = RequestLimits(requests={"RunInstances": Rate(7, 1)})
    assert admitted(throttling, 500, Action="RunInstances") == 7
    throttling.limits = None
    throttling.launch(10_000)
    assert throttling.limits is None


@pytest.mark.case(
    "EC2 refuses a throttled CreateFleet as a whole, and the token stays unused",
    topic="EC2's API",
    source="EC2: error codes",
)
async def test_a_throttled_fleet_is_refused_whole_and_its_token_stays_free(ec2: Fixture) -> None:
    ec2.lab.throttling.limits = RequestLimits(requests={"CreateFleet": Rate(1, 0.1)})
    assert len(launched(await ec2.fleet(1, ClientToken="t-1"))) == 1
    with pytest.raises(ClientError) as error:
        await ec2.fleet(1, ClientToken="t-2")
    assert error.value.response["Error"]["Code"] == "RequestLimitExceeded"
    assert error.value.response["ResponseMetadata"]["HTTPStatusCode"] == 503
    assert len(ec2.lab.instances) == 1
    assert ec2.lab.errors["CreateFleet", "RequestLimitExceeded"] == 1
    await ec2.clock.advance(10.0)
    assert len(launched(await ec2.fleet(1, ClientToken="t-2"))) == 1


async def test_launches_and_terminations_use_the_instance_buckets(ec2: Fixture) -> None:
    ec2.lab.throttling.limits = RequestLimits(launched=Rate(4, 1), terminated=Rate(3, 1))
    names = launched(await ec2.fleet(4))
    with pytest.raises(ClientError, match="RequestLimitExceeded"):
        await ec2.fleet(1)
    assert ec2.lab.throttling.refused == {LAUNCHING: 1}
    with pytest.raises(ClientError, match="RequestLimitExceeded"):
        await ec2.sdk("terminate_instances", InstanceIds=names)
    assert {one.ended_at for one in ec2.lab.instances} == {None}
    await ec2.sdk("terminate_instances", InstanceIds=names[:3])
    assert [one.ended_at is None for one in ec2.lab.instances] == [False, False, False, True]


async def test_a_repeated_token_launches_nothing_and_uses_no_instance_bucket(
    ec2: Fixture,
) -> None:
    ec2.lab.throttling.limits = RequestLimits(launched=Rate(2, 0.001))
    answers = await asyncio.gather(*(ec2.fleet(2, ClientToken="t-3") for _ in range(4)))
    assert len({tuple(launched(one)) for one in answers}) == 1
    assert len(ec2.lab.instances) == 2
