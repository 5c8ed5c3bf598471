"""Which zone sells which instance type, and DescribeInstanceTypeOfferings.

Moto brings AWS's own list by zone (us-east-1e sells few types); a fault takes a type out of a zone.
The lab sells a type that is in no zone of that list everywhere, but does not list it.
"""

import gzip
import json
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from lab.ec2.faults import Faults
from lab.ec2.filters import Filters
from lab.ec2.instances import Pool
from lab.ec2.paging import page_of
from lab.ec2.query import Ec2Error, Tree, answer, element

FILTERS = frozenset({"instance-type", "location"})


@cache
def _listed(region: str) -> dict[str, frozenset[str]]:
    """Return, by instance type, the zones of a region that sell it."""
    # Find moto without importing it, which takes half a second.
    moto = find_spec("moto")
    (root,) = (moto.submodule_search_locations if moto is not None else None) or ("",)
    folder = Path(root, "ec2/resources/instance_type_offerings/availability-zone")
    found: dict[str, set[str]] = {}
    for one in json.loads(gzip.decompress((folder / f"{region}.json.gz").read_bytes())):
        found.setdefault(one["InstanceType"], set()).add(one["Location"])
    return {name: frozenset(zones) for name, zones in found.items()}


class Sales:
    """The instance types that the zones of one region sell."""

    def __init__(self, region: str, faults: Faults) -> None:
        self._region = region
        self._faults = faults

    def check(self, pool: Pool, code: str) -> None:
        """Raise Ec2Error with this code if the pool's zone does not sell its type."""
        listed = _listed(self._region).get(pool.instance_type, frozenset({pool.zone}))
        zones = listed - self._faults.unsold(pool.instance_type)
        if pool.zone in zones:
            return
        message = (
            f"Your requested instance type ({pool.instance_type}) is not supported in your "
            f"requested Availability Zone ({pool.zone})."
        )
        if zones:
            message += (
                " Please retry your request by not specifying an Availability Zone or choosing "
                f"{', '.join(sorted(zones))}."
            )
        raise Ec2Error(code, message)

    def describe(self, params: Tree) -> str:
        """Answer DescribeInstanceTypeOfferings for zones. Raises Ec2Error."""
        if params.text("LocationType", "region") != "availability-zone":
            raise Ec2Error("UnsupportedOperation", "The lab lists what zones sell, not regions.")
        filters = Filters(params, FILTERS)
        offered = [
            (instance_type, zone)
            for instance_type, zones in sorted(_listed(self._region).items())
            for zone in sorted(zones - self._faults.unsold(instance_type))
            if filters.admit({"instance-type": instance_type, "location": zone}, {})
        ]
        numbers = {one: number for number, one in enumerate(offered)}
        page, next_token = page_of(params, offered, numbers.__getitem__)
        shown = [
            {"instanceType": one[0], "locationType": "availability-zone", "location": one[1]}
            for one in page
        ]
        return answer(
            "DescribeInstanceTypeOfferings",
            element("instanceTypeOfferingSet", shown) + next_token,
        )
