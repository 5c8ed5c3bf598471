"""Which images and snapshots of the recipes to delete. Pure; `aws` lists and deletes them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol

import boto3
from botocore.exceptions import ClientError

from autoscaler.providers.ec2.images.account import SET, sdk_errors
from autoscaler.providers.ec2.images.smoke_test import ImageEc2Error
from autoscaler.providers.ec2.tags import PUBLISHED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mypy_boto3_ec2.client import EC2Client


@dataclass(frozen=True, slots=True)
class MadeImage:
    """An image that a recipe made. `group` is its recipe and architecture, `snapshots` their IDs."""

    id: str
    name: str
    created: datetime
    group: tuple[str, str]
    published: bool
    snapshots: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.id} {self.name}, of {self.created:%Y-%m-%d}"


@dataclass(frozen=True, slots=True)
class MadeSnapshot:
    """A snapshot of an image that a recipe made."""

    id: str
    created: datetime

    def __str__(self) -> str:
        return f"{self.id}, of {self.created:%Y-%m-%d}, which no image uses"


@dataclass(frozen=True, slots=True)
class Found:
    """The images and snapshots of one set, and the IDs of all images that the account uses."""

    images: tuple[MadeImage, ...]
    snapshots: tuple[MadeSnapshot, ...]
    in_use: AbstractSet[str]


@dataclass(frozen=True, slots=True)
class Deletions:
    """What to delete. `snapshots` are those whose image is gone already."""

    images: tuple[MadeImage, ...]
    snapshots: tuple[MadeSnapshot, ...]


class PrunedEc2(Protocol):
    """The calls to EC2. Each raises ImageEc2Error if EC2 cannot be reached or refuses."""

    def find(self) -> Found:
        """List the set's images and snapshots, and what the account uses."""

    def delete_image(self, image: MadeImage) -> tuple[str, ...]:
        """Deregister an image and delete its snapshots; return those that another image uses and EC2 keeps."""

    def delete_snapshot(self, snapshot: MadeSnapshot) -> bool:
        """Delete a snapshot. Return False if an image uses it, and EC2 keeps it."""


def choose(found: Found, now: datetime, keep: int, min_age: timedelta) -> Deletions:
    """Return what is older than `min_age` and of no use any more, the oldest first.

    Of each recipe and architecture, the newest `keep` published images stay, so that a fleet can go back to
    an older one. An image that an instance or a launch template names stays.
    """
    kept = found.in_use | _newest(found.images, keep)
    images = [one for one in found.images if one.id not in kept and now - one.created >= min_age]
    taken = {snapshot for one in found.images for snapshot in one.snapshots}
    snapshots = [
        one for one in found.snapshots if one.id not in taken and now - one.created >= min_age
    ]
    return Deletions(
        tuple(sorted(images, key=lambda one: (one.created, one.id))),
        tuple(sorted(snapshots, key=lambda one: (one.created, one.id))),
    )


def delete_all(ec2: PrunedEc2, chosen: Deletions, say: Callable[[str], None]) -> None:
    """Delete each image and snapshot, and report each to `say`, also those that EC2 keeps.

    Raises ImageEc2Error at the end, with all refusals of EC2. It refuses, for example, to deregister an image
    with deregistration protection.
    """
    every: list[MadeImage | MadeSnapshot] = [*chosen.images, *chosen.snapshots]
    refused = []
    for one in every:
        try:
            for line in _delete(ec2, one):
                say(line)
        except ImageEc2Error as error:
            refused.append(f"{one.id}: {error}")
    if refused:
        raise ImageEc2Error("\n".join(refused))


def _delete(ec2: PrunedEc2, one: MadeImage | MadeSnapshot) -> list[str]:
    """Delete an image with its snapshots, or a snapshot; return what happened, in lines."""
    if isinstance(one, MadeImage):
        kept = ec2.delete_image(one)
        return [f"deleted {one}", *(f"kept {each}: another image uses it" for each in kept)]
    return [f"deleted {one}" if ec2.delete_snapshot(one) else f"kept {one.id}: an image uses it"]


def _newest(images: Iterable[MadeImage], keep: int) -> set[str]:
    """Return the IDs of the newest published images of each group."""
    groups: defaultdict[tuple[str, str], list[MadeImage]] = defaultdict(list)
    for one in images:
        if one.published:
            groups[one.group].append(one)
    newest: set[str] = set()
    for group in groups.values():
        group.sort(key=lambda one: (one.created, one.id), reverse=True)
        newest.update(one.id for one in group[:keep])
    return newest


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
