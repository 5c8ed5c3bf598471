"""vCPU quotas by family, and how much of them the lab's instances use.

Every quota is unlimited until it is set.

Codes and names: Service Quotas, service `ec2`. On-demand counts running instances (EC2 User Guide, "On-Demand
Instance quotas"). Spot counts running and requested instances ("Spot Instance quotas").
"""

import re
from dataclasses import dataclass

from autoscaler.model.catalogue import CapacityType
from lab.ec2.instances import Instances, Pool
from lab.ec2.query import Ec2Error

BOUNDLESS = 1_000_000
"""vCPUs that Service Quotas shows for a quota that was not set. The lab does not enforce them."""
NO_QUOTA = {
    CapacityType.ON_DEMAND: (
        "VcpuLimitExceeded",
        "You have requested more vCPU capacity than your current vCPU limit of {limit} allows for "
        "the instance bucket that the specified instance type belongs to.",
    ),
    CapacityType.SPOT: ("MaxSpotInstanceCountExceeded", "Max spot instance count exceeded"),
}
_SIZE = re.compile(r"(\d*)xlarge")
_ODD_SIZES = {"c4.8xlarge": 36, "d2.8xlarge": 36}


@dataclass(frozen=True, slots=True)
class Quota:
    """One of the account's quotas. `families` are the prefixes of its instance types' names."""

    code: str
    name: str
    capacity_type: CapacityType
    families: tuple[str, ...]


def _on_demand(families: str, code: str, name: str) -> Quota:
    names = tuple(families.split())
    return Quota(code, f"Running On-Demand {name}", CapacityType.ON_DEMAND, names)


def _spot(families: str, code: str, name: str) -> Quota:
    names = tuple(families.split())
    return Quota(code, f"All {name} Spot Instance Requests", CapacityType.SPOT, names)


def _pair(families: str, on_demand: tuple[str, str], spot: tuple[str, str]) -> tuple[Quota, Quota]:
    return _on_demand(families, *on_demand), _spot(families, *spot)


QUOTAS = (
    # The first that fits counts: longer beginnings stand before shorter ones.
    *_pair("inf", ("L-1945791B", "Inf instances"), ("L-B5D1601B", "Inf")),
    *_pair("trn", ("L-2C3B7624", "Trn instances"), ("L-6B0D517C", "Trn")),
    *_pair("dl", ("L-6E869C2A", "DL instances"), ("L-85EED4F7", "DL")),
    *_pair("g vt", ("L-DB2E81BA", "G and VT instances"), ("L-3819A6DF", "G and VT")),
    _on_demand("p", "L-417A185B", "P instances"),
    # AWS names no spot quota for P6.
    _spot("p2 p3 p4", "L-7212CCBC", "P4, P3 and P2"),
    _spot("p5", "L-C4BD4855", "P5"),
    *_pair("f", ("L-74FC7D96", "F instances"), ("L-88CF9481", "F")),
    *_pair("x", ("L-7295265B", "X instances"), ("L-E3A00192", "X")),
    *_pair(
        "a c d h i m r t z",
        ("L-1216C47A", "Standard (A, C, D, H, I, M, R, T, Z) instances"),
        ("L-34B43A08", "Standard (A, C, D, H, I, M, R, T, Z)"),
    ),
)
_CODES = frozenset(quota.code for quota in QUOTAS)
_WITHOUT_QUOTA = ("hpc", "u-", "u7")


def quota_of(instance_type: str, capacity_type: CapacityType) -> Quota | None:
    """Return the quota that a type counts against, or None if the lab does not have it."""
    if instance_type.startswith(_WITHOUT_QUOTA):
        return None
    return next(
        (
            quota
            for quota in QUOTAS
            if quota.capacity_type is capacity_type and instance_type.startswith(quota.families)
        ),
        None,
    )


def vcpus(instance_type: str) -> int | None:
    """Return a type's vCPUs by its size: 2 for large, 4 for each xlarge; None if the size is unknown."""
    size = instance_type.partition(".")[2]
    fits = _SIZE.fullmatch(size)
    if instance_type in _ODD_SIZES:
        return _ODD_SIZES[instance_type]
    if fits is not None and not instance_type.startswith(_WITHOUT_QUOTA):
        return 4 * int(fits[1] or 1)
    return 2 if size == "large" else None


class Quotas:
    """The account's quotas. With `denied` Service Quotas does not show them; EC2 still enforces them."""

    def __init__(self, instances: Instances) -> None:
        self.denied = False
        self._instances = instances
        self._limits: dict[str, int] = {}

    def set(self, code: str, limit: int | None) -> None:
        """Set a quota, by its code, in vCPUs. None is unlimited. Raises KeyError for an unknown code."""
        if code not in _CODES:
            raise KeyError(code)
        if limit is None:
            self._limits.pop(code, None)
        else:
            self._limits[code] = limit

    def value(self, code: str) -> int:
        """Return what Service Quotas shows for a quota, in vCPUs."""
        return self._limits.get(code, BOUNDLESS)

    def used(self, code: str) -> int:
        """Return the vCPUs that pending and running instances use of a quota now. Raises Ec2Error."""
        return sum(
            _counted(pool.instance_type) * machines
            for pool, machines in self._instances.in_use()
            if (quota := quota_of(pool.instance_type, pool.capacity_type)) and quota.code == code
        )

    def room(self, pool: Pool) -> tuple[int, tuple[str, str]] | None:
        """Return how many more instances fit (None: unlimited), and the error code for any more.

        Raises Ec2Error for a type whose vCPUs are not known.
        """
        quota = quota_of(pool.instance_type, pool.capacity_type)
        limit = None if quota is None else self._limits.get(quota.code)
        if quota is None or limit is None:
            return None
        code, message = NO_QUOTA[pool.capacity_type]
        left = max(0, limit - self.used(quota.code)) // _counted(pool.instance_type)
        return left, (code, message.format(limit=limit))


def _counted(instance_type: str) -> int:
    count = vcpus(instance_type)
    if count is None:
        text = f"The lab cannot count the vCPUs of {instance_type}."
        raise Ec2Error("UnsupportedOperation", text)
    return count
