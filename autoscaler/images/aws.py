"""The calls to EC2 of the commands about images."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import boto3
from botocore.exceptions import BotoCoreError, ClientError

from autoscaler.images.smoke_test import ImageEc2Error

if TYPE_CHECKING:
    from mypy_boto3_ec2.client import EC2Client

SET = "autoscaler:image-set"
"""The tag of an image, its snapshots and its machines that says whose they are."""

_UNKNOWN = "InvalidInstanceID.NotFound"
"""EC2's code for an instance that does not exist, or is so new that this call does not see it yet."""


class AwsImages:
    """EC2 in one region, with the credentials and the endpoint of the environment."""

    def __init__(self, region: str, subnet: str, instance_type: str) -> None:
        self._subnet = subnet
        self._instance_type: Any = instance_type
        with sdk_errors("the configuration of the AWS SDK"):
            self._ec2: EC2Client = boto3.client("ec2", region_name=region)

    def launch(self, image: str, user_data: str) -> str:
        """Launch an instance that terminates when it powers itself off; return its ID.

        It has the image's tag `autoscaler:image-set`, without which the build role may not terminate it.
        """
        tags: Any = [
            {"Key": "Name", "Value": f"test of {image}"},
            {"Key": SET, "Value": self._image_set(image)},
        ]
        with sdk_errors("RunInstances"):
            answer = self._ec2.run_instances(
                ImageId=image,
                InstanceType=self._instance_type,
                SubnetId=self._subnet,
                MinCount=1,
                MaxCount=1,
                UserData=user_data,
                InstanceInitiatedShutdownBehavior="terminate",
                MetadataOptions={"HttpTokens": "required"},
                TagSpecifications=[{"ResourceType": "instance", "Tags": tags}],
            )
        return answer["Instances"][0]["InstanceId"]

    def platform(self, image: str) -> str:
        """Return the operating system of an image: linux or windows."""
        with sdk_errors("DescribeImages"):
            answer = self._ec2.describe_images(ImageIds=[image])
        # EC2 names the platform of Windows images only (API Reference, Image: "windows", and otherwise blank).
        named = str(answer["Images"][0].get("Platform", ""))
        return "windows" if named.lower() == "windows" else "linux"

    def _image_set(self, image: str) -> str:
        with sdk_errors("DescribeImages"):
            answer = self._ec2.describe_images(ImageIds=[image])
        tags = {one["Key"]: one["Value"] for one in answer["Images"][0].get("Tags", ())}
        return tags.get(SET, "")

    def find(self, name: str) -> str:
        """Return the ID of the account's image of this name."""
        filters: Any = [{"Name": "name", "Values": [name]}]
        with sdk_errors("DescribeImages"):
            answer = self._ec2.describe_images(Owners=["self"], Filters=filters)
        if not answer["Images"]:
            raise ImageEc2Error(f"DescribeImages: there is no image {name}")
        return answer["Images"][0]["ImageId"]

    def console(self, instance: str) -> str:
        """Return the instance's console output so far; empty while EC2 does not know the instance yet."""
        try:
            # botocore decodes the output's base64.
            return self._ec2.get_console_output(InstanceId=instance, Latest=True).get("Output", "")
        except (ClientError, BotoCoreError) as error:
            if _code(error) == _UNKNOWN:
                return ""
            raise ImageEc2Error(f"GetConsoleOutput: {error}") from error

    def state(self, instance: str) -> str:
        """Return the name of the instance's state; `pending` while EC2 does not know the instance yet."""
        try:
            answer = self._ec2.describe_instances(InstanceIds=[instance])
        except (ClientError, BotoCoreError) as error:
            if _code(error) == _UNKNOWN:
                return "pending"
            raise ImageEc2Error(f"DescribeInstances: {error}") from error
        return answer["Reservations"][0]["Instances"][0]["State"]["Name"]

    def terminate(self, instance: str) -> None:
        """Terminate the instance, if it still exists."""
        try:
            self._ec2.terminate_instances(InstanceIds=[instance])
        except (ClientError, BotoCoreError) as error:
            if _code(error) != _UNKNOWN:
                raise ImageEc2Error(
                    f"TerminateInstances: {error}; terminate {instance} yourself"
                ) from error

    def tag(self, image: str, tags: dict[str, str]) -> None:
        """Add tags to an image."""
        said: Any = [{"Key": key, "Value": value} for key, value in tags.items()]
        with sdk_errors("CreateTags"):
            self._ec2.create_tags(Resources=[image], Tags=said)

    def untag(self, image: str, key: str) -> None:
        """Remove a tag from an image, if it has it."""
        with sdk_errors("DeleteTags"):
            self._ec2.delete_tags(Resources=[image], Tags=[{"Key": key}])


@contextmanager
def sdk_errors(call: str) -> Iterator[None]:
    """Raise ImageEc2Error for an error of the SDK."""
    try:
        yield
    except (ClientError, BotoCoreError) as error:
        raise ImageEc2Error(f"{call}: {error}") from error


def _code(error: Exception) -> str:
    """Return the code of EC2's refusal; empty if EC2 did not answer."""
    return str(error.response["Error"]["Code"]) if isinstance(error, ClientError) else ""
