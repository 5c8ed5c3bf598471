"""The settings of the EC2 provider: region, subnets, SKUs, prices, quotas and rate limits."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from autoscaler.model.catalogue import Architecture, CapacityType, OperatingSystem, Rate
from autoscaler.model.identifiers import (
    InstallationId,
    Installations,
    ProviderName,
    Seconds,
    SkuName,
)
from autoscaler.providers.ec2.instance_types import Prices

MAX_USER_DATA_BYTES = 16_384
"""EC2's limit on user data before base64 (EC2 User Guide, "User data")."""

MAX_TAG_VALUE = 256
"""EC2's limit on a tag's value, in characters."""


@dataclass(frozen=True, slots=True)
class CanaryImage:
    """A second image for `percent` (0 to 100) of a SKU's launch requests."""

    image_name: str
    image_owner: str
    percent: float


@dataclass(frozen=True, slots=True)
class Ec2Option:
    """One launch option of a SKU: instance types and capacity types, each in order of preference.

    `efa_interfaces` is the number of Elastic Fabric Adapters of each machine. They are launched into the
    placement group and the capacity reservation, and nowhere else.
    """

    instance_types: tuple[str, ...] = ()
    capacity_types: tuple[CapacityType, ...] = ()
    efa_interfaces: int = 0
    placement_group: str | None = None
    capacity_reservation: str | None = None

    @property
    def target(self) -> str:
        """What the machines are launched into (`Offering.target`)."""
        return "/".join(filter(None, (self.capacity_reservation, self.placement_group)))


@dataclass(frozen=True, slots=True)
class VolumeOptions:
    """The options of a SKU's disks; None keeps EC2's default. `throughput` and `initialization_rate` are in
    MiB/s. `kms_key` is for all disks, the others are for the root disk."""

    iops: int | None = None
    throughput: int | None = None
    initialization_rate: int | None = None
    kms_key: str | None = None


@dataclass(frozen=True, slots=True)
class Ec2Sku:
    """The EC2 settings of one SKU's machines.

    `image_name` is a glob for DescribeImages, `image_owner` an account id or an owner alias of EC2.
    `disk_gb` is the minimum size of the root volume in GiB; `None` keeps the image's size.
    `tags` replace the provider's of the same key.
    `user_data` is plain text without a secret. `options` are the SKU's launch options at this provider,
    by their position in the SKU's `on`.
    """

    name: SkuName
    os: OperatingSystem
    arch: Architecture
    image_name: str
    image_owner: str
    disk_gb: int | None = None
    volume: VolumeOptions = VolumeOptions()
    tags: Mapping[str, str] = field(default_factory=dict)
    user_data: str = field(default="", repr=False)
    canary: CanaryImage | None = None
    options: Mapping[int, Ec2Option] = field(default_factory=dict)

    def __post_init__(self) -> None:
        size = len(self.user_data.encode())
        if size > MAX_USER_DATA_BYTES:
            raise ValueError(
                f"user data of {self.name} has {size} bytes; EC2 allows {MAX_USER_DATA_BYTES}"
            )
        if len(self.name) > MAX_TAG_VALUE:
            raise ValueError(f"the SKU's name has more than {MAX_TAG_VALUE} characters")


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long one request to AWS may take, in real seconds.

    `answer` limits the whole call in the worker process, with its credentials. If a call exceeds it,
    the process is killed, and the outcome of the call is unknown.
    """

    connect: Seconds = 5.0
    read: Seconds = 60.0
    answer: Seconds = 120.0


@dataclass(frozen=True, slots=True)
class Ec2Settings:
    """One provider in one region and account.

    An `account` of None is read from STS.
    `prices` are Linux on-demand dollars an hour by instance type, and replace AWS's and the table's;
    `spot_price_factor` is the spot price as a part of the on-demand price.
    `quotas` are vCPUs by quota name, such as `spot/G and VT`, and replace those of Service Quotas.
    `request_buckets` and `resource_buckets` replace EC2's published limits by API name.
    `offered` are the instance types of the SKUs, with their system, by capacity type. All of them
    are also under on-demand, because limits count on-demand prices.
    `public_ip` is whether machines get a public IPv4 address; None: as their subnet says.
    `tags` are the operator's, for everything that is created.
    `installations` has the id for tags, and the former ids, whose unused resources are deleted too.
    `identity_certificates` are PEM files with certificates that are trusted besides AWS's own;
    `interruption_queue` is the URL of the SQS queue with EventBridge's events. Without
    `rebalance_recommendations`, those events are ignored.
    """

    name: ProviderName
    fleet: str
    installations: Installations
    region: str
    subnets: tuple[str, ...]
    security_groups: tuple[str, ...]
    skus: Mapping[SkuName, Ec2Sku]
    public_ip: bool | None = None
    instance_profile: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    identity_certificates: tuple[Path, ...] = ()
    interruption_queue: str | None = None
    rebalance_recommendations: bool = False
    account: str | None = None
    prices: Mapping[str, float] = field(default_factory=dict)
    spot_price_factor: float = 1.0
    offered: Mapping[CapacityType, frozenset[tuple[str, OperatingSystem]]] = field(
        default_factory=dict
    )
    quotas: Mapping[str, int] = field(default_factory=dict)
    request_buckets: Mapping[str, Rate] = field(default_factory=dict)
    resource_buckets: Mapping[str, Rate] = field(default_factory=dict)

    def after_adoption(self, taken: InstallationId) -> "Ec2Settings":
        """Return these settings with another installation's id."""
        return replace(self, installations=self.installations.after_adoption(taken))

    @property
    def price_list(self) -> Prices:
        """The prices of machines in this region."""
        return Prices(self.region, self.prices, self.spot_price_factor)

    def __post_init__(self) -> None:
        if not self.subnets:
            raise ValueError(f"provider {self.name} has no subnets; add at least one")
        for text in (self.fleet, *self.installations.all):
            if not 0 < len(text) <= MAX_TAG_VALUE:
                raise ValueError(
                    "the fleet's name and the installation's id must have 1 to "
                    f"{MAX_TAG_VALUE} characters, to fit into a tag"
                )
