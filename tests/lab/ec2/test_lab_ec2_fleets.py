"""CreateFleet and RunInstances through the real SDK: launches, pools and errors."""

import asyncio
import time

import pytest
from botocore.exceptions import ClientError, HTTPClientError

from autoscaler.model.catalogue import CapacityType
from lab.ec2.instances import Pool
from tests.lab.ec2.harness import PENDING, Fixture, launched


def pool(ec2: Fixture, instance_type: str, zone: int, spot: bool = False) -> Pool:
    capacity_type = CapacityType.SPOT if spot else CapacityType.ON_DEMAND
    return Pool(instance_type, ec2.network.zones[zone], capacity_type)


def code(error: pytest.ExceptionInfo[ClientError]) -> str:
    return str(error.value.response["Error"]["Code"])


async def test_a_fleet_launches_with_its_template_and_tags(ec2: Fixture) -> None:
    fleet = await ec2.fleet(3, capacity_type="spot")
    (group,) = fleet["Instances"]
    assert fleet["Errors"] == []
    assert (group["Lifecycle"], group["InstanceType"]) == ("spot", "g5.xlarge")
    named = group["LaunchTemplateAndOverrides"]
    assert named["LaunchTemplateSpecification"]["LaunchTemplateId"] == ec2.template
    assert named["Overrides"]["SubnetId"] == ec2.network.subnets[0]
    machines = await ec2.described(InstanceIds=group["InstanceIds"])
    assert len(machines) == 3
    for machine in machines:
        tags = {tag["Key"]: tag["Value"] for tag in machine["Tags"]}
        assert tags["from"] == "template"
        assert tags["sku"] == "gpu"
        assert tags["aws:ec2launchtemplate:id"] == ec2.template
        assert machine["ImageId"] == ec2.image.id
        assert machine["InstanceLifecycle"] == "spot"
        assert machine["Placement"]["AvailabilityZone"] == ec2.network.zones[0]
        assert machine["SecurityGroups"][0]["GroupId"] == ec2.network.security_group
        assert machine["IamInstanceProfile"]["Arn"].endswith(":instance-profile/runner")
        assert machine["MetadataOptions"]["HttpTokens"] == "required"
        assert machine["RootDeviceName"] == "/dev/xvda"
        assert machine["BlockDeviceMappings"][0]["Ebs"]["DeleteOnTermination"] is True


async def test_the_same_token_and_parameters_launch_once(ec2: Fixture) -> None:
    first = await ec2.fleet(2, ClientToken="t-1")
    again = await ec2.fleet(2, ClientToken="t-1")
    assert launched(again) == launched(first)
    assert again["FleetId"] == first["FleetId"]
    assert len(ec2.lab.instances) == 2
    assert ec2.lab.calls["CreateFleet"] == 2


async def test_a_token_repeated_during_its_request_launches_once(ec2: Fixture) -> None:
    answers = await asyncio.gather(*(ec2.fleet(2, ClientToken="t-2") for _ in range(4)))
    assert len({tuple(launched(one)) for one in answers}) == 1
    assert len(ec2.lab.instances) == 2


@pytest.mark.case(
    "the same token with other parameters",
    topic="EC2's API",
    source="EC2: idempotency",
)
async def test_changed_parameters_under_one_token_are_refused(ec2: Fixture) -> None:
    await ec2.fleet(2, ClientToken="t-3")
    with pytest.raises(ClientError) as error:
        await ec2.fleet(3, ClientToken="t-3")
    assert code(error) == "IdempotentParameterMismatch"
    assert len(ec2.lab.instances) == 2


async def test_the_token_of_a_failed_request_can_be_used_again(ec2: Fixture) -> None:
    ec2.lab.faults.fail_calls("CreateFleet", "RequestLimitExceeded", 1)
    with pytest.raises(ClientError) as error:
        await ec2.fleet(1, ClientToken="t-4")
    assert code(error) == "RequestLimitExceeded"
    assert error.value.response["ResponseMetadata"]["HTTPStatusCode"] == 503
    assert len(launched(await ec2.fleet(1, ClientToken="t-4"))) == 1
    assert ec2.lab.errors["CreateFleet", "RequestLimitExceeded"] == 1


