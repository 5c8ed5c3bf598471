"""The quotas under which a SKU's machines are launched, in numbers."""

from collections.abc import Iterator
from dataclasses import dataclass

from autoscaler.model.fleet import Fleet
from autoscaler.model.identifiers import SkuName


@dataclass(frozen=True, slots=True)
class QuotaView:
    """One quota of an account, in its own units (on EC2: vCPUs).

    `used` is what this fleet's machines use, those of all SKUs. `limit` is what they may use, None if it is
    not known. One machine of the SKU uses `least` to `most` units, depending on its offering.
    """

    quota: str
    used: int
    limit: int | None
    least: int
    most: int

    @property
    def is_full(self) -> bool:
        """Return whether no machine of the SKU fits any more, whatever its offering."""
        return self.limit is not None and self.limit - self.used < self.least


def use_of(fleet: Fleet, quota: str) -> tuple[int, int | None]:
    """Return what this fleet's machines use of a quota, and what they may use, or None if it is not known."""
    configured = fleet.catalogue.limits.quotas.get(quota)
    return fleet.usage.by_quota.get(quota, 0), fleet.quotas.get(quota, configured)


def quotas_of(fleet: Fleet, sku: SkuName) -> Iterator[QuotaView]:
    """Yield the quotas of the SKU's offerings, in their order. O(offerings of the SKU)."""
    units: dict[str, set[int]] = {}
    known = fleet.catalogue.skus.get(sku)
    for option in known.launch_options if known is not None else ():
        for offering in option.offerings:
            units.setdefault(offering.quota_key, set()).add(offering.quota_units)
    for quota, of_one in units.items():
        used, limit = use_of(fleet, quota)
        if any(of_one) and (used or limit is not None):
            yield QuotaView(quota, used, limit, min(of_one), max(of_one))
