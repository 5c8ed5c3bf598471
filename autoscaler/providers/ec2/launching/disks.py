"""The disks of a machine in its launch template, and EC2's limits on their performance.

Sources: botocore's data/ec2/2016-11-15/service-2.json, LaunchTemplateEbsBlockDeviceRequest (gp3: 3,000 to
80,000 IOPS, 125 to 2,000 MiB/s, initialization at 100 to 300 MiB/s and only from a snapshot); EBS User
Guide, "Amazon EBS General Purpose SSD volumes" (500 IOPS for each GiB, 0.25 MiB/s for each of the IOPS).
EC2's refusals: rocicorp/mono#4410, runs-on/runs-on#260.
"""

from collections.abc import Iterator
from typing import Any

from autoscaler.controller.ports.provider import ProviderError
from autoscaler.model.machines.failures import FailureClass
from autoscaler.providers.ec2.configuration import Volume
from autoscaler.providers.ec2.settings import Ec2Sku
from autoscaler.providers.ec2.worker.rows import ImageRow

BASE_IOPS = 3000
"""The IOPS of a gp3 volume that requests none, of any size."""

IOPS_PER_GIB = 500
IOPS_PER_MIBPS = 4
"""EC2 refuses more than 0.25 MiB/s for each of the IOPS."""


def ratio_problems(volume: Volume, size: int | None) -> Iterator[tuple[str, str, str]]:
    """Return the options that EC2 refuses together, each as key, message and fix.

    `size` is the disk's in GiB; None does not check it.
    """
    iops = volume.iops or BASE_IOPS
    if size is not None and iops > max(BASE_IOPS, IOPS_PER_GIB * size):
        what = f"{iops} IOPS are too many for a disk of {size} GiB: EBS allows {IOPS_PER_GIB} for each GiB"
        yield "iops", what, f"write disk_gb: {-(-iops // IOPS_PER_GIB)} or more, or fewer IOPS"
    throughput = volume.throughput or 0
    if throughput * IOPS_PER_MIBPS > iops:
        what = f"{throughput} MiB/s are too much for {iops} IOPS: EBS allows 0.25 MiB/s for each"
        yield (
            "throughput",
            what,
            f"write iops: {throughput * IOPS_PER_MIBPS} or more, or less throughput",
        )


def block_devices(sku: Ec2Sku, image: ImageRow) -> list[dict[str, Any]]:
    """Return the template's block device mappings: the root disk, then the image's other disks.

    Raises ProviderError if EC2 would refuse the root disk, whose size may come from the image.
    """
    volume = sku.keys.volume or Volume()
    size = max(sku.keys.root_disk_gb or 0, image.root_gb, 1)
    for key, what, fix in ratio_problems(volume, size):
        text = f"volume.{key} of {sku.name}: {what}; {fix}"
        raise ProviderError(FailureClass.CONFIGURATION, "Volume", text)
    root = _disk(image.root_device, size, volume.kms_key)
    options = {
        "Iops": volume.iops,
        "Throughput": volume.throughput,
        "VolumeInitializationRate": volume.initialization_rate,
    }
    root["Ebs"] |= {name: value for name, value in options.items() if value is not None}
    others = (_disk(device, max(gb, 1), volume.kms_key) for device, gb in image.other_disks)
    return [root, *others]


def _disk(device: str, size: int, kms_key: str | None) -> dict[str, Any]:
    ebs: dict[str, Any] = {
        "DeleteOnTermination": True,
        "Encrypted": True,
        "VolumeSize": size,
        "VolumeType": "gp3",
    }
    if kms_key is not None:
        ebs["KmsKeyId"] = kms_key
    return {"DeviceName": device, "Ebs": ebs}
