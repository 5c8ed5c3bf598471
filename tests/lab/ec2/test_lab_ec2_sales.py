"""Zones that do not sell a type: how EC2 lists them, and how it refuses a launch there."""

import pytest
from botocore.exceptions import ClientError

from tests.lab.ec2.harness import Fixture, launched

TYPE = "g5.xlarge"


async def listed(ec2: Fixture, **more: object) -> dict[str, set[str]]:
    """Zone to the types that DescribeInstanceTypeOfferings lists, page by page."""
    found: dict[str, set[str]] = {}
    page: dict[str, object] = {}
    while True:
        answer = await ec2.sdk(
            "describe_instance_type_offerings",
            LocationType="availability-zone",
            MaxResults=1000,
            **more,
            **page,
        )
        for one in answer["InstanceTypeOfferings"]:
            assert one["LocationType"] == "availability-zone"
            found.setdefault(one["Location"], set()).add(one["InstanceType"])
        if "NextToken" not in answer:
            return found
        page = {"NextToken": answer["NextToken"]}


@pytest.mark.case(
    "a zone does not sell an instance type: us-east-1e lacks most GPU types",
    topic="EC2's API",
    source="EC2: DescribeInstanceTypeOfferings",
)
async def test_offerings_are_listed_by_zone_in_pages(ec2: Fixture) -> None:
    zones = ec2.network.zones
    found = await listed(ec2, Filters=[{"Name": "location", "Values": list(zones)}])
    assert set(found) == set(zones)
    assert all(TYPE in types for types in found.values())
    assert ec2.lab.calls["DescribeInstanceTypeOfferings"] > 1


async def test_a_type_that_a_zone_stopped_offering_is_not_listed_there(ec2: Fixture) -> None:
    first, *others = ec2.network.zones
    ec2.lab.faults.stop_selling(TYPE, first)
    found = await listed(ec2, Filters=[{"Name": "instance-type", "Values": [TYPE]}])
    assert first not in found
    assert set(others) <= set(found)
    ec2.lab.faults.stop_selling(TYPE)
    assert first in await listed(ec2, Filters=[{"Name": "instance-type", "Values": [TYPE]}])


@pytest.mark.case(
    "CreateFleet answers 200 with InvalidFleetConfiguration for one override: the zone does not "
    "sell the type",
    topic="EC2's API",
    source="packer#9946; compiler-explorer/infra#601",
)
async def test_a_fleet_answers_200_with_an_error_of_that_override_and_launches_elsewhere(
    ec2: Fixture,
) -> None:
    first, second, _ = ec2.network.zones
    ec2.lab.faults.stop_selling(TYPE, first)
    overrides = [{"InstanceType": TYPE, "SubnetId": one} for one in ec2.network.subnets[:2]]
    fleet = await ec2.fleet(2, overrides=overrides)
    assert fleet["ResponseMetadata"]["HTTPStatusCode"] == 200
    (error,) = fleet["Errors"]
    assert error["ErrorCode"] == "InvalidFleetConfiguration"
    assert error["ErrorMessage"].startswith(
        f"Your requested instance type ({TYPE}) is not supported in your requested Availability "
        f"Zone ({first}). Please retry"
    )
    assert error["LaunchTemplateAndOverrides"]["Overrides"]["AvailabilityZone"] == first
    (group,) = fleet["Instances"]
    assert (len(launched(fleet)), group["AvailabilityZone"]) == (2, second)


async def test_run_instances_refuses_it_with_another_code(ec2: Fixture) -> None:
    ec2.lab.faults.stop_selling(TYPE, *ec2.network.zones)
    with pytest.raises(ClientError, match=r"Unsupported.*not supported in your requested"):
        await ec2.sdk(
            "run_instances",
            LaunchTemplate={"LaunchTemplateId": ec2.template},
            InstanceType=TYPE,
            SubnetId=ec2.network.subnets[0],
            MinCount=1,
            MaxCount=1,
        )


@pytest.mark.case(
    "UnfulfillableCapacity for pools that an instant fleet did not try",
    topic="EC2's API",
    source="Karpenter pkg/errors",
)
async def test_a_fleet_may_skip_pools_and_marks_them_as_unfulfillable(ec2: Fixture) -> None:
    ec2.lab.faults.pools_tried = 3
    ec2.lab.faults.stop_selling(TYPE, *ec2.network.zones)
    fleet = await ec2.fleet(1)
    codes = [one["ErrorCode"] for one in fleet["Errors"]]
    assert codes == ["InvalidFleetConfiguration"] * 3 + ["UnfulfillableCapacity"] * 3
    assert launched(fleet) == []
