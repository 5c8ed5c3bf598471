"""Lists the keys of a fleet.yaml that are accepted and have no effect yet.

The composition root reports errors for keys that cannot be served at all, such as a store that is not
implemented. The change that implements a key removes it from this list.
"""

from collections.abc import Iterator

from autoscaler.config.problems import dotted
from autoscaler.config.settings.fleet import Settings
from autoscaler.config.settings.sku import AcceleratorVendor, Driver, SkuSettings
from autoscaler.model.catalogue import Architecture


def not_in_force(settings: Settings) -> list[str]:
    """Return these keys as `key: reason`, in the order of the file."""
    return [line for name, sku in settings.skus.items() for line in _keys(name, sku)]


def _keys(name: str, sku: SkuSettings) -> Iterator[str]:
    vendor = sku.accelerator.vendor if sku.accelerator is not None else AcceleratorVendor.NVIDIA
    other = vendor is AcceleratorVendor.AMD and sku.arch is not Architecture.X64
    if sku.driver is Driver.INSTALL and other:
        where = f"{sku.os} ({sku.arch})"
        what = f"the driver of {vendor} is not installed on {where} yet, the image must contain it"
        yield f"{dotted(('skus', name, 'driver'))}: {what}"
