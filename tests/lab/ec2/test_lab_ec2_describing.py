"""Describe requests: pages, filters, tags, images, and what the lab passes to moto or refuses."""

import time

import aiohttp
import pytest
from botocore.exceptions import ClientError

from tests.lab.ec2.harness import PENDING, Fixture, connect, launched


async def test_pages_show_each_instance_once_while_others_launch(ec2: Fixture) -> None:
    first = launched(await ec2.fleet(7))
    seen: list[str] = []
    params: dict[str, object] = {"MaxResults": 5}
    while True:
        answer = await ec2.sdk("describe_instances", **params)
        page = [one["InstanceId"] for r in answer["Reservations"] for one in r["Instances"]]
        assert len(page) <= 5
        seen += page
        if "NextToken" not in answer:
            break
        params["NextToken"] = answer["NextToken"]
        if len(seen) == 5:
            first += launched(await ec2.fleet(2))
    assert seen == first


async def test_filters_by_tag_and_state(ec2: Fixture) -> None:
    cpu = [{"ResourceType": "instance", "Tags": [{"Key": "sku", "Value": "cpu"}]}]
    gpu_machines = launched(await ec2.fleet(2))
    cpu_machines = launched(await ec2.fleet(2, TagSpecifications=cpu))
    await ec2.sdk("terminate_instances", InstanceIds=cpu_machines[:1])

    async def found(*filters: tuple[str, list[str]]) -> list[str]:
        wanted = [{"Name": name, "Values": values} for name, values in filters]
        return [one["InstanceId"] for one in await ec2.described(Filters=wanted)]

    states = ("instance-state-name", ["pending", "running"])
    assert await found(("tag:sku", ["cpu"])) == cpu_machines
    assert await found(("tag:sku", ["cpu"]), states) == cpu_machines[1:]
    assert await found(("tag:sku", ["g?u", "x"])) == gpu_machines
    assert await found(("tag:sku", ["*"])) == gpu_machines + cpu_machines
    assert await found(("tag-key", ["nothing"])) == []
    assert await found(("instance-type", ["g6.*"])) == []
    with pytest.raises(ClientError, match="The filter 'colour' is invalid"):
        await found(("colour", ["red"]))


async def test_tags_can_be_changed_later(ec2: Fixture) -> None:
    (name,) = launched(await ec2.fleet(1))
    await ec2.sdk("create_tags", Resources=[name], Tags=[{"Key": "sku", "Value": "new"}])
    (machine,) = await ec2.described(Filters=[{"Name": "tag:sku", "Values": ["new"]}])
    await ec2.sdk("delete_tags", Resources=[name], Tags=[{"Key": "sku"}])
    (machine,) = await ec2.described()
    assert "sku" not in {tag["Key"] for tag in machine["Tags"]}


@pytest.mark.parametrize(
    ("params", "code"),
    [
        ({"InstanceIds": ["i-0123456789abcdef0"]}, "InvalidInstanceID.NotFound"),
        ({"InstanceIds": ["nonsense"]}, "InvalidInstanceID.Malformed"),
        ({"MaxResults": 5, "NextToken": "bm9uc2Vuc2U="}, "InvalidNextToken"),
        ({"MaxResults": 1001}, "InvalidParameterValue"),
    ],
)
async def test_invalid_describe_requests_are_refused(
    ec2: Fixture, params: dict[str, object], code: str
) -> None:
    with pytest.raises(ClientError) as error:
        await ec2.sdk("describe_instances", **params)
    assert error.value.response["Error"]["Code"] == code


async def pages_read(ec2: Fixture) -> tuple[int, float]:
    """How many instances are listed, and the CPU seconds that takes, without the SDK's parsing."""
    query = {"Action": "DescribeInstances", "MaxResults": "1000"}
    seen, began = 0, time.process_time()
    async with aiohttp.ClientSession() as http:
        while True:
            async with http.post(ec2.lab.endpoint_url, data=query) as answer:
                page = await answer.text()
            seen += page.count("<instanceState>")
            _, _, rest = page.partition("<nextToken>")
            if not rest:
                return seen, time.process_time() - began
            query["NextToken"] = rest.partition("<")[0]


async def test_listing_seven_times_the_machines_takes_at_most_twenty_times_the_work(
    ec2: Fixture,
) -> None:
    await ec2.fleet(500)
    await ec2.clock.advance(PENDING)
    few, small = max([await pages_read(ec2) for _ in range(3)])
    assert few == 500
    for _ in range(3):
        await ec2.fleet(1000)
    await ec2.clock.advance(PENDING)
    assert len(ec2.host.machines) == 3500
    many, large = min([await pages_read(ec2) for _ in range(2)])
    assert many == 3500
    assert large < 20 * small


