"""Network interfaces: public addresses, and what EC2 refuses beside them."""

from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.lab.ec2.harness import Fixture, launched


async def run(ec2: Fixture, **changes: Any) -> Any:
    return await ec2.sdk(
        "run_instances",
        ImageId=ec2.image.id,
        InstanceType="g5.xlarge",
        MinCount=1,
        MaxCount=1,
        **changes,
    )


@pytest.mark.parametrize(
    ("said", "public"), [({}, True), ({"AssociatePublicIpAddress": False}, False)]
)
async def test_an_interface_counts_more_than_its_subnet(
    ec2: Fixture, said: dict[str, bool], public: bool
) -> None:
    subnet = ec2.network.subnets[0]
    await ec2.sdk("modify_subnet_attribute", SubnetId=subnet, MapPublicIpOnLaunch={"Value": True})
    await run(ec2, NetworkInterfaces=[{"DeviceIndex": 0, "SubnetId": subnet, **said}])
    (shown,) = await ec2.described()
    assert ("PublicIpAddress" in shown) is public


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"SubnetId": "SUBNET"}, "instance-level subnet ID may not be specified"),
        ({"SecurityGroupIds": ["sg-1"]}, "instance-level security groups may not be specified"),
    ],
)
async def test_interfaces_beside_what_they_say_themselves_are_refused(
    ec2: Fixture, changes: dict[str, Any], message: str
) -> None:
    if "SubnetId" in changes:
        changes = {"SubnetId": ec2.network.subnets[0]}
    interface = {"DeviceIndex": 0, "SubnetId": ec2.network.subnets[0]}
    with pytest.raises(ClientError, match=message) as error:
        await run(ec2, NetworkInterfaces=[interface], **changes)
    assert error.value.response["Error"]["Code"] == "InvalidParameterCombination"


@pytest.mark.case(
    "several interfaces and a word on the public address in one launch",
    topic="EC2's API",
    source="zalando-incubator/kubernetes-on-aws#8733; hashicorp/terraform-provider-aws#6777",
)
@pytest.mark.parametrize("public", [True, False])
async def test_several_interfaces_say_nothing_of_a_public_address(
    ec2: Fixture, public: bool
) -> None:
    interfaces = [{"DeviceIndex": device, "AssociatePublicIpAddress": public} for device in (0, 1)]
    ec2.template = "public"
    await ec2.make_template(NetworkInterfaces=interfaces, SecurityGroupIds=[])
    answer = await ec2.fleet(1)
    assert {one["ErrorCode"] for one in answer["Errors"]} == {"InvalidParameterCombination"}
    assert answer["Instances"] == []


async def test_the_first_interface_is_required(ec2: Fixture) -> None:
    interface = {"DeviceIndex": 1, "SubnetId": ec2.network.subnets[0]}
    with pytest.raises(ClientError, match="device at index 0"):
        await run(ec2, NetworkInterfaces=[interface])


def adapters(count: int) -> list[dict[str, Any]]:
    return [
        {"NetworkCardIndex": card, "DeviceIndex": int(card > 0), "InterfaceType": "efa"}
        for card in range(count)
    ]


@pytest.mark.parametrize(
    ("kind", "interfaces", "code"),
    [
        ("g5.xlarge", adapters(1), "InvalidParameterCombination"),
        ("p4d.24xlarge", adapters(5), "AttachmentLimitExceeded"),
        ("g5.48xlarge", [*adapters(1), {"DeviceIndex": 0}], "InvalidParameterValue"),
        ("p6-b300.48xlarge", adapters(1), "InvalidParameterCombination"),
        (
            "p4d.24xlarge",
            [{"DeviceIndex": 0, "InterfaceType": "efa-only"}],
            "InvalidParameterCombination",
        ),
    ],
)
async def test_more_adapters_than_the_type_has_are_refused(
    ec2: Fixture, kind: str, interfaces: list[dict[str, Any]], code: str
) -> None:
    ec2.template = "efa"
    await ec2.make_template(NetworkInterfaces=interfaces, SecurityGroupIds=[])
    overrides = [{"InstanceType": kind, "SubnetId": ec2.network.subnets[0]}]
    answer = await ec2.fleet(1, overrides=overrides)
    assert [one["ErrorCode"] for one in answer["Errors"]] == [code]
    assert len(ec2.lab.instances) == 0


async def test_each_adapter_takes_an_address(ec2: Fixture) -> None:
    subnet = ec2.network.subnets[0]
    ec2.template = "efa"
    await ec2.make_template(NetworkInterfaces=adapters(4), SecurityGroupIds=[])
    overrides = [{"InstanceType": "p4d.24xlarge", "SubnetId": subnet}]

    async def free() -> int:
        (shown,) = (await ec2.sdk("describe_subnets", SubnetIds=[subnet]))["Subnets"]
        return int(shown["AvailableIpAddressCount"])

    before = await free()
    (name,) = launched(await ec2.fleet(1, overrides=overrides))
    assert await free() == before - 4
    await ec2.ended([name])
    assert await free() == before


async def test_an_adapter_without_an_ordinary_interface_takes_no_address(ec2: Fixture) -> None:
    subnet = ec2.network.subnets[1]
    only = {"NetworkCardIndex": 1, "DeviceIndex": 1, "InterfaceType": "efa-only"}
    ec2.template = "efa"
    await ec2.make_template(NetworkInterfaces=[{"DeviceIndex": 0}, only], SecurityGroupIds=[])
    overrides = [{"InstanceType": "p6-b300.48xlarge", "SubnetId": subnet}]
    (before,) = (await ec2.sdk("describe_subnets", SubnetIds=[subnet]))["Subnets"]
    launched(await ec2.fleet(1, overrides=overrides))
    (after,) = (await ec2.sdk("describe_subnets", SubnetIds=[subnet]))["Subnets"]
    free = "AvailableIpAddressCount"
    assert after[free] == before[free] - 1
