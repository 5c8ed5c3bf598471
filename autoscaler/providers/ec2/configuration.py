"""The keys of an EC2 provider and its launch options in fleet.yaml, with their defaults."""

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

from autoscaler.config.settings.fleet import ProviderSection
from autoscaler.config.settings.shapes import (
    Count,
    Dollars,
    FilePath,
    InstanceType,
    Name,
    Positive,
    Section,
    SecureUrl,
)
from autoscaler.config.settings.sku import LaunchOptionSettings, SkuSettings
from autoscaler.model.catalogue import CapacityType
from autoscaler.model.prices_and_quotas import READ_AS
from autoscaler.providers.ec2 import other_names
from autoscaler.providers.ec2.shapes import (
    Account,
    CapacityReservation,
    KmsKey,
    PlacementGroup,
    Quota,
    Region,
    SecurityGroupId,
    SubnetId,
    Tags,
)

KEY = "ec2"
"""The key of an EC2 provider's section."""


class Ec2OptionKeys(LaunchOptionSettings):
    """The keys of a launch option on EC2."""

    instance_types: Annotated[tuple[InstanceType, ...], Field(min_length=1)] | None = None
    """EC2 instance types in order of preference. A SKU has at most 150; all SKUs have at most 5000 together."""
    capacity: Annotated[tuple[CapacityType, ...], Field(min_length=1)] = (CapacityType.ON_DEMAND,)
    """`spot`, `on-demand` or both, in order of preference; or `capacity-block` (EC2)."""
    efa_interfaces: Annotated[int, Field(ge=0, le=64)] = 0
    """The number of Elastic Fabric Adapters of each machine, one for each network card (EC2, Linux)."""
    capacity_reservation: CapacityReservation | None = None
    """The id of a capacity reservation: its machines, and no others, are launched (EC2)."""
    placement_group: PlacementGroup | None = None
    """The name of an existing placement group for the machines (EC2)."""

    @property
    def target(self) -> str:
        """What the machines are launched into, and nowhere else (`Offering.target`)."""
        return "/".join(filter(None, (self.capacity_reservation, self.placement_group)))


class Volume(Section):
    """The performance and encryption of the machine's disks. The type of every disk is gp3."""

    iops: Annotated[int, Field(ge=3000, le=80_000)] | None = None
    """IOPS of the root disk, at most 500 for each GiB; default: 3000, which costs nothing extra."""
    throughput: Annotated[int, Field(ge=125, le=2000)] | None = None
    """Throughput of the root disk in MiB/s, at most a quarter of its IOPS; default: 125."""
    initialization_rate: Annotated[int, Field(ge=100, le=300)] | None = None
    """MiB/s at which EBS fills the root disk from its snapshot; default: blocks are read on first use."""
    kms_key: KmsKey | None = None
    """The KMS key of all disks: an id, `alias/NAME` or an ARN; default: the region's default key for EBS."""


class Ec2SkuKeys(SkuSettings):
    """The keys of a SKU with launch options on EC2."""

    boot_script_file: FilePath | None = None
    """A script that runs as root before the agent, for at most 10 minutes (EC2, Linux). Jobs can read it."""
    volume: Volume | None = None
    """The performance and encryption of the disks (EC2)."""
    tags: Tags = Field(default_factory=dict)
    """Tags of everything that is created for the SKU, in place of the provider's with the same keys (EC2)."""


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
    others = other_names.EC2

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
    interruption_queue: SecureUrl | None = None
    """The URL of the SQS queue with EventBridge's events; without it there are no interruption notices."""
    rebalance_recommendations: bool = False
    """Whether a rebalance recommendation counts as a spot interruption: EC2 sends it early, or for nothing."""
    account: Account | None = None
    """The account of the machines; default: that of the credentials."""
    prices: Mapping[InstanceType, Dollars] = Field(default_factory=dict)
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
