"""EC2's instance types: sizes, prices and the quota that each counts against.

The table is `data/instance_types.csv`. scripts/instance_types.py created it from
aws/karpenter-provider-aws at 1d92708, with the prices of AWS's price list of 2026-07-20 (us-east-1,
Linux, on-demand, without discounts). Prices that AWS lists replace the table's (`Prices.listed`).
Until they are read, other regions count at twice the table's price, so that limits are not exceeded.
If AWS lists no prices in dollars, the operator must set them. Spot counts at the on-demand price,
which is never lower, unless the operator sets a factor.
"""

import csv
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache
from importlib.resources import files
from types import MappingProxyType

from autoscaler.model.catalogue import Architecture, CapacityType, OperatingSystem
from autoscaler.model.wording import counted

PRICES_DATED = "2026-07-20"
"""When the table's prices were read from AWS's price list."""

PRICES_REGION = "us-east-1"
"""The region of the table's prices."""

ELSEWHERE = 2.0
"""The factor on the table's price in another region, until AWS's price is read. The most expensive
commercial region known, sa-east-1, has about 1.7."""

WINDOWS_DOLLARS_PER_VCPU_HOUR = 0.046
"""Added to the Linux price (EC2 User Guide, "Optimize CPUs for License-Included instances"). The `t`
families and a few older types differ."""


class InstanceTypeError(ValueError):
    """An instance type that cannot be used: `what` names it, and `fix` says what to do."""

    def __init__(self, what: str, fix: str = "use another instance type") -> None:
        super().__init__(f"{what}; {fix}")
        self.what = what
        self.fix = fix


