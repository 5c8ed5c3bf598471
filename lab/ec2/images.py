"""Machine images, stored by the front, because moto gives every image the same 15 GiB root disk.

Answers DescribeImages and DeregisterImage. `image_making` makes images of instances.
"""

import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

from lab.ec2.filters import Filters
from lab.ec2.query import Ec2Error, Tree, answer, element, tag_set, timestamp
from lab.ec2.snapshots import Snapshot, Snapshots

FILTERS = frozenset(
    {
        "architecture",
        "image-id",
        "image-type",
        "is-public",
        "name",
        "owner-id",
        "platform",
        "root-device-name",
        "root-device-type",
        "state",
        "virtualization-type",
    }
)
NAME = re.compile(r"[A-Za-z0-9()\[\] ./\-'@_]{3,128}")
"""What an image's name may be (EC2 API Reference, CreateImage)."""


CANONICAL, AMAZON = "099720109477", "137112412989"
STOCK_IMAGES = (
    (CANONICAL, "ubuntu/images/hvm-ssd-gp3/ubuntu-noble-24.04-amd64-server-20260901", "x86_64"),
    (CANONICAL, "ubuntu/images/hvm-ssd-gp3/ubuntu-noble-24.04-amd64-server-20260923", "x86_64"),
    (CANONICAL, "ubuntu/images/hvm-ssd-gp3/ubuntu-noble-24.04-arm64-server-20260923", "arm64"),
    (AMAZON, "al2023-ami-2023.12.20260930.0-kernel-6.1-x86_64", "x86_64"),
    (AMAZON, "al2023-ami-2023.12.20260930.0-kernel-6.1-arm64", "arm64"),
    (AMAZON, "al2023-ami-minimal-2023.12.20260930.0-kernel-6.1-x86_64", "x86_64"),
)
"""Public images of publishers, each newer than the one before it: owner, name, architecture."""


@dataclass(frozen=True, slots=True)
class Image:
    """An image. `created_at` and `available_at` are Unix seconds of lab time.

    `owner` is the account of a publisher, and empty for an image of this account.

    `platform` is linux or windows, `architecture` EC2's x86_64 or arm64. `source_instance` is the instance that
    it was made of; empty for a seeded image.
    """

    id: str
    name: str
    platform: str
    architecture: str
    root_device: str
    snapshot_gb: int
    created_at: float
    tags: dict[str, str] = field(default_factory=dict)
    available_at: float = 0.0
    source_instance: str = ""
    description: str = ""
    owner: str = ""

    @property
    def snapshot_id(self) -> str:
        """The ID of its root snapshot."""
        return "snap-" + self.id.removeprefix("ami-")


