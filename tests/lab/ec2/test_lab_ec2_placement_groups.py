"""Placement groups in the lab's EC2: what it refuses of a launch into one."""

from typing import Any

import pytest
from botocore.exceptions import ClientError

from lab.ec2.placement_groups import Strategy
from tests.lab.ec2.harness import Fixture


async def run(ec2: Fixture, zone: int = 0, count: int = 1, **changes: Any) -> Any:
    shown = {
        "ImageId": ec2.image.id,
        "InstanceType": "g5.xlarge",
        "SubnetId": ec2.network.subnets[zone],
        "MinCount": count,
        "MaxCount": count,
        "Placement": {"GroupName": "near"},
    }
    return await ec2.sdk("run_instances", **shown | changes)


async def refused(ec2: Fixture, code: str, **changes: Any) -> str:
    with pytest.raises(ClientError) as error:
        await run(ec2, **changes)
    assert error.value.response["Error"]["Code"] == code
    return error.value.response["Error"]["Message"]


async def test_a_group_that_does_not_exist_is_refused(ec2: Fixture) -> None:
    assert "'near'" in await refused(ec2, "InvalidPlacementGroup.Unknown")


async def test_a_cluster_group_is_in_the_zone_of_its_instances(ec2: Fixture) -> None:
    ec2.lab.placement_groups.add("near")
    (first,) = (await run(ec2))["Instances"]
    assert first["Placement"]["GroupName"] == "near"
    assert "another" in await refused(ec2, "InsufficientInstanceCapacity", zone=1)
    await run(ec2)
    await run(ec2, zone=1, Placement={})
    for one in list(ec2.lab.instances)[:2]:
        await ec2.sdk("terminate_instances", InstanceIds=[one.id])
    await ec2.clock.advance(100.0)
    await run(ec2, zone=1)


async def test_a_cluster_group_takes_no_burstable_type(ec2: Fixture) -> None:
    ec2.lab.placement_groups.add("near")
    kind: dict[str, Any] = {"InstanceType": "t3.large"}
    assert "'t3.large'" in await refused(ec2, "InvalidParameterCombination", **kind)
    ec2.lab.placement_groups.add("near", Strategy.PARTITION)
    await run(ec2, **kind)


async def test_a_spread_group_takes_seven_instances_a_zone(ec2: Fixture) -> None:
    ec2.lab.placement_groups.add("near", Strategy.SPREAD)
    await run(ec2, count=7)
    assert "up to seven" in await refused(ec2, "InsufficientInstanceCapacity")
    await run(ec2, zone=1)
