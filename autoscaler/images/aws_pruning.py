"""The calls to EC2 of `autoscaler images prune`."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import boto3
from botocore.exceptions import ClientError

from autoscaler.images.aws import SET, sdk_errors
from autoscaler.images.pruning import Found, MadeImage, MadeSnapshot
from autoscaler.images.smoke_test import PUBLISHED, ImageEc2Error

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mypy_boto3_ec2.client import EC2Client

_PARAMETER = "resolve:ssm:"
"""How an image begins that a template names by a parameter (EC2 User Guide, "Create a launch template")."""

RECIPE = "autoscaler:image-recipe"


class AwsPruning:
    """EC2 in one region, with the credentials and the endpoint of the environment."""

    def __init__(self, region: str, image_set: str) -> None:
        self._filter: Any = [{"Name": f"tag:{SET}", "Values": [image_set]}]
        with sdk_errors("the configuration of the AWS SDK"):
            self._ec2: EC2Client = boto3.client("ec2", region_name=region)

    def find(self) -> Found:
        """List the set's images and snapshots, and what the account uses."""
        # First what exists, then what is used: a machine that starts in between then counts.
        images = tuple(self._images())
        snapshots = tuple(self._snapshots())
        return Found(images, snapshots, self._in_use())

    def delete_image(self, image: MadeImage) -> tuple[str, ...]:
        """Deregister an image and delete its snapshots; return those that another image uses and EC2 keeps."""
        with sdk_errors("DeregisterImage"):
            self._ec2.deregister_image(ImageId=image.id)
        return tuple([one for one in image.snapshots if not self._delete(one)])

    def delete_snapshot(self, snapshot: MadeSnapshot) -> bool:
        """Delete a snapshot. Return False if an image uses it, and EC2 keeps it."""
        return self._delete(snapshot.id)

    def _delete(self, snapshot: str) -> bool:
        with sdk_errors("DeleteSnapshot"):
            try:
                self._ec2.delete_snapshot(SnapshotId=snapshot)
            except ClientError as error:
                if error.response["Error"]["Code"] != "InvalidSnapshot.InUse":
                    raise
                return False
        return True

    def _images(self) -> Iterator[MadeImage]:
        for page in self._pages("describe_images", Owners=["self"], Filters=self._filter):
            for one in page["Images"]:
                tags = {tag["Key"]: tag["Value"] for tag in one.get("Tags", ())}
                disks = [disk["Ebs"] for disk in one["BlockDeviceMappings"] if "Ebs" in disk]
                yield MadeImage(
                    id=one["ImageId"],
                    name=one["Name"],
                    created=datetime.fromisoformat(one["CreationDate"]),
                    group=(tags.get(RECIPE, ""), one["Architecture"]),
                    published=PUBLISHED in tags,
                    snapshots=tuple(disk["SnapshotId"] for disk in disks if "SnapshotId" in disk),
                )

    def _snapshots(self) -> Iterator[MadeSnapshot]:
        for page in self._pages("describe_snapshots", OwnerIds=["self"], Filters=self._filter):
            for one in page["Snapshots"]:
                yield MadeSnapshot(one["SnapshotId"], one["StartTime"])

    def _in_use(self) -> set[str]:
        """Return the images of all instances that exist, and of all versions of all launch templates.

        Raises ImageEc2Error if EC2 does not say which image a parameter of Systems Manager names: the image
        may be one of ours. EC2 reads the parameter with the caller's permission `ssm:GetParameters`.
        """
        used: set[str] = set()
        for page in self._pages("describe_instances"):
            for group in page["Reservations"]:
                for one in group["Instances"]:
                    if one["State"]["Name"] != "terminated":
                        used.add(one["ImageId"])
        templates = [
            one["LaunchTemplateId"]
            for page in self._pages("describe_launch_templates")
            for one in page["LaunchTemplates"]
        ]
        for template in templates:
            versions = self._pages(
                "describe_launch_template_versions", LaunchTemplateId=template, ResolveAlias=True
            )
            for page in versions:
                for one in page["LaunchTemplateVersions"]:
                    image = one["LaunchTemplateData"].get("ImageId", "")
                    if image.startswith(_PARAMETER):
                        raise ImageEc2Error(f"{template}: EC2 does not say which image is {image}")
                    used.add(image)
        return used

    def _pages(self, operation: Any, **parameters: Any) -> Iterator[Any]:
        with sdk_errors(operation):
            paginator: Any = self._ec2.get_paginator(operation)
            yield from paginator.paginate(**parameters)