@dataclass(frozen=True, slots=True)
class Prices:
    """The prices of machines in one region, from the operator and from AWS.

    `overrides` are the operator's Linux on-demand dollars an hour by type, and come first. `listed`
    are AWS's by type and system, with the Windows licence, and come before the table. `spot_factor`
    is the spot price as a part of the on-demand price.
    """

    region: str = PRICES_REGION
    overrides: Mapping[str, float] = field(default_factory=dict)
    spot_factor: float = 1.0
    listed: Mapping[tuple[str, OperatingSystem], float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class InstanceType:
    """One row of the table. `linux_dollars_per_hour` is None if AWS publishes no price.

    The GPUs are those of `GpuInfo` (EC2 API, DescribeInstanceTypes): also AMD's and Habana's, but no chips of
    `NeuronInfo` (Inferentia, Trainium), FPGAs or media accelerators. A type that has a part of a GPU has
    `gpu_count` 0.
    """

    name: str
    vcpus: int
    memory_mib: int
    arch: Architecture
    gpu_count: int
    gpu_maker: str
    gpu_name: str
    linux_dollars_per_hour: float | None

    def dollars_per_hour(
        self,
        os: OperatingSystem,
        prices: Prices | None = None,
        capacity_type: CapacityType = CapacityType.ON_DEMAND,
    ) -> float:
        """Return the price of one machine, by default at the prices of us-east-1. Raises InstanceTypeError.

        The Windows licence has no spot discount. A machine in a capacity block costs nothing: AWS billed
        the block when it was bought (EC2 User Guide, "Capacity Blocks pricing and billing").
        """
        if capacity_type is CapacityType.CAPACITY_BLOCK:
            return 0.0
        prices = prices or Prices()
        windows = os is OperatingSystem.WINDOWS
        licence = self.vcpus * WINDOWS_DOLLARS_PER_VCPU_HOUR if windows else 0.0
        listed = prices.listed.get((self.name, os))
        if listed is None or self.name in prices.overrides:
            dollars = self._linux(prices)
        else:
            dollars = max(0.0, listed - licence)
        if capacity_type is CapacityType.SPOT:
            dollars *= prices.spot_factor
        return round(dollars + licence, 6)

    def _linux(self, prices: Prices) -> float:
        known = prices.overrides.get(self.name)
        if known is None and prices.region == PRICES_REGION:
            known = self.linux_dollars_per_hour
        elif known is None and pricing_region(prices.region) is not None:
            table = self.linux_dollars_per_hour
            known = ELSEWHERE * table if table is not None else None
        if known is not None:
            return known
        there = ""
        if self.linux_dollars_per_hour is not None:
            there = f" (in {PRICES_REGION} it is {self.linux_dollars_per_hour:g})"
        raise InstanceTypeError(
            f"no price is known for instance type {self.name} in {prices.region}{there}",
            f"add its Linux on-demand price as prices: {{{self.name}: DOLLARS_PER_HOUR}}",
        )


@cache
def instance_types() -> Mapping[str, InstanceType]:
    """Return the whole table by name."""
    text = files(__package__).joinpath("data/instance_types.csv").read_text(encoding="utf-8")
    rows = csv.DictReader(text.splitlines())
    return MappingProxyType({row["instance_type"]: _parse(row) for row in rows})


def instance_type(name: str) -> InstanceType:
    """Return one type. Raises InstanceTypeError if the table does not have it."""
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
        gpu_maker=row["gpu_maker"],
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


_SPOT_P = MappingProxyType({"p2": "P", "p3": "P", "p4": "P"})
"""Generations of P that share a spot quota."""


def quota_family(name: str) -> str:
    """Return the family whose vCPU quota a type counts against. Raises InstanceTypeError."""
    for family, prefixes in _FAMILIES:
        if name.startswith(prefixes):
            return family
    raise InstanceTypeError(f"instance type {name} has no known quota family")


@lru_cache(maxsize=4096)
def quota(name: str, capacity_type: CapacityType) -> str:
    """Return the quota's name, such as `on-demand/G and VT`: spot and on-demand count separately.

    All P types share one on-demand quota. For spot, P4, P3 and P2 share one, and P5 has its own. AWS
    documents none for later generations (instance types guide, "EC2 instance type quotas"). Each of
    them gets its own quota name here, without a limit until the operator sets one.
    """
    family = quota_family(name)
    generation = re.match("p[0-9]+", name)
    if capacity_type is CapacityType.SPOT and family == "P" and generation:
        family = _SPOT_P.get(generation[0], generation[0].upper())
    return f"{capacity_type.value}/{family}"


_GPU_MEMORY_MIB = MappingProxyType(
    {
        **dict.fromkeys(("g4ad",), 8192),
        **dict.fromkeys(("g4dn", "g5g"), 16384),
        **dict.fromkeys(("g5", "g6", "gr6"), 22888),
        **dict.fromkeys(("g7", "p3dn"), 32768),
        "p4d": 40960,
        "g6e": 45776,
        **dict.fromkeys(("p4de", "p5"), 81920),
        "g7e": 98304,
        **dict.fromkeys(("p5e", "p5en"), 144384),
        "p6-b200": 183359,
        "p6-b300": 275040,
    }
)
"""Memory of one GPU by family: the label `instance-gpu-memory` of aws/karpenter-provider-aws at 1d92708
(website/content/en/preview/reference/instance-types.md), which is GpuInfo.Gpus[].MemoryInfo.SizeInMiB."""


def gpu_memory_gib(instance_type: str) -> int | None:
    """Return the memory of one GPU of a type in GiB, rounded up, or None if it is not known.

    The driver reports no more.
    """
    mebibytes = _GPU_MEMORY_MIB.get(instance_type.partition(".")[0])
    return None if mebibytes is None else -(-mebibytes // 1024)


def quota_names() -> frozenset[str]:
    """Return the names that an operator may use: families, and quotas that are not of a family."""
    families = frozenset(quota_family(name) for name in instance_types())
    kinds = CapacityType.SPOT, CapacityType.ON_DEMAND
    quotas = {quota(name, kind) for name in instance_types() for kind in kinds}
    return families | {one for one in quotas if one.partition("/")[2] not in families}


ORDINARY_FIRST_CARD = frozenset({"p6-b300.48xlarge"})
"""Types whose network card 0 takes no EFA: DescribeInstanceTypes lists only `interface` among its
NetworkInfo.NetworkCards[].InterfaceTypes. Card 0 has an ordinary interface there, and the EFAs are on the
cards from 1 on (aws/aws-parallelcluster#7143)."""


@cache
def efa_interfaces() -> Mapping[str, int]:
    """Return the maximum number of EFA interfaces, by instance type; types without EFA are missing.

    The table `data/efa_interfaces.csv` is `vpc.amazonaws.com/efa` in Karpenter's list of instance types
    (aws/karpenter-provider-aws at 1d92708, website/content/en/preview/reference/instance-types.md), which is
    NetworkInfo.EfaInfo.MaximumEfaInterfaces of DescribeInstanceTypes.
    """
    text = files(__package__).joinpath("data/efa_interfaces.csv").read_text(encoding="utf-8")
    rows = csv.DictReader(text.splitlines())
    return MappingProxyType({row["instance_type"]: int(row["interfaces"]) for row in rows})


def efa_problem(instance_type: str, wanted: int) -> tuple[str, str] | None:
    """Return why a type cannot have this many EFA interfaces, and the fix; None if it can."""
    most = efa_interfaces().get(instance_type, 0)
    if most >= wanted:
        return None
    if most == 0:
        return f"{instance_type} supports no EFA", "remove efa_interfaces, or name another type"
    what = (
        f"{instance_type} supports {counted(most, 'EFA interface')}, and efa_interfaces is {wanted}"
    )
    return what, f"write efa_interfaces: {most}, or name another type"


_NOT_IN_DOLLARS = ("cn-", "eusc-")
"""China's partition lists prices in yuan, the European Sovereign Cloud in euros."""

_NO_PRICING_API = (*_NOT_IN_DOLLARS, "us-gov-", "us-iso", "eu-iso")
"""Also GovCloud and the isolated partitions: their credentials are not valid at other endpoints."""


def pricing_region(region: str) -> str | None:
    """Return the region whose Pricing API lists this region's prices in dollars, or None.

    The Price List Query API has endpoints in us-east-1, eu-central-1, ap-south-1 and cn-northwest-1 (AWS
    Billing User Guide, "Using the AWS Price List Query API"; botocore's endpoints). The choice is the same as
    Karpenter's (karpenter-provider-aws, pkg/providers/pricing).
    """
    if region.startswith(_NO_PRICING_API):
        return None
    if region.startswith("ap-"):
        return "ap-south-1"
    return "eu-central-1" if region.startswith("eu-") else "us-east-1"


def has_spot_dollars(region: str) -> bool:
    """Return True if DescribeSpotPriceHistory answers in dollars in this region."""
    return not region.startswith(_NOT_IN_DOLLARS)


def capacity_type_of(lifecycle: str) -> CapacityType:
    """Return the capacity type of EC2's `InstanceLifecycle`, which is empty for on-demand."""
    known = {kind.value: kind for kind in CapacityType}
    return known.get(lifecycle, CapacityType.ON_DEMAND)
