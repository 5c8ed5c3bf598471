"""The calls to EC2 of `autoscaler images prune`."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import boto3
from botocore.exceptions import ClientError

from autoscaler.images.aws import SET, sdk_errors
from autoscaler.images.pruning import Found, MadeImage, MadeSnapshot
from autoscaler.images.smoke_test import PUBLISHED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mypy_boto3_ec2.client import EC2Client

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

    def delete_image(self, image: MadeImage) -> None:
        """Deregister an image and delete its snapshots, unless another image uses them."""
        with sdk_errors("DeregisterImage"):
            self._ec2.deregister_image(ImageId=image.id)
        for snapshot in image.snapshots:
            self._delete(snapshot)

    def delete_snapshot(self, snapshot: MadeSnapshot) -> None:
        """Delete a snapshot, unless another image uses it."""
        self._delete(snapshot.id)

    def _delete(self, snapshot: str) -> None:
        with sdk_errors("DeleteSnapshot"):
            try:
                self._ec2.delete_snapshot(SnapshotId=snapshot)
            except ClientError as error:
                if error.response["Error"]["Code"] != "InvalidSnapshot.InUse":
                    raise

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
        """Return the images of all instances that exist, and of all versions of all launch templates."""
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
            versions = self._pages("describe_launch_template_versions", LaunchTemplateId=template)
            for page in versions:
                for one in page["LaunchTemplateVersions"]:
                    used.add(one["LaunchTemplateData"].get("ImageId", ""))
        return used

    def _pages(self, operation: Any, **parameters: Any) -> Iterator[Any]:
        with sdk_errors(operation):
            paginator: Any = self._ec2.get_paginator(operation)
            yield from paginator.paginate(**parameters)
