"""EC2's instance types: sizes, prices and the quota each counts against.

A table of the project's own, `data/instance_types.csv`, made by scripts/instance_types.py from
aws/karpenter-provider-aws at 1d92708 (prices that its authors generated on 2026-07-20 from
AWS's price list, us-east-1, Linux, on demand). It asks no one and knows nothing of discounts:
other regions count at us-east-1's price unless overridden, and spot counts at the on-demand
price, which it does not exceed unless somebody bids higher.
"""

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from types import MappingProxyType

from autoscaler.model.catalogue import Architecture, CapacityType, OperatingSystem

PRICES_DATED = "2026-07-20"
"""When the table's prices were read from AWS's price list."""

WINDOWS_DOLLARS_PER_VCPU_HOUR = 0.046
"""On top of Linux (EC2 User Guide, "Optimize CPUs for License-Included instances"). The `t`
families and a few older types differ."""


class InstanceTypeError(ValueError):
    """An instance type that cannot be offered; the message names it and what to do."""


@dataclass(frozen=True, slots=True)
class InstanceType:
    """One row of the table. `linux_dollars_per_hour` is None where AWS publishes no price."""

    name: str
    vcpus: int
    memory_mib: int
    arch: Architecture
    gpu_count: int
    gpu_name: str
    linux_dollars_per_hour: float | None

    def dollars_per_hour(
        self, os: OperatingSystem, overrides: Mapping[str, float] | None = None
    ) -> float:
        """The on-demand price. `overrides` are Linux prices. Raises InstanceTypeError."""
        linux = (overrides or {}).get(self.name, self.linux_dollars_per_hour)
        if linux is None:
            raise InstanceTypeError(
                f"no price is known for instance type {self.name}; give one under `prices`"
            )
        if os is OperatingSystem.WINDOWS:
            return round(linux + self.vcpus * WINDOWS_DOLLARS_PER_VCPU_HOUR, 6)
        return linux


@cache
def instance_types() -> Mapping[str, InstanceType]:
    """The whole table by name."""
    text = files(__package__).joinpath("data/instance_types.csv").read_text(encoding="utf-8")
    rows = csv.DictReader(text.splitlines())
    return MappingProxyType({row["instance_type"]: _parse(row) for row in rows})


def instance_type(name: str) -> InstanceType:
    """One type. Raises InstanceTypeError when the table does not have it."""
    try:
        return instance_types()[name]
    except KeyError:
        raise InstanceTypeError(f"instance type {name} is not known") from None


def _parse(row: Mapping[str, str]) -> InstanceType:
    price = row["linux_usd_per_hour"]
    return InstanceType(
        name=row["instance_type"],
        vcpus=int(row["vcpus"]),
        memory_mib=int(row["memory_mib"]),
        arch=Architecture(row["arch"]),
        gpu_count=int(row["gpu_count"]),
        gpu_name=row["gpu_name"],
        linux_dollars_per_hour=float(price) if price else None,
    )


_FAMILIES = (
    # The first prefix that fits; "EC2 instance type quotas" in the EC2 User Guide.
    ("High memory", ("u-", "u7")),
    ("HPC", ("hpc",)),
    ("Inf", ("inf",)),
    ("Trn", ("trn",)),
    ("DL", ("dl",)),
    ("G and VT", ("g", "vt")),
    ("P", ("p",)),
    ("F", ("f",)),
    ("X", ("x",)),
    ("Standard", ("a", "c", "d", "h", "i", "m", "r", "t", "z")),
)


def quota_family(name: str) -> str:
    """The family whose vCPU quota a type counts against. Raises InstanceTypeError."""
    for family, prefixes in _FAMILIES:
        if name.startswith(prefixes):
            return family
    raise InstanceTypeError(f"instance type {name} has no known quota family")


def quota(name: str, capacity_type: CapacityType) -> str:
    """The quota's name, such as `on-demand/G and VT`: spot and on-demand are counted apart."""
    return f"{capacity_type.value}/{quota_family(name)}"
