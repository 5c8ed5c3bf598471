"""The calls to EC2 of `autoscaler images bake`, about the machine on which Packer builds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import boto3

from autoscaler.images.aws import sdk_errors
from autoscaler.images.smoke_test import ImageEc2Error

if TYPE_CHECKING:
    from mypy_boto3_ec2.client import EC2Client

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