async def test_images_belong_to_the_account_and_get_newer(ec2: Fixture) -> None:
    second = ec2.lab.images.add("runner-linux-2", snapshot_gb=75)
    ec2.lab.images.add("runner-arm64-1", architecture="arm64")
    named = [{"Name": "name", "Values": ["runner-linux-*"]}]
    images = (await ec2.sdk("describe_images", Owners=["self"], Filters=named))["Images"]
    images.sort(key=lambda one: one["CreationDate"])
    assert [one["ImageId"] for one in images] == [ec2.image.id, second.id]
    newest = images[-1]
    assert newest["OwnerId"] == ec2.lab.account
    assert (newest["Architecture"], newest["RootDeviceName"]) == ("x86_64", "/dev/xvda")
    assert newest["BlockDeviceMappings"][0]["Ebs"]["VolumeSize"] == 75
    # The stock images of publishers are there, too, and belong to others.
    others = (await ec2.sdk("describe_images", Owners=["amazon"]))["Images"]
    assert ec2.lab.account not in {one["OwnerId"] for one in others}
    assert not {one["ImageId"] for one in others} & {ec2.image.id, second.id}
    with pytest.raises(ClientError) as error:
        await ec2.sdk("describe_images", ImageIds=["ami-0123456789abcdef0"])
    assert error.value.response["Error"]["Code"] == "InvalidAMIID.NotFound"


async def test_other_requests_go_to_moto_with_this_account(ec2: Fixture) -> None:
    subnets = await ec2.sdk("describe_subnets", SubnetIds=list(ec2.network.subnets))
    assert sorted(one["AvailabilityZone"] for one in subnets["Subnets"]) == list(ec2.network.zones)
    assert {one["OwnerId"] for one in subnets["Subnets"]} == {ec2.lab.account}
    types = await ec2.sdk("describe_instance_types", InstanceTypes=["g5.xlarge"])
    assert types["InstanceTypes"][0]["InstanceType"] == "g5.xlarge"
    identity = await connect(ec2.lab, "sts")("get_caller_identity")
    assert identity["Account"] == ec2.lab.account
    assert (ec2.lab.calls["DescribeSubnets"], ec2.lab.calls["sts"]) == (1, 1)


async def test_an_unsupported_ec2_operation_is_refused(ec2: Fixture) -> None:
    (name,) = launched(await ec2.fleet(1))
    with pytest.raises(ClientError) as error:
        await ec2.sdk("reboot_instances", InstanceIds=[name])
    assert error.value.response["Error"]["Code"] == "UnsupportedOperation"
    with pytest.raises(ClientError) as error:
        await connect(ec2.lab, region="eu-west-1")("describe_instances")
    assert error.value.response["Error"]["Code"] == "AuthFailure"
    with pytest.raises(ClientError) as error:
        await ec2.sdk("terminate_instances", InstanceIds=[name], DryRun=True)
    assert error.value.response["Error"]["Code"] == "DryRunOperation"
    assert len(ec2.lab.machines_left()) == 1


@pytest.mark.case(
    "a page of a list is empty and has a token: the controller reads the next page",
    topic="EC2's API",
    source="EC2: DescribeInstances; boto/boto3#130",
)
async def test_a_list_may_begin_with_an_empty_page(ec2: Fixture) -> None:
    """A page may have a token and no result: a list ends only without a token."""
    names = await ec2.running(3)
    ec2.lab.faults.empty_pages("DescribeInstances", 1)
    empty = await ec2.sdk("describe_instances", MaxResults=5)
    assert empty["Reservations"] == []
    rest = await ec2.sdk("describe_instances", MaxResults=5, NextToken=empty["NextToken"])
    assert [i["InstanceId"] for r in rest["Reservations"] for i in r["Instances"]] == names
    assert "NextToken" not in rest
    assert len(await ec2.described(MaxResults=5)) == 3
    for action in ("DescribeVolumes", "DescribeLaunchTemplates"):
        ec2.lab.faults.empty_pages(action, 1)
    assert (await ec2.sdk("describe_volumes", MaxResults=5))["Volumes"] == []
    assert (await ec2.sdk("describe_launch_templates", MaxResults=5))["LaunchTemplates"] == []