class Images:
    """The account's images, each created later than the one before it.

    A new image of an instance is `pending` for `imaging` seconds of lab time.
    """

    imaging = 5.0

    def __init__(self, account: str, now: Callable[[], float]) -> None:
        self._account = account
        self._now = now
        self._by_id: dict[str, Image] = {}
        self._latest = 0.0
        self.snapshots = Snapshots(account, now, self._user)
        for number, (owner, name, architecture) in enumerate(STOCK_IMAGES):
            stock = Image(
                id=f"ami-0000000000000{number:04}",
                name=name,
                platform="linux",
                architecture=architecture,
                root_device="/dev/sda1",
                snapshot_gb=8,
                created_at=1_790_000_000.0 + number,
                owner=owner,
            )
            self._by_id[stock.id] = stock

    def add(
        self,
        name: str,
        *,
        platform: str = "linux",
        architecture: str = "x86_64",
        root_device: str = "/dev/xvda",
        snapshot_gb: int = 30,
        tags: Mapping[str, str] | None = None,
    ) -> Image:
        """Register an image owned by `self`; at least a second newer than every other."""
        # A day in the past, so that several seeded at once are not from the future.
        self._latest = max(self._latest + 1, self._now() - 86_400)
        image = Image(
            id="ami-" + secrets.token_hex(9)[:17],
            name=name,
            platform=platform,
            architecture=architecture,
            root_device=root_device,
            snapshot_gb=snapshot_gb,
            created_at=self._latest,
            tags=dict(tags or {}),
        )
        return self._added(image)

    def create(
        self,
        base: Image,
        name: str,
        *,
        source: str,
        size_gb: int,
        description: str = "",
        tags: Mapping[str, str] | None = None,
        snapshot_tags: Mapping[str, str] | None = None,
    ) -> Image:
        """Register the image of an instance, `source`, that runs `base`. It is pending at first.

        Raises Ec2Error for a name that EC2 does not allow, or that another image of the account has.
        """
        if NAME.fullmatch(name) is None:
            raise Ec2Error("InvalidAMIName.Malformed", f"AMI name '{name[:60]}' is invalid.")
        for one in self._by_id.values():
            if one.name == name:
                raise Ec2Error(
                    "InvalidAMIName.Duplicate", f"AMI name {name} is already in use by AMI {one.id}"
                )
        self._latest = max(self._latest + 1, self._now())
        image = replace(
            base,
            id="ami-" + secrets.token_hex(9)[:17],
            name=name,
            snapshot_gb=size_gb,
            created_at=self._latest,
            tags=dict(tags or {}),
            available_at=self._now() + self.imaging,
            source_instance=source,
            description=description,
        )
        self._added(image)
        self.snapshots.find(image.snapshot_id).tags = dict(snapshot_tags or {})
        return image

    def change(
        self, image_id: str, *, tags: dict[str, str] | None = None, description: str | None = None
    ) -> None:
        """Replace an image's tags or its description. Raises Ec2Error if the image does not exist."""
        image = self.find(image_id)
        self._by_id[image_id] = replace(
            image,
            tags=image.tags if tags is None else tags,
            description=image.description if description is None else description,
        )

    def _added(self, image: Image) -> Image:
        self._by_id[image.id] = image
        self.snapshots.add(
            Snapshot(
                image.snapshot_id,
                image.snapshot_gb,
                image.created_at,
                image.available_at,
                f"Created by CreateImage({image.source_instance}) for {image.id}",
            )
        )
        return image

    def _user(self, snapshot_id: str) -> str | None:
        using = [one.id for one in self._by_id.values() if one.snapshot_id == snapshot_id]
        return using[0] if using else None

    def publish(self, older: Image, name: str, tags: Mapping[str, str] | None = None) -> Image:
        """Register a newer copy of an image, created now, as a rebuild does."""
        self._latest = max(self._latest + 1, self._now())
        newer = replace(
            older,
            id="ami-" + secrets.token_hex(9)[:17],
            name=name,
            created_at=self._latest,
            tags=dict(older.tags if tags is None else tags),
        )
        return self._added(newer)

    def named(self, pattern: str) -> list[Image]:
        """Return the images of this account whose names match a glob, the newest last."""
        own = (one for one in self._by_id.values() if not one.owner)
        return [one for one in own if fnmatchcase(one.name, pattern)]

    def find(self, image_id: str) -> Image:
        """Return the image with this ID. Raises Ec2Error if it does not exist."""
        if not image_id.startswith("ami-"):
            raise Ec2Error("InvalidAMIID.Malformed", f'Invalid id: "{image_id}"')
        image = self._by_id.get(image_id)
        if image is None:
            raise Ec2Error("InvalidAMIID.NotFound", f"The image id '[{image_id}]' does not exist")
        return image

    def available(self, image_id: str) -> Image:
        """Return the image with this ID, of which instances can be launched. Raises Ec2Error."""
        image = self.find(image_id)
        if self._state(image) != "available":
            raise Ec2Error(
                "InvalidAMIID.Unavailable", f"The image ID '{image_id}' is not available"
            )
        return image

    def describe(self, params: Tree) -> str:
        """Answer DescribeImages."""
        filters = Filters(params, FILTERS)
        ids = params.texts("ImageId")
        images = [self.find(image_id) for image_id in ids] if ids else list(self._by_id.values())
        owners = set(params.texts("Owner") or ["self"])
        images = [one for one in images if owners & self._names_of_owner(one)]
        chosen = [image for image in images if filters.admit(self._attributes(image), image.tags)]
        return answer("DescribeImages", element("imagesSet", [self._shown(i) for i in chosen]))

    def deregister(self, params: Tree) -> str:
        """Answer DeregisterImage."""
        del self._by_id[self.find(params.text("ImageId")).id]
        return answer("DeregisterImage", element("return", True))

    def _names_of_owner(self, image: Image) -> set[str]:
        """Return what DescribeImages calls the owner of an image (EC2 API Reference, `Owner.N`)."""
        if not image.owner:
            return {"self", self._account}
        return {image.owner, "amazon"} if image.owner == AMAZON else {image.owner}

    def _state(self, image: Image) -> str:
        return "available" if self._now() >= image.available_at else "pending"

    def _attributes(self, image: Image) -> dict[str, str]:
        return {
            "architecture": image.architecture,
            "image-id": image.id,
            "image-type": "machine",
            "is-public": str(bool(image.owner)).lower(),
            "name": image.name,
            "owner-id": image.owner or self._account,
            "platform": "windows" if image.platform == "windows" else "",
            "root-device-name": image.root_device,
            "root-device-type": "ebs",
            "state": self._state(image),
            "virtualization-type": "hvm",
        }

    def _shown(self, image: Image) -> dict[str, object]:
        windows = image.platform == "windows"
        return {
            "imageId": image.id,
            "imageLocation": f"{image.owner or self._account}/{image.name}",
            "imageState": self._state(image),
            "imageOwnerId": image.owner or self._account,
            "creationDate": timestamp(image.created_at),
            "isPublic": bool(image.owner),
            "architecture": image.architecture,
            "imageType": "machine",
            "platform": "windows" if windows else None,
            "platformDetails": "Windows" if windows else "Linux/UNIX",
            "name": image.name,
            "description": image.description,
            "sourceInstanceId": image.source_instance or None,
            "rootDeviceType": "ebs",
            "rootDeviceName": image.root_device,
            "blockDeviceMapping": [
                {
                    "deviceName": image.root_device,
                    "ebs": {
                        "snapshotId": image.snapshot_id,
                        "volumeSize": image.snapshot_gb,
                        "volumeType": "gp3",
                        "deleteOnTermination": True,
                        "encrypted": False,
                    },
                }
            ],
            "virtualizationType": "hvm",
            "hypervisor": "xen",
            "enaSupport": True,
            "tagSet": tag_set(image.tags),
        }
