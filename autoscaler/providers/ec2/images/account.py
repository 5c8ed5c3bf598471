"""The calls to EC2 of the commands about images."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import boto3
from botocore.exceptions import BotoCoreError, ClientError

from autoscaler.providers.ec2.images.smoke_test import ImageEc2Error

if TYPE_CHECKING:
    from mypy_boto3_ec2.client import EC2Client
from typing import TYPE_CHECKING

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


_ENDED = frozenset({"shutting-down", "terminated"})


class AwsBuilds:
    """EC2 in one region. The templates of ami/ name the build machine after the image."""

    def __init__(self, region: str, image_name: str) -> None:
        self._region = region
        self._name = f"build of {image_name}"

    def state(self) -> str | None:
        """Return the state of the build machine; None if there is none yet, or EC2 does not answer."""
        try:
            states = self._states()
        except ImageEc2Error:
            return None
        return next(iter(states.values())) if len(states) == 1 else None

    def terminate(self) -> tuple[str, ...]:
        """Terminate the build machine, if there is one; return its ID. Raises ImageEc2Error."""
        left = [one for one, state in self._states().items() if state not in _ENDED]
        if left:
            with sdk_errors("TerminateInstances"):
                self._client().terminate_instances(InstanceIds=left)
        return tuple(left)

    def _states(self) -> dict[str, str]:
        with sdk_errors("DescribeInstances"):
            answer = self._client().describe_instances(
                Filters=[{"Name": "tag:Name", "Values": [self._name]}]
            )
        return {
            one["InstanceId"]: one["State"]["Name"]
            for group in answer["Reservations"]
            for one in group["Instances"]
        }

    def _client(self) -> EC2Client:
        # A session of its own: the watch calls this in a thread, and the default one is not thread-safe.
        with sdk_errors("the configuration of the AWS SDK"):
            return boto3.Session().client("ec2", region_name=self._region)
