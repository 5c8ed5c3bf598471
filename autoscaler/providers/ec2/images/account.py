"""The calls to EC2 of the commands about images."""

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import boto3
from botocore import xform_name
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    NoCredentialsError,
    PartialCredentialsError,
    ProfileNotFound,
)

SET = "autoscaler:image-set"
"""The tag of an image, its snapshots and its machines that says whose they are."""

_UNKNOWN = "InvalidInstanceID.NotFound"
"""EC2's code for an instance that does not exist, or is so new that this call does not see it yet."""

_ENDED = frozenset({"shutting-down", "terminated"})


_CREDENTIALS = (NoCredentialsError, PartialCredentialsError, ProfileNotFound)
_CREDENTIALS_FIX = (
    "set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or use an instance profile"
)


class ImageEc2Error(Exception):
    """EC2 refused a call, or could not be reached. The text says which call, and why."""


def _refusal(api: str, error: Exception) -> ImageEc2Error:
    fix = f"; {_CREDENTIALS_FIX}" if isinstance(error, _CREDENTIALS) else ""
    return ImageEc2Error(f"{api}: {error}{fix}")


class AwsRegion:
    """EC2 in one region, with the credentials and the endpoint of the environment.

    Each call raises ImageEc2Error if EC2 cannot be reached or refuses.
    """

    def __init__(self, region: str) -> None:
        self._region = region

    def call(self, api: str, *, unless: str = "", **parameters: Any) -> Any:
        """Return EC2's answer, or None if EC2 refuses with the code `unless`."""
        try:
            return getattr(self._ec2, xform_name(api))(**parameters)
        except (ClientError, BotoCoreError) as error:
            if isinstance(error, ClientError) and error.response["Error"]["Code"] == unless:
                return None
            raise _refusal(api, error) from error

    def pages(self, api: str, **parameters: Any) -> Iterator[Any]:
        """Yield the pages of EC2's answer."""
        try:
            yield from self._ec2.get_paginator(xform_name(api)).paginate(**parameters)
        except (ClientError, BotoCoreError) as error:
            raise _refusal(api, error) from error

    @cached_property
    def _ec2(self) -> Any:
        # A session of its own: a build's watch calls in a thread, and the default one is not thread-safe.
        return boto3.Session().client("ec2", region_name=self._region)


class AwsImages(AwsRegion):
    """The account's images, and the machines that test them: of this type, in this subnet."""

    def __init__(self, region: str, subnet: str = "", instance_type: str = "") -> None:
        super().__init__(region)
        self._subnet, self._instance_type = subnet, instance_type

    def launch(self, image: str, user_data: str) -> str:
        """Launch an instance that terminates when it powers itself off; return its ID.

        It has the image's tag `autoscaler:image-set`, without which the build role may not terminate it.
        """
        known = {one["Key"]: one["Value"] for one in self._image(image).get("Tags", ())}
        tags = [
            {"Key": "Name", "Value": f"test of {image}"},
            {"Key": SET, "Value": known.get(SET, "")},
        ]
        answer = self.call(
            "RunInstances",
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
        return str(answer["Instances"][0]["InstanceId"])

    def platform(self, image: str) -> str:
        """Return the operating system of an image: linux or windows."""
        # EC2 names the platform of Windows images only (API Reference, Image: "windows", and otherwise blank).
        named = str(self._image(image).get("Platform", ""))
        return "windows" if named.lower() == "windows" else "linux"

    def _image(self, image: str) -> Any:
        return self.call("DescribeImages", ImageIds=[image])["Images"][0]

    def find(self, name: str) -> str:
        """Return the ID of the account's image of this name."""
        found = self._named(name, "self")
        if not found:
            raise ImageEc2Error(f"DescribeImages: there is no image {name}")
        return str(found[0]["ImageId"])

    def exists(self, name: str, owner: str) -> bool:
        """Return whether EC2 shows an image of this name.

        EC2 does not show others' deprecated images, and a build does not find them (EC2 User Guide, "Deprecate
        an AMI").
        """
        return bool(self._named(name, owner))

    def _named(self, name: str, owner: str) -> Any:
        filters = [{"Name": "name", "Values": [name]}]
        return self.call("DescribeImages", Owners=[owner], Filters=filters)["Images"]

    def console(self, instance: str) -> str:
        """Return the instance's console output so far; empty while EC2 does not know the instance yet."""
        # botocore decodes the output's base64.
        answer = self.call("GetConsoleOutput", unless=_UNKNOWN, InstanceId=instance, Latest=True)
        return answer.get("Output", "") if answer is not None else ""

    def state(self, instance: str) -> str:
        """Return the name of the instance's state; `pending` while EC2 does not know the instance yet."""
        answer = self.call("DescribeInstances", unless=_UNKNOWN, InstanceIds=[instance])
        if answer is None:
            return "pending"
        return str(answer["Reservations"][0]["Instances"][0]["State"]["Name"])

    def terminate(self, instance: str) -> None:
        """Terminate the instance, if it still exists."""
        try:
            self.call("TerminateInstances", unless=_UNKNOWN, InstanceIds=[instance])
        except ImageEc2Error as error:
            raise ImageEc2Error(f"{error}; terminate {instance} yourself") from error

    def tag(self, image: str, tags: dict[str, str]) -> None:
        """Add tags to an image."""
        said = [{"Key": key, "Value": value} for key, value in tags.items()]
        self.call("CreateTags", Resources=[image], Tags=said)

    def untag(self, image: str, key: str) -> None:
        """Remove a tag from an image, if it has it."""
        self.call("DeleteTags", Resources=[image], Tags=[{"Key": key}])


class AwsBuilds(AwsRegion):
    """The build machine of one image. The templates of ami/ name it after the image."""

    def __init__(self, region: str, image_name: str) -> None:
        super().__init__(region)
        self._name = f"build of {image_name}"

    def state(self) -> str | None:
        """Return the state of the build machine; None if there is none yet, or EC2 does not answer."""
        try:
            states = self._states()
        except ImageEc2Error:
            return None
        return next(iter(states.values())) if len(states) == 1 else None

    def terminate(self) -> tuple[str, ...]:
        """Terminate the build machine, if there is one; return its ID."""
        left = [one for one, state in self._states().items() if state not in _ENDED]
        if left:
            self.call("TerminateInstances", InstanceIds=left)
        return tuple(left)

    def _states(self) -> dict[str, str]:
        named = [{"Name": "tag:Name", "Values": [self._name]}]
        answer = self.call("DescribeInstances", Filters=named)
        return {
            one["InstanceId"]: one["State"]["Name"]
            for group in answer["Reservations"]
            for one in group["Instances"]
        }
