"""Images made of instances: StopInstances, CreateImage, tags, snapshots."""

from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.lab.ec2.harness import SHUTTING_DOWN, Fixture

STOPPING = IMAGING = 5.0


async def refusal(ec2: Fixture, operation: str, **params: Any) -> str:
    """The code with which EC2 refuses a call."""
    with pytest.raises(ClientError) as error:
        await ec2.sdk(operation, **params)
    return str(error.value.response["Error"]["Code"])


async def launch(ec2: Fixture, **params: Any) -> Any:
    request = {
        "ImageId": ec2.image.id,
        "InstanceType": "m7i.large",
        "SubnetId": ec2.network.subnets[0],
        "MinCount": 1,
        "MaxCount": 1,
    }
    (one,) = (await ec2.sdk("run_instances", **(request | params)))["Instances"]
    await ec2.clock.advance(30)
    return one


async def stopped(ec2: Fixture) -> str:
    instance_id: str = (await launch(ec2))["InstanceId"]
    await ec2.sdk("stop_instances", InstanceIds=[instance_id])
    await ec2.clock.advance(STOPPING)
    return instance_id


async def images(ec2: Fixture, **params: Any) -> list[Any]:
    found: list[Any] = (await ec2.sdk("describe_images", Owners=["self"], **params))["Images"]
    return found


async def test_a_stopped_instance_was_stopping_and_shut_down(ec2: Fixture) -> None:
    one = (await launch(ec2))["InstanceId"]
    (change,) = (await ec2.sdk("stop_instances", InstanceIds=[one]))["StoppingInstances"]
    states = (change["PreviousState"]["Name"], change["CurrentState"]["Name"])
    assert states == ("running", "stopping")
    await ec2.clock.advance(STOPPING)
    assert [machine["State"]["Name"] for machine in await ec2.described()] == ["stopped"]
    assert ec2.host.shut_off == [one]
    assert ec2.lab.volumes.left() != ()
    await ec2.sdk("terminate_instances", InstanceIds=[one])
    assert ec2.lab.machines_left() == ()


async def test_a_stopping_instance_can_be_terminated(ec2: Fixture) -> None:
    one = (await launch(ec2))["InstanceId"]
    await ec2.sdk("stop_instances", InstanceIds=[one])
    await ec2.sdk("terminate_instances", InstanceIds=[one])
    await ec2.clock.advance(STOPPING)
    assert ec2.lab.machines_left() == ()


async def test_ec2_does_not_stop_spot_and_terminated_instances(ec2: Fixture) -> None:
    spot = await launch(ec2, InstanceMarketOptions={"MarketType": "spot"})
    assert await refusal(ec2, "stop_instances", InstanceIds=[spot["InstanceId"]]) == (
        "UnsupportedOperation"
    )
    await ec2.sdk("terminate_instances", InstanceIds=[spot["InstanceId"]])
    await ec2.clock.advance(SHUTTING_DOWN)
    assert await refusal(ec2, "stop_instances", InstanceIds=[spot["InstanceId"]]) == (
        "IncorrectInstanceState"
    )


async def test_a_launch_request_says_key_placement_and_ebs_optimization(ec2: Fixture) -> None:
    zone = (await ec2.sdk("describe_subnets", SubnetIds=[ec2.network.subnets[0]]))["Subnets"][0][
        "AvailabilityZone"
    ]
    one = await launch(ec2, KeyName="k", EbsOptimized=True, Placement={"AvailabilityZone": zone})
    assert (one["KeyName"], one["EbsOptimized"]) == ("k", True)
    elsewhere = {"AvailabilityZone": f"{zone[:-1]}z"}
    with pytest.raises(ClientError, match="is not in zone"):
        await launch(ec2, Placement=elsewhere)
    with pytest.raises(ClientError, match="by subnet and group"):
        await launch(ec2, Placement={"Tenancy": "dedicated"})


