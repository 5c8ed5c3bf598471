"""Launches instances: what launch data mean, how many instances a pool provides, and RunInstances.

Each launch uses one pool; `fleets` spreads a request over pools. Refuses parameters that the lab does not
implement, and ignores none.
"""

import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from autoscaler.model.catalogue import CapacityType
from lab.ec2.disks import root_disk
from lab.ec2.faults import NO_CAPACITY, NO_SPOT_ROLE, Faults
from lab.ec2.images import Images
from lab.ec2.instances import Instance, Instances, LaunchSpecification, Pool, Subnet
from lab.ec2.interfaces import check_adapters, check_interfaces, public_address
from lab.ec2.launch_data import LaunchData, check_tag_count, launch_data
from lab.ec2.lifecycle import Lifecycle
from lab.ec2.placement_groups import PlacementGroups
from lab.ec2.query import Ec2Error, Tree, whole_number
from lab.ec2.quotas import Quotas
from lab.ec2.reservations import WRONG_MARKET, Reservations
from lab.ec2.sales import Sales
from lab.ec2.subnets import Subnets
from lab.ec2.templates import LaunchTemplates
from lab.ec2.throttling import Throttling

MAX_USER_DATA = 16 * 1024
"""The maximum size in bytes before base64 (EC2 User Guide, instance user data)."""
NETWORK = 10 << 24
NO_ADDRESSES = (
    "InsufficientFreeAddressesInSubnet",
    "The specified subnet does not have enough free addresses to satisfy the request.",
)
Bound = tuple[int, tuple[str, str]]
"""The number of instances that can be launched, and the code and message of the error for any more."""
RUN_PARAMETERS = frozenset(
    {
        "Action",
        "Version",
        "BlockDeviceMapping",
        "CapacityReservationSpecification",
        "ClientToken",
        "DryRun",
        "EbsOptimized",
        "IamInstanceProfile",
        "ImageId",
        "InstanceInitiatedShutdownBehavior",
        "InstanceMarketOptions",
        "InstanceType",
        "KeyName",
        "LaunchTemplate",
        "MaxCount",
        "MetadataOptions",
        "MinCount",
        "NetworkInterface",
        "Placement",
        "SecurityGroupId",
        "SubnetId",
        "TagSpecification",
        "UserData",
    }
)


@dataclass(frozen=True, slots=True)
class Order:
    """A number of equal instances to launch from one pool."""

    specification: LaunchSpecification
    capacity_type: CapacityType
    client_token: str
    system_tags: dict[str, str] = field(default_factory=dict)

    @property
    def pool(self) -> Pool:
        """The pool whose capacity the order uses."""
        specification = self.specification
        return Pool(specification.instance_type, specification.subnet.zone, self.capacity_type)


