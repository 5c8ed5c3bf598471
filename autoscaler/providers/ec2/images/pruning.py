"""Which images and snapshots of the recipes to delete, and the calls that list and delete them."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime, timedelta

from autoscaler.providers.ec2.images.account import SET, AwsRegion, ImageEc2Error
from autoscaler.providers.ec2.tags import PUBLISHED


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


def choose(
    found: Found, now: datetime, keep: int, min_age: timedelta
) -> list[MadeImage | MadeSnapshot]:
    """Return what is older than `min_age` and of no use any more: images, then snapshots, the oldest first.

    Of each recipe and architecture, the newest `keep` published images stay, so that a fleet can go back to
    an older one. An image that an instance or a launch template names stays. Of snapshots, only those go whose
    image is gone already.
    """
    kept = found.in_use | _newest(found.images, keep)
    kept |= {snapshot for one in found.images for snapshot in one.snapshots}
    every: list[MadeImage | MadeSnapshot] = [*found.images, *found.snapshots]
    every.sort(key=lambda one: (isinstance(one, MadeSnapshot), one.created, one.id))
    return [one for one in every if one.id not in kept and now - one.created >= min_age]


def delete_all(
    ec2: "AwsPruning", chosen: Iterable[MadeImage | MadeSnapshot], say: Callable[[str], None]
) -> None:
    """Delete each image and snapshot, and report each to `say`, also those that EC2 keeps.

    Raises ImageEc2Error at the end, with all refusals of EC2. It refuses, for example, to deregister an image
    with deregistration protection.
    """
    refused = []
    for one in chosen:
        try:
            if isinstance(one, MadeImage):
                kept = ec2.delete_image(one)
                say(f"deleted {one}")
                for snapshot in kept:
                    say(f"kept {snapshot}: another image uses it")
            elif ec2.delete_snapshot(one.id):
                say(f"deleted {one}")
            else:
                say(f"kept {one.id}: an image uses it")
        except ImageEc2Error as error:
            refused.append(f"{one.id}: {error}")
    if refused:
        raise ImageEc2Error("\n".join(refused))


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


class AwsPruning(AwsRegion):
    """The images and snapshots of one set in one region."""

    def __init__(self, region: str, image_set: str) -> None:
        super().__init__(region)
        self._filter = [{"Name": f"tag:{SET}", "Values": [image_set]}]

    def find(self) -> Found:
        """List the set's images and snapshots, and what the account uses."""
        # First what exists, then what is used: a machine that starts in between then counts.
        images = tuple(self._images())
        snapshots = tuple(self._snapshots())
        return Found(images, snapshots, self._in_use())

    def delete_image(self, image: MadeImage) -> tuple[str, ...]:
        """Deregister an image and delete its snapshots; return those that another image uses and EC2 keeps."""
        self.call("DeregisterImage", ImageId=image.id)
        return tuple([one for one in image.snapshots if not self.delete_snapshot(one)])

    def delete_snapshot(self, snapshot: str) -> bool:
        """Delete a snapshot. Return False if an image uses it, and EC2 keeps it."""
        in_use = "InvalidSnapshot.InUse"
        return self.call("DeleteSnapshot", unless=in_use, SnapshotId=snapshot) is not None

    def _images(self) -> Iterator[MadeImage]:
        for page in self.pages("DescribeImages", Owners=["self"], Filters=self._filter):
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
        for page in self.pages("DescribeSnapshots", OwnerIds=["self"], Filters=self._filter):
            for one in page["Snapshots"]:
                yield MadeSnapshot(one["SnapshotId"], one["StartTime"])

    def _in_use(self) -> set[str]:
        """Return the images of all instances that exist, and of all versions of all launch templates.

        Raises ImageEc2Error if EC2 does not say which image a parameter of Systems Manager names: the image
        may be one of ours. EC2 reads the parameter with the caller's permission `ssm:GetParameters`.
        """
        used: set[str] = set()
        for page in self.pages("DescribeInstances"):
            for group in page["Reservations"]:
                for one in group["Instances"]:
                    if one["State"]["Name"] != "terminated":
                        used.add(one["ImageId"])
        templates = [
            one["LaunchTemplateId"]
            for page in self.pages("DescribeLaunchTemplates")
            for one in page["LaunchTemplates"]
        ]
        for template in templates:
            versions = self.pages(
                "DescribeLaunchTemplateVersions", LaunchTemplateId=template, ResolveAlias=True
            )
            for page in versions:
                for one in page["LaunchTemplateVersions"]:
                    image = one["LaunchTemplateData"].get("ImageId", "")
                    if image.startswith(_PARAMETER):
                        raise ImageEc2Error(f"{template}: EC2 does not say which image is {image}")
                    used.add(image)
        return used