async def test_an_image_is_pending_before_it_can_be_launched(ec2: Fixture) -> None:
    source = await stopped(ec2)
    made = (await ec2.sdk("create_image", InstanceId=source, Name="made-1"))["ImageId"]
    (image,) = await images(ec2, ImageIds=[made])
    assert (image["State"], image["SourceInstanceId"]) == ("pending", source)
    assert await images(ec2, Filters=[{"Name": "state", "Values": ["available"]}]) != []
    with pytest.raises(ClientError, match=r"InvalidAMIID\.Unavailable"):
        await launch(ec2, ImageId=made)
    await ec2.clock.advance(IMAGING)
    (image,) = await images(ec2, ImageIds=[made])
    assert image["State"] == "available"
    assert (await launch(ec2, ImageId=made))["ImageId"] == made


async def test_ec2_refuses_a_name_and_an_instance_that_cannot_become_an_image(ec2: Fixture) -> None:
    source = await stopped(ec2)
    taken = await refusal(ec2, "create_image", InstanceId=source, Name=ec2.image.name)
    wrong = await refusal(ec2, "create_image", InstanceId=source, Name="a:b")
    await ec2.sdk("terminate_instances", InstanceIds=[source])
    ended = await refusal(ec2, "create_image", InstanceId=source, Name="made-1")
    codes = (taken, wrong, ended)
    assert codes == ("InvalidAMIName.Duplicate", "InvalidAMIName.Malformed", "IncorrectState")
    running = (await launch(ec2))["InstanceId"]
    request = {"InstanceId": running, "Name": "made-2"}
    assert await refusal(ec2, "create_image", **request) == "UnsupportedOperation"
    await ec2.sdk("create_image", **request, NoReboot=True)


async def test_images_and_snapshots_have_tags_by_which_they_are_found(ec2: Fixture) -> None:
    request = {"InstanceId": await stopped(ec2), "Name": "made-1"}
    said = [{"ResourceType": "snapshot", "Tags": [{"Key": "from", "Value": "request"}]}]
    made = (await ec2.sdk("create_image", **request, TagSpecifications=said))["ImageId"]
    (image,) = await images(ec2, ImageIds=[made])
    snapshot = image["BlockDeviceMappings"][0]["Ebs"]["SnapshotId"]
    await ec2.sdk("create_tags", Resources=[made, snapshot], Tags=[{"Key": "a", "Value": "b"}])
    wanted = [{"Name": "tag:a", "Values": ["b"]}]
    assert [one["ImageId"] for one in await images(ec2, Filters=wanted)] == [made]
    found = await ec2.sdk("describe_snapshots", OwnerIds=["self"], Filters=wanted)
    tags = {tag["Key"]: tag["Value"] for tag in found["Snapshots"][0]["Tags"]}
    assert (found["Snapshots"][0]["SnapshotId"], tags) == (snapshot, {"from": "request", "a": "b"})
    await ec2.sdk("delete_tags", Resources=[made], Tags=[{"Key": "a"}])
    assert await images(ec2, Filters=wanted) == []
    everyone = await ec2.sdk("describe_snapshots", OwnerIds=["999999999999"])
    assert everyone["Snapshots"] == []


async def test_a_description_can_be_changed(ec2: Fixture) -> None:
    await ec2.sdk("modify_image_attribute", ImageId=ec2.image.id, Description={"Value": "new"})
    (image,) = await images(ec2)
    assert image["Description"] == "new"
    public = {"LaunchPermission": {"Add": [{"Group": "all"}]}}
    assert await refusal(ec2, "modify_image_attribute", ImageId=ec2.image.id, **public) == (
        "UnsupportedOperation"
    )


async def test_the_snapshot_outlives_its_image_and_is_deleted_after_it(ec2: Fixture) -> None:
    snapshot = ec2.image.snapshot_id
    assert await refusal(ec2, "delete_snapshot", SnapshotId=snapshot) == "InvalidSnapshot.InUse"
    await ec2.sdk("deregister_image", ImageId=ec2.image.id)
    assert ec2.lab.images.snapshots.left() == (snapshot,)
    await ec2.sdk("delete_snapshot", SnapshotId=snapshot)
    assert ec2.lab.images.snapshots.left() == ()
    assert await refusal(ec2, "delete_snapshot", SnapshotId=snapshot) == "InvalidSnapshot.NotFound"
