"""Reads what a launch template or a request says about the instances to launch.

Merges the data of a template, an override and a request.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from lab.ec2.interfaces import Interface, read_interfaces
from lab.ec2.query import Ec2Error, Tree
from lab.ec2.reservations import read_target

MAX_TAGS = 50
MAX_TAG_KEY, MAX_TAG_VALUE = 128, 256


@dataclass(frozen=True, slots=True)
class LaunchData:
    """What a template or a request says about instances. A field is empty if it says nothing."""

    image: str = ""
    instance_type: str = ""
    subnet: str = ""
    user_data: str = ""
    tags: dict[str, str] = field(default_factory=dict)
    volume_tags: dict[str, str] = field(default_factory=dict)
    security_groups: tuple[str, ...] = ()
    interfaces: tuple[Interface, ...] = ()
    instance_profile: str = ""
    metadata_options: dict[str, str] = field(default_factory=dict)
    shutdown_behavior: str = ""
    key_name: str = ""
    ebs_optimized: str = ""
    disks: dict[str, dict[str, str]] = field(default_factory=dict)
    market: str = ""
    placement_group: str = ""
    reservation: str = ""

    def overlaid(self, other: "LaunchData") -> "LaunchData":
        """Return this data, overridden by what `other` says. Tags of both; those of `other` win."""
        return LaunchData(
            image=other.image or self.image,
            instance_type=other.instance_type or self.instance_type,
            subnet=other.subnet or self.subnet,
            user_data=other.user_data or self.user_data,
            tags=self.tags | other.tags,
            volume_tags=self.volume_tags | other.volume_tags,
            security_groups=other.security_groups or self.security_groups,
            interfaces=other.interfaces or self.interfaces,
            instance_profile=other.instance_profile or self.instance_profile,
            metadata_options=self.metadata_options | other.metadata_options,
            shutdown_behavior=other.shutdown_behavior or self.shutdown_behavior,
            key_name=other.key_name or self.key_name,
            ebs_optimized=other.ebs_optimized or self.ebs_optimized,
            disks=self.disks | other.disks,
            market=other.market or self.market,
            placement_group=other.placement_group or self.placement_group,
            reservation=other.reservation or self.reservation,
        )


def launch_data(params: Tree) -> LaunchData:
    """Return the launch data of a RunInstances request, or of the data in CreateLaunchTemplate.

    Both use the same parameter names. Raises Ec2Error.
    """
    profile = params.structure("IamInstanceProfile")
    return LaunchData(
        image=params.text("ImageId"),
        instance_type=params.text("InstanceType"),
        subnet=params.text("SubnetId"),
        user_data=params.text("UserData"),
        tags=requested_tags(params, "instance"),
        volume_tags=requested_tags(params, "volume"),
        security_groups=tuple(params.texts("SecurityGroupId")),
        interfaces=read_interfaces(params),
        instance_profile=profile.text("Name") or profile.text("Arn"),
        metadata_options=_lower_first(params.structure("MetadataOptions")),
        shutdown_behavior=params.text("InstanceInitiatedShutdownBehavior"),
        key_name=params.text("KeyName"),
        ebs_optimized=params.text("EbsOptimized"),
        disks={
            disk.text("DeviceName"): _lower_first(disk.structure("Ebs"))
            for disk in params.structures("BlockDeviceMapping")
        },
        market=params.structure("InstanceMarketOptions").text("MarketType"),
        placement_group=params.structure("Placement").text("GroupName"),
        reservation=read_target(params.structure("CapacityReservationSpecification")),
    )


def requested_tags(params: Tree, kind: str) -> dict[str, str]:
    """Return the tags in a request's TagSpecifications for a kind of resource. Raises Ec2Error.

    Limits: EC2 User Guide, "Tag restrictions". `aws:`: kubernetes-sigs/cluster-api-provider-aws#5461.
    """
    tags: dict[str, str] = {}
    for specification in params.structures("TagSpecification"):
        if specification.text("ResourceType") != kind:
            continue
        for tag in specification.structures("Tag"):
            key, value = tag.text("Key"), tag.text("Value")
            _check_tag(key, value)
            if key in tags:
                raise Ec2Error("InvalidParameterValue", f"Duplicate tag key '{key}' specified.")
            tags[key] = value
    check_tag_count(tags)
    return tags


def check_tag_count(tags: Mapping[str, str]) -> None:
    """Raise Ec2Error if a resource may not have as many tags."""
    if len(tags) > MAX_TAGS:
        raise Ec2Error("TagLimitExceeded", f"More than {MAX_TAGS} tags specified")


def _check_tag(key: str, value: str) -> None:
    if key.lower().startswith("aws:"):
        raise Ec2Error(
            "InvalidParameterValue",
            f"Value ( {key} ) for parameter key is invalid. Tag keys starting with 'aws:' are "
            "reserved for internal use",
        )
    if not 0 < len(key) <= MAX_TAG_KEY:
        raise Ec2Error("InvalidParameterValue", f"Tag key must have 1 to {MAX_TAG_KEY} characters")
    if len(value) > MAX_TAG_VALUE:
        text = f"Tag value exceeds the maximum length of {MAX_TAG_VALUE} characters"
        raise Ec2Error("InvalidParameterValue", text)


def _lower_first(fields: Tree) -> dict[str, str]:
    return {name[:1].lower() + name[1:]: value for name, value in fields.plain().items()}
