"""The root disk of a launch: what block device mappings mean, and what EC2 refuses of them.

EC2's codes and messages: rocicorp/mono#4410 (IOPS for each GiB), runs-on/runs-on#260 (throughput for each of
the IOPS), gardener/gardener-extension-provider-aws#590 (maximum throughput). Reports quote no code for the
second one; the lab uses that of the others. EC2 accepts a throughput below 125 MiB/s as 125
(kubernetes-sigs/cluster-api-provider-aws#6218).
"""

from collections.abc import Mapping
from dataclasses import dataclass

from lab.ec2.images import Image
from lab.ec2.query import Ec2Error, whole_number

MAX_DISK_GB = 65_536
BASE_IOPS, MAX_IOPS = 3000, 80_000
BASE_THROUGHPUT, MAX_THROUGHPUT = 125, 2000
"""Of gp3, the only type that the lab has (EC2 API, EbsBlockDevice)."""
MAX_NUMBER = 2**31 - 1
INITIALIZATION_RATES = range(100, 301)


@dataclass(frozen=True, slots=True)
class Disk:
    """A root volume. `gb` is in GiB, `throughput` and `initialization_rate` (0: not requested) in MiB/s."""

    gb: int = 8
    delete_with_instance: bool = True
    iops: int = BASE_IOPS
    throughput: int = BASE_THROUGHPUT
    initialization_rate: int = 0
    encrypted: bool = False
    kms_key: str = ""


def root_disk(disks: Mapping[str, Mapping[str, str]], image: Image) -> Disk:
    """Return the root disk of an image with a request's or template's mappings. Raises Ec2Error."""
    for device, said in disks.items():
        empty = device != image.root_device and not said.get("snapshotId")
        if empty and "volumeInitializationRate" in said:
            # botocore, EbsBlockDevice: "supported only for volumes created from snapshots".
            text = "VolumeInitializationRate is supported only for volumes from snapshots."
            raise Ec2Error("InvalidParameterCombination", text)
    said = disks.get(image.root_device, {})
    if said.get("volumeType", "gp3") != "gp3":
        raise Ec2Error("UnsupportedOperation", "The lab has volumes of gp3 only.")
    asked = said.get("volumeSize") or str(image.snapshot_gb)
    size = whole_number(asked, "VolumeSize", 1, MAX_DISK_GB)
    if size < image.snapshot_gb:
        raise Ec2Error(
            "InvalidBlockDeviceMapping",
            f"Volume of size {size}GB is smaller than snapshot '{image.snapshot_id}', "
            f"expect size >= {image.snapshot_gb}GB",
        )
    iops = _iops(said, size)
    rate = _number(said, "volumeInitializationRate", 0)
    if rate and rate not in INITIALIZATION_RATES:
        text = f"Volume initialization rate of {rate} is not between 100 and 300 MiB/s."
        raise Ec2Error("InvalidParameterValue", text)
    return Disk(
        gb=size,
        delete_with_instance=said.get("deleteOnTermination", "true") == "true",
        iops=iops,
        throughput=_throughput(said, iops),
        initialization_rate=rate,
        encrypted=said.get("encrypted", "false") == "true",
        kms_key=said.get("kmsKeyId", ""),
    )


def _iops(said: Mapping[str, str], size: int) -> int:
    iops = _number(said, "iops", BASE_IOPS)
    if iops > MAX_IOPS:
        text = f"Volume iops of {iops} is too high; maximum is {MAX_IOPS}."
        raise Ec2Error("InvalidParameterValue", text)
    if iops < BASE_IOPS:
        text = f"Volume iops of {iops} is too low; minimum is {BASE_IOPS}."
        raise Ec2Error("InvalidParameterValue", text)
    if iops > max(BASE_IOPS, 500 * size):
        text = f"Iops to volume size ratio of {iops / size:.6f} is too high; maximum is 500"
        raise Ec2Error("InvalidParameterValue", text)
    return iops


def _throughput(said: Mapping[str, str], iops: int) -> int:
    throughput = _number(said, "throughput", BASE_THROUGHPUT)
    if throughput > MAX_THROUGHPUT:
        text = f"Volume throughput of {throughput} is too high; maximum is {MAX_THROUGHPUT}."
        raise Ec2Error("InvalidParameterValue", text)
    if throughput > iops / 4:
        raise Ec2Error(
            "InvalidParameterValue",
            f"Throughput (MiBps) to iops ratio of {throughput / iops:.6f} is too high; "
            "maximum is 0.250000 MiBps per iops.",
        )
    return max(throughput, BASE_THROUGHPUT)


def _number(said: Mapping[str, str], name: str, default: int) -> int:
    return whole_number(said.get(name, str(default)), name, 0, MAX_NUMBER)
