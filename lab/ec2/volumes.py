"""Root volumes: each instance has one, which its termination deletes if the launch said so.

Answers DescribeVolumes and DeleteVolume. The lab has no other volumes: it refuses CreateVolume.
"""

from typing import Any

from lab.ec2.filters import Filters
from lab.ec2.instances import Instance, Instances, InstanceState
from lab.ec2.paging import page_of
from lab.ec2.query import Ec2Error, Tree, answer, element, tag_set, timestamp

FILTERS = frozenset(
    {
        "attachment.instance-id",
        "availability-zone",
        "create-time",
        "snapshot-id",
        "status",
        "volume-id",
    }
)


class Volumes:
    """The instances' root volumes."""

    def __init__(self, instances: Instances) -> None:
        self._instances = instances
        self._deleted: set[str] = set()

    def left(self) -> tuple[str, ...]:
        """Return every volume that exists."""
        return tuple(one.volume_id for one in self._existing())

    def describe(self, params: Tree) -> str:
        """Answer DescribeVolumes. Raises Ec2Error."""
        filters = Filters(params, FILTERS)
        existing = {one.volume_id: one for one in self._existing()}
        for volume_id in params.texts("VolumeId"):
            if volume_id not in existing:
                raise _not_found(volume_id)
        wanted = params.texts("VolumeId") or list(existing)
        chosen = [
            one
            for one in map(existing.__getitem__, wanted)
            if filters.admit(_attributes(one), one.specification.volume_tags)
        ]
        page, more = page_of(params, chosen, lambda one: one.number)
        return answer("DescribeVolumes", element("volumeSet", list(map(_shown, page))) + more)

    def delete(self, params: Tree) -> str:
        """Answer DeleteVolume. Raises Ec2Error."""
        volume_id = params.text("VolumeId")
        for one in self._existing():
            if one.volume_id == volume_id:
                if _attached(one):
                    raise Ec2Error("VolumeInUse", f"Volume {volume_id} is attached to {one.id}")
                self._deleted.add(volume_id)
                return answer("DeleteVolume", element("return", True))
        raise _not_found(volume_id)

    def _existing(self) -> list[Instance]:
        return [
            one
            for one in self._instances
            if (_attached(one) or one.leaves_disk) and one.volume_id not in self._deleted
        ]


def _attached(one: Instance) -> bool:
    return one.state is not InstanceState.TERMINATED


def _not_found(volume_id: str) -> Ec2Error:
    return Ec2Error("InvalidVolume.NotFound", f"The volume '{volume_id[:60]}' does not exist.")


def _status(one: Instance) -> str:
    return "in-use" if _attached(one) else "available"


def _attributes(one: Instance) -> dict[str, str]:
    return {
        "attachment.instance-id": one.id if _attached(one) else "",
        "availability-zone": one.zone,
        "create-time": timestamp(one.launched_at),
        "snapshot-id": one.specification.image.snapshot_id,
        "status": _status(one),
        "volume-id": one.volume_id,
    }


def _shown(one: Instance) -> dict[str, Any]:
    disk = one.specification.disk
    attachment = {
        "volumeId": one.volume_id,
        "instanceId": one.id,
        "device": one.specification.image.root_device,
        "status": "attached",
        "attachTime": timestamp(one.launched_at),
        "deleteOnTermination": one.specification.disk.delete_with_instance,
    }
    return {
        "volumeId": one.volume_id,
        "size": disk.gb,
        "iops": disk.iops,
        "throughput": disk.throughput,
        "volumeInitializationRate": disk.initialization_rate or None,
        "encrypted": disk.encrypted,
        "kmsKeyId": disk.kms_key or None,
        "snapshotId": one.specification.image.snapshot_id,
        "availabilityZone": one.zone,
        "status": _status(one),
        "createTime": timestamp(one.launched_at),
        "attachmentSet": [attachment] if _attached(one) else [],
        "tagSet": tag_set(one.specification.volume_tags),
        "volumeType": "gp3",
    }
