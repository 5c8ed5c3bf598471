"""The keys of an EC2 provider and its launch options in fleet.yaml, with their defaults."""

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

from autoscaler.config import shapes
from autoscaler.config.scalars import Matching
from autoscaler.config.settings import ProviderSection
from autoscaler.config.shapes import Count, Dollars, FilePath, Name, Positive, Section
from autoscaler.config.sku_settings import LaunchOptionSettings
from autoscaler.config.tags import Tags
from autoscaler.model.catalogue import CapacityType
from autoscaler.model.prices import READ_AS

Region = Annotated[
    str, Matching("[a-z]{2,4}(-[a-z]+)+-[0-9]{1,2}", "an AWS region", "write one such as us-east-1")
]
SubnetId = Annotated[
    str, Matching("subnet-[0-9a-z]+", "a subnet id", "write one such as subnet-0123456789abcdef0")
]
SecurityGroupId = Annotated[
    str, Matching("sg-[0-9a-z]+", "a security group id", "write one such as sg-0123456789abcdef0")
]
CapacityReservation = Annotated[
    str,
    Matching(
        "cr-[0-9a-z]+", "a capacity reservation's id", "write one such as cr-0123456789abcdef0"
    ),
]
PlacementGroup = Annotated[
    str,
    Matching("[!-~]([ -~]*[!-~])?", "a placement group", "write its name, in ASCII", maximum=255),
]
Account = Annotated[
    str, Matching("[0-9]{12}", "an AWS account id", "write its 12 digits in quotes")
]
Quota = Annotated[
    str,
    Matching(
        "((spot|on-demand)/)?[A-Za-z][A-Za-z0-9 -]*",
        "a quota",
        "write a family, such as G and VT, or on-demand/G and VT",
    ),
]


class Ec2OptionKeys(LaunchOptionSettings):
    """The keys of a launch option on EC2."""

    instance_types: Annotated[tuple[shapes.InstanceType, ...], Field(min_length=1)] | None = None
    """EC2 instance types in order of preference. A SKU has at most 150; all SKUs have at most 5000 together."""
    capacity: Annotated[tuple[CapacityType, ...], Field(min_length=1)] = (CapacityType.ON_DEMAND,)
    """`spot`, `on-demand` or both, in order of preference; or `capacity-block` (EC2)."""
    efa_interfaces: Annotated[int, Field(ge=0, le=64)] = 0
    """The number of Elastic Fabric Adapters of each machine, one for each network card (EC2, Linux)."""
    capacity_reservation: CapacityReservation | None = None
    """The id of a capacity reservation: its machines, and no others, are launched (EC2)."""
    placement_group: PlacementGroup | None = None
    """The name of an existing placement group for the machines (EC2)."""


class TokenBucket(Section):
    """The token bucket of one EC2 API."""

    burst: Positive
    """Maximum number of tokens, which may be used at once."""
    per_second: Annotated[float, Field(gt=0, le=1e6)]
    """Tokens that are added each second."""


class Ec2Section(ProviderSection):
    """Machines on EC2, in one region."""

    title = "EC2"
    place = frozenset({"region", "account"})

    region: Region
    """The AWS region."""
    subnets: Annotated[tuple[SubnetId, ...], Field(min_length=1)]
    """The subnets of the machines; several of one zone share its machines."""
    security_groups: Annotated[tuple[SecurityGroupId, ...], Field(min_length=1)]
    """The security groups of the machines."""
    public_ip: bool | None = None
    """Whether machines get a public IPv4 address, which AWS bills; default: as their subnet says."""
    instance_profile: Name | None = None
    """The name of the machines' instance profile; default: none."""
    tags: Tags = Field(default_factory=dict)
    """Tags of everything that is created: machines, disks, fleets and launch templates."""
    identity_certificates: tuple[FilePath, ...] = ()
    """PEM files with further certificates that sign instance identity documents, beside AWS's own."""
    interruption_queue: shapes.SecureUrl | None = None
    """The URL of the SQS queue with EventBridge's events; without it there are no interruption notices."""
    rebalance_recommendations: bool = False
    """Whether a rebalance recommendation counts as a spot interruption: EC2 sends it early, or for nothing."""
    account: Account | None = None
    """The account of the machines; default: that of the credentials."""
    prices: Mapping[shapes.InstanceType, Dollars] = Field(default_factory=dict)
    """Linux on-demand prices in dollars an hour by instance type; they replace AWS's prices."""
    spot_price_factor: Annotated[float, Field(gt=0, le=1)] = 1.0
    """The part of the on-demand price at which a spot machine counts."""
    quotas: Mapping[Quota, Count] = Field(default_factory=dict)
    """vCPUs by family (`G and VT`: spot and on-demand each) or quota (`spot/G and VT`)."""
    request_buckets: Mapping[Name, TokenBucket] = Field(default_factory=dict)
    """The account's limits of requests by API (`CreateFleet`), if they are not EC2's usual ones."""
    resource_buckets: Mapping[Name, TokenBucket] = Field(default_factory=dict)
    """The account's limits of machines in requests by API (`CreateFleet`)."""

    def describe(self, option: LaunchOptionSettings) -> str:
        """Return the instance types and capacity types, and what the machines are launched into."""
        assert isinstance(option, Ec2OptionKeys)
        types = f"{', '.join(option.instance_types or ())} ({', '.join(option.capacity)})"
        into = filter(None, (option.capacity_reservation, option.placement_group))
        return " in ".join((types, *into))

    def quota_limits(self) -> Mapping[str, int]:
        """Return the quotas in vCPUs. A family without a capacity type applies to each of them."""
        found: dict[str, int] = {}
        # The narrower key replaces the wider one, in any order.
        for name, vcpus in sorted(self.quotas.items(), key=lambda item: "/" in item[0]):
            names = (name,) if "/" in name else tuple(f"{kind}/{name}" for kind in READ_AS)
            found |= dict.fromkeys(names, vcpus)
        return found