async def test_a_lost_answer_is_found_by_repeating_the_token(ec2: Fixture) -> None:
    ec2.lab.faults.lose_answers("CreateFleet", 1)
    with pytest.raises(HTTPClientError):
        await ec2.fleet(2, ClientToken="t-5")
    assert len(ec2.lab.instances) == 2
    assert launched(await ec2.fleet(2, ClientToken="t-5")) == [one.id for one in ec2.lab.instances]
    assert len(ec2.lab.instances) == 2


async def test_run_instances_is_idempotent_too(ec2: Fixture) -> None:
    request = {
        "LaunchTemplate": {"LaunchTemplateId": ec2.template},
        "InstanceType": "m7g.xlarge",
        "SubnetId": ec2.network.subnets[1],
        "MinCount": 1,
        "MaxCount": 2,
        "ClientToken": "run-1",
        "TagSpecifications": [{"ResourceType": "instance", "Tags": [{"Key": "a", "Value": "b"}]}],
    }
    first = await ec2.sdk("run_instances", **request)
    again = await ec2.sdk("run_instances", **request)
    assert [one["InstanceId"] for one in first["Instances"]] == [
        one["InstanceId"] for one in again["Instances"]
    ]
    assert [one.tags for one in ec2.lab.instances] == [{"from": "template", "a": "b"}] * 2
    with pytest.raises(ClientError) as error:
        await ec2.sdk("run_instances", **(request | {"MaxCount": 1}))
    assert code(error) == "IdempotentParameterMismatch"


async def test_capacity_is_per_pool_and_changes_at_run_time(ec2: Fixture) -> None:
    for zone in range(3):
        for instance_type in ("g5.xlarge", "g6.xlarge"):
            ec2.lab.faults.set_capacity(pool(ec2, instance_type, zone), 0)
    ec2.lab.faults.set_capacity(pool(ec2, "g5.xlarge", 1), 2)
    fleet = await ec2.fleet(5)
    assert len(launched(fleet)) == 2
    assert {one["ErrorCode"] for one in fleet["Errors"]} == {"InsufficientInstanceCapacity"}
    assert len(fleet["Errors"]) == 6
    assert fleet["Errors"][0]["LaunchTemplateAndOverrides"]["Overrides"] == {
        "InstanceType": "g5.xlarge",
        "SubnetId": ec2.network.subnets[0],
        "AvailabilityZone": ec2.network.zones[0],
    }
    assert launched(await ec2.fleet(1)) == []
    ec2.lab.faults.set_capacity(pool(ec2, "g5.xlarge", 1), None)
    assert len(launched(await ec2.fleet(7))) == 7


async def test_terminated_instances_return_their_capacity(ec2: Fixture) -> None:
    only = [{"InstanceType": "g5.xlarge", "SubnetId": ec2.network.subnets[0]}]
    ec2.lab.faults.set_capacity(pool(ec2, "g5.xlarge", 0), 1)
    (first,) = launched(await ec2.fleet(1, overrides=only))
    assert launched(await ec2.fleet(1, overrides=only)) == []
    await ec2.ended([first])
    assert len(launched(await ec2.fleet(1, overrides=only))) == 1


async def test_spot_and_on_demand_are_different_pools(ec2: Fixture) -> None:
    only = [{"InstanceType": "g5.xlarge", "SubnetId": ec2.network.subnets[0]}]
    ec2.lab.faults.set_capacity(pool(ec2, "g5.xlarge", 0, spot=True), 0)
    assert launched(await ec2.fleet(1, overrides=only, capacity_type="spot")) == []
    assert len(launched(await ec2.fleet(1, overrides=only))) == 1


@pytest.mark.parametrize(
    "refusal", ["VcpuLimitExceeded", "MaxSpotInstanceCountExceeded", "UnfulfillableCapacity"]
)
async def test_other_errors_are_reported_for_each_pool(ec2: Fixture, refusal: str) -> None:
    ec2.lab.faults.refuse(pool(ec2, "g5.xlarge", 0), refusal)
    fleet = await ec2.fleet(2)
    assert [one["ErrorCode"] for one in fleet["Errors"]] == [refusal]
    assert len(launched(fleet)) == 2
    assert (
        fleet["Instances"][0]["LaunchTemplateAndOverrides"]["Overrides"]["SubnetId"]
        == (ec2.network.subnets[1])
    )
    ec2.lab.faults.refuse(pool(ec2, "g5.xlarge", 0), None)
    assert (await ec2.fleet(1))["Errors"] == []