@dataclass(slots=True)
class Launcher:
    """Creates instances within the limits of pools, quotas and subnets."""

    instances: Instances
    lifecycle: Lifecycle
    faults: Faults
    images: Images
    templates: LaunchTemplates
    subnets: Subnets
    sales: Sales
    placement_groups: PlacementGroups
    reservations: Reservations
    quotas: Quotas
    throttling: Throttling
    now: Callable[[], float]

    async def specify(self, data: LaunchData, capacity_type: CapacityType) -> LaunchSpecification:
        """Return the specification for launch data, with all that the data refer to. Raises Ec2Error."""
        if not data.instance_type:
            raise Ec2Error(
                "MissingParameter", "The request must contain the parameter InstanceType"
            )
        if len(data.user_data) * 3 // 4 > MAX_USER_DATA + 2:
            raise Ec2Error("InvalidUserData.Malformed", "User data is limited to 16384 bytes")
        for tags in (data.tags, data.volume_tags):
            check_tag_count(tags)
        check_interfaces(data.interfaces, data.security_groups)
        check_adapters(data.interfaces, data.instance_type)
        self.placement_groups.check(data.placement_group, data.instance_type)
        self.reservations.check(data.reservation, capacity_type)
        if data.market and data.market != capacity_type:
            raise Ec2Error("InvalidParameterValue", WRONG_MARKET)
        image = self.images.available(data.image)
        groups = data.interfaces[0].groups if data.interfaces else data.security_groups
        inner = data.interfaces[0].subnet if data.interfaces else ""
        return LaunchSpecification(
            image=image,
            instance_type=data.instance_type,
            subnet=await self.subnets.find(data.subnet or inner),
            user_data=data.user_data,
            tags=data.tags,
            volume_tags=data.volume_tags,
            security_groups=groups,
            interfaces=data.interfaces,
            placement_group=data.placement_group,
            reservation=data.reservation,
            instance_profile=data.instance_profile,
            metadata_options=data.metadata_options,
            shutdown_behavior=data.shutdown_behavior or "stop",
            disk=root_disk(data.disks, image),
            key_name=data.key_name,
            ebs_optimized=data.ebs_optimized == "true",
        )

    def room(self, order: Order, wanted: int) -> tuple[int, tuple[str, str] | None]:
        """Return how many of these instances can be launched now, and the error for any more.

        The error is that of the tightest limit. Raises Ec2Error for a type whose quota is not known.
        """
        tightest, error = wanted, None
        for bound in (*self._account_bounds(order), *self._pool_bounds(order)):
            if bound[0] < tightest:
                tightest, error = bound
        return tightest, error

    def _account_bounds(self, order: Order) -> Iterator[Bound]:
        if order.capacity_type is CapacityType.SPOT and not self.faults.spot_role:
            yield 0, NO_SPOT_ROLE
        quota = self.quotas.room(order.pool)
        if quota is not None and not order.specification.reservation:
            yield quota

    def _pool_bounds(self, order: Order) -> Iterator[Bound]:
        pool, subnet = order.pool, order.specification.subnet
        group = self.placement_groups.room(order.specification)
        if group is not None:
            yield group
        yield self.subnets.free(subnet.id, subnet.addresses), NO_ADDRESSES
        if order.specification.reservation:
            yield self.reservations.room(order.specification)
            return
        refusal = self.faults.refusal(pool)
        if refusal is not None:
            yield 0, refusal
        room = self.faults.room(pool, self.instances.taken(pool))
        if room is not None:
            message = (
                f"There is no {pool.capacity_type} capacity for {pool.instance_type} left in "
                f"{pool.zone}."
            )
            yield room, (NO_CAPACITY, message)

    def launch(self, order: Order, count: int) -> list[Instance]:
        """Create instances in one reservation."""
        reservation = "r-" + secrets.token_hex(9)[:17]
        return [self._launch_one(order, reservation) for _ in range(count)]

    def _launch_one(self, order: Order, reservation: str) -> Instance:
        number, specification = len(self.instances), order.specification
        address = NETWORK + 10 + number
        instance = Instance(
            id="i-" + secrets.token_hex(9)[:17],
            number=number,
            reservation=reservation,
            specification=order.specification,
            capacity_type=order.capacity_type,
            tags=order.specification.tags | order.system_tags,
            client_token=order.client_token,
            # EC2 gives whole seconds, the same in DescribeInstances and in the identity document.
            launched_at=float(int(self.now())),
            volume_id="vol-" + secrets.token_hex(9)[:17],
            leaves_disk=not order.specification.disk.delete_with_instance,
            private_ip=".".join(str(byte) for byte in address.to_bytes(4, "big")),
            public_ip=public_address(specification.interfaces, specification.subnet.public, number),
        )
        self.instances.add(instance)
        self.lifecycle.launch(instance)
        return instance


def capacity_type_of(lifecycle: str) -> CapacityType:
    """Return the capacity type for EC2's market type. Raises Ec2Error for one that the lab does not sell."""
    try:
        return CapacityType(lifecycle)
    except ValueError as error:
        raise Ec2Error("UnsupportedOperation", f"The lab sells no {lifecycle}.") from error


def _check_placement(placement: Tree, subnet: Subnet) -> None:
    """Raise Ec2Error for a placement that says more than the subnet's zone and a placement group."""
    said = {name: value for name, value in placement.plain().items() if value}
    said.pop("GroupName", "")
    zone = said.pop("AvailabilityZone", subnet.zone)
    if zone != subnet.zone:
        raise Ec2Error("InvalidParameterValue", f"Subnet {subnet.id} is not in zone {zone[:60]}")
    if said.pop("Tenancy", "default") != "default" or said:
        raise Ec2Error("UnsupportedOperation", "The lab places instances by subnet and group.")


async def run_instances(launcher: Launcher, params: Tree) -> list[Instance]:
    """Answer RunInstances: launch at least MinCount instances, or raise Ec2Error and launch none."""
    unknown = params.keys() - RUN_PARAMETERS
    if unknown:
        raise Ec2Error("UnsupportedOperation", f"The lab does not do {sorted(unknown)[0]}.")
    data = launch_data(params)
    if "LaunchTemplate" in params:
        data = launcher.templates.find(params.structure("LaunchTemplate")).data.overlaid(data)
    check_interfaces(data.interfaces, data.security_groups, data.subnet)
    capacity_type = capacity_type_of(data.market or CapacityType.ON_DEMAND)
    specification = await launcher.specify(data, capacity_type)
    _check_placement(params.structure("Placement"), specification.subnet)
    highest = whole_number(params.text("MaxCount"), "MaxCount", 1, 1000)
    lowest = whole_number(params.text("MinCount"), "MinCount", 1, highest)
    order = Order(specification, capacity_type, params.text("ClientToken"))
    launcher.throttling.launch(highest)
    launcher.sales.check(order.pool, "Unsupported")
    room, error = launcher.room(order, highest)
    if room < lowest and error is not None:
        raise Ec2Error(*error)
    return launcher.launch(order, room)
