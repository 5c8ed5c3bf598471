"""The GPUs of EC2's instance types that the agent can check. Pure."""

from autoscaler.config.settings.sku import Accelerator, AcceleratorVendor
from autoscaler.model.catalogue import OperatingSystem
from autoscaler.providers.ec2.instance_types import instance_types


def gpus_of(instance_type: str, os: OperatingSystem) -> Accelerator | None:
    """Return the vendor and number of an instance type's GPUs, or None if the agent cannot check them.

    It checks NVIDIA's and, on Linux, AMD's: no Gaudi, Inferentia or Trainium. How many GPUs a machine with a
    part of a GPU shows (g6f, gr6f) is not known.
    """
    known = instance_types().get(instance_type)
    if known is None or known.gpu_count == 0 or known.gpu_maker not in set(AcceleratorVendor):
        return None
    vendor = AcceleratorVendor(known.gpu_maker)
    if vendor is AcceleratorVendor.AMD and os is not OperatingSystem.LINUX:
        return None
    return Accelerator(vendor=vendor, count=known.gpu_count)