@pytest.mark.case(
    "two subnets of one zone are duplicate instance pools",
    topic="EC2's API",
    source="GAR#5297; GAR#2904",
)
async def test_a_fleet_with_two_subnets_of_one_zone_is_refused(ec2: Fixture) -> None:
    second = await ec2.sdk(
        "create_subnet",
        VpcId=ec2.network.vpc,
        CidrBlock="10.0.224.0/19",
        AvailabilityZone=ec2.network.zones[0],
    )
    subnets = (ec2.network.subnets[0], second["Subnet"]["SubnetId"])
    overrides = [{"InstanceType": "g5.xlarge", "SubnetId": subnet} for subnet in subnets]
    with pytest.raises(ClientError, match="duplicate instance pools") as error:
        await ec2.fleet(1, overrides=overrides)
    assert code(error) == "InvalidFleetConfig"
    assert len(ec2.lab.instances) == 0


async def test_priorities_order_the_pools(ec2: Fixture) -> None:
    overrides = [
        {"InstanceType": "g5.xlarge", "SubnetId": ec2.network.subnets[0], "Priority": 2.0},
        {"InstanceType": "g6.xlarge", "SubnetId": ec2.network.subnets[0], "Priority": 1.0},
    ]
    fleet = await ec2.fleet(
        1, overrides=overrides, OnDemandOptions={"AllocationStrategy": "prioritized"}
    )
    assert fleet["Instances"][0]["InstanceType"] == "g6.xlarge"


async def test_a_missing_image_fails_its_overrides_and_a_missing_template_the_call(
    ec2: Fixture,
) -> None:
    await ec2.sdk("deregister_image", ImageId=ec2.image.id)
    fleet = await ec2.fleet(1)
    assert fleet["Instances"] == []
    assert {one["ErrorCode"] for one in fleet["Errors"]} == {"InvalidAMIID.NotFound"}
    await ec2.sdk("delete_launch_template", LaunchTemplateId=ec2.template)
    with pytest.raises(ClientError) as error:
        await ec2.fleet(1)
    assert code(error) == "InvalidLaunchTemplateId.NotFound"


@pytest.mark.case(
    "the disk is never smaller than the image's snapshot",
    topic="Images and disks",
    source="EC2: EbsBlockDevice",
)
async def test_a_disk_smaller_than_its_snapshot_is_refused(ec2: Fixture) -> None:
    small = [{"DeviceName": "/dev/xvda", "Ebs": {"VolumeSize": 29}}]
    await ec2.make_template(BlockDeviceMappings=small)
    fleet = await ec2.fleet(1)
    assert {one["ErrorCode"] for one in fleet["Errors"]} == {"InvalidBlockDeviceMapping"}


@pytest.mark.parametrize(
    "changes",
    [
        {"Type": "maintain"},
        {"SpotOptions": {"MinTargetCapacity": 1}},
        {"ReplaceUnhealthyInstances": True},
    ],
)
async def test_unsupported_fleet_requests_are_refused(
    ec2: Fixture, changes: dict[str, object]
) -> None:
    with pytest.raises(ClientError) as error:
        await ec2.fleet(1, capacity_type="spot", **changes)
    assert code(error) == "UnsupportedOperation"


async def test_a_template_name_that_exists_is_refused_as_by_moto(ec2: Fixture) -> None:
    request = {"LaunchTemplateName": "same", "LaunchTemplateData": {"ImageId": ec2.image.id}}
    await ec2.sdk("create_launch_template", **request)
    with pytest.raises(ClientError) as error:
        await ec2.sdk("create_launch_template", **request)
    assert code(error) == "InvalidLaunchTemplateName.AlreadyExistsException"


async def test_ten_times_the_machines_in_one_call_take_no_more_than_thirty_times_the_work(
    ec2: Fixture,
) -> None:
    async def work(machines: int) -> float:
        began = time.process_time()
        assert len(set(launched(await ec2.fleet(machines)))) == machines
        return time.process_time() - began

    await work(100)  # the SDK reads its model of the service first
    small = max([await work(100) for _ in range(3)])
    assert min([await work(1000), await work(1000)]) < 30 * small
    assert ec2.lab.instances.peak == 2400
    await ec2.clock.advance(PENDING)
    assert len(ec2.host.machines) == 2400
