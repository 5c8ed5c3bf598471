"""How many Elastic Fabric Adapters each instance type supports.

The table is `data/efa_interfaces.csv`: `vpc.amazonaws.com/efa` in Karpenter's list of instance types
(aws/karpenter-provider-aws at 1d92708, website/content/en/preview/reference/instance-types.md), which is
NetworkInfo.EfaInfo.MaximumEfaInterfaces of DescribeInstanceTypes. Types that it lacks support none.
"""

import csv
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from types import MappingProxyType

from autoscaler.model.wording import counted

ORDINARY_FIRST_CARD = frozenset({"p6-b300.48xlarge"})
"""Types whose network card 0 takes no EFA: DescribeInstanceTypes lists only `interface` among its
NetworkInfo.NetworkCards[].InterfaceTypes. Card 0 has an ordinary interface there, and the EFAs are on the
cards from 1 on (aws/aws-parallelcluster#7143)."""


@cache
def efa_interfaces() -> Mapping[str, int]:
    """Return the maximum number of EFA interfaces, by instance type; types without EFA are missing."""
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
