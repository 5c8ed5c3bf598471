"""The call to EC2 of `autoscaler images check`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import boto3

from autoscaler.images.aws import sdk_errors

if TYPE_CHECKING:
    from mypy_boto3_ec2.client import EC2Client


class AwsBaseImages:
    """EC2 in one region, with the credentials and the endpoint of the environment."""

    def __init__(self, region: str) -> None:
        with sdk_errors("the configuration of the AWS SDK"):
            self._ec2: EC2Client = boto3.client("ec2", region_name=region)

    def exists(self, name: str, owner: str) -> bool:
        """Return whether EC2 shows an image of this name. Raises ImageEc2Error.

        EC2 does not show others' deprecated images, and a build does not find them (EC2 User Guide, "Deprecate
        an AMI").
        """
        with sdk_errors("DescribeImages"):
            answer = self._ec2.describe_images(
                Owners=[owner], Filters=[{"Name": "name", "Values": [name]}]
            )
        return bool(answer["Images"])
