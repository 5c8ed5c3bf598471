"""Block device mappings that EC2 refuses, with its codes: in RunInstances, and in an override of a fleet."""

from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.lab.ec2.harness import Fixture, launched

REFUSED = [
    ({"Iops": 80_001}, "Volume iops of 80001 is too high; maximum is 80000."),
    ({"Iops": 2999}, "Volume iops of 2999 is too low; minimum is 3000."),
    ({"Iops": 15_001}, "Iops to volume size ratio of 500.033333 is too high; maximum is 500"),
    ({"Throughput": 2001}, "Volume throughput of 2001 is too high; maximum is 2000."),
    ({"Throughput": 1000}, "Throughput (MiBps) to iops ratio of 0.333333 is too high"),
    ({"VolumeInitializationRate": 301}, "Volume initialization rate of 301 is not between"),
]


def mapping(ebs: dict[str, Any], device: str = "/dev/xvda") -> list[dict[str, Any]]:
    return [{"DeviceName": device, "Ebs": ebs}]


async def run(ec2: Fixture, ebs: dict[str, Any], device: str = "/dev/xvda") -> Any:
    return await ec2.sdk(
        "run_instances",
        ImageId=ec2.image.id,
        InstanceType="g5.xlarge",
        SubnetId=ec2.network.subnets[0],
        MinCount=1,
        MaxCount=1,
        BlockDeviceMappings=mapping(ebs, device),
    )


@pytest.mark.parametrize(("ebs", "message"), REFUSED)
async def test_a_disk_beyond_its_limits_is_refused(
    ec2: Fixture, ebs: dict[str, Any], message: str
) -> None:
    with pytest.raises(ClientError) as refusal:
        await run(ec2, ebs)
    error = refusal.value.response["Error"]
    assert error["Code"] == "InvalidParameterValue"
    assert error["Message"].startswith(message)
    # EC2 checks a template only when it launches from it; a fleet answers 200 with the error.
    ec2.template = "next"
    await ec2.make_template(BlockDeviceMappings=mapping(ebs))
    overrides = [{"InstanceType": "g5.xlarge", "SubnetId": ec2.network.subnets[0]}]
    (failed,) = (await ec2.fleet(1, overrides=overrides))["Errors"]
    assert failed["ErrorCode"] == "InvalidParameterValue"
    assert failed["ErrorMessage"].startswith(message)
    assert len(ec2.lab.instances) == 0


async def test_an_empty_disk_is_not_initialized(ec2: Fixture) -> None:
    with pytest.raises(ClientError, match="only for volumes from snapshots"):
        await run(ec2, {"VolumeSize": 10, "VolumeInitializationRate": 100}, "/dev/sdf")


@pytest.mark.case(
    "EC2 takes a throughput below its minimum for the minimum",
    topic="Images and disks",
    source="kubernetes-sigs/cluster-api-provider-aws#6218",
)
async def test_a_low_throughput_is_raised_and_options_are_shown(ec2: Fixture) -> None:
    await run(ec2, {"Throughput": 100, "Iops": 4000, "KmsKeyId": "alias/ci", "Encrypted": True})
    (shown,) = (await ec2.sdk("describe_volumes"))["Volumes"]
    assert (shown["Size"], shown["Iops"], shown["Throughput"]) == (30, 4000, 125)
    assert (shown["KmsKeyId"], shown["Encrypted"]) == ("alias/ci", True)
    assert "VolumeInitializationRate" not in shown


async def test_a_plain_disk_has_the_base_performance(ec2: Fixture) -> None:
    assert launched(await ec2.fleet(1))
    (shown,) = (await ec2.sdk("describe_volumes"))["Volumes"]
    assert (shown["Size"], shown["Iops"], shown["Throughput"]) == (100, 3000, 125)
