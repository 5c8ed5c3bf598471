"""What moto knows and a launch needs: launch templates and subnets.

Decides what they mean for a launch. Remembers moto's answers until a call may have changed them;
never changes anything in moto.
"""

from dataclasses import dataclass, field
from typing import Any

from autoscaler.lab.ec2.instances import Subnet
from autoscaler.lab.ec2.moto import MotoClient
from autoscaler.lab.ec2.query import Ec2Error, Tree

READING_VERBS = ("Describe", "Get", "List", "Search")


@dataclass(frozen=True, slots=True)
class LaunchData:
    """What a template or a request says about instances; empty where it says nothing."""

    image: str = ""
    instance_type: str = ""
    subnet: str = ""
    user_data: str = ""
    tags: dict[str, str] = field(default_factory=dict)
    volume_tags: dict[str, str] = field(default_factory=dict)
    security_groups: tuple[str, ...] = ()
    instance_profile: str = ""
    metadata_options: dict[str, str] = field(default_factory=dict)
    shutdown_behavior: str = ""
    disks: dict[str, dict[str, str]] = field(default_factory=dict)
    market: str = ""

    def overlaid(self, other: "LaunchData") -> "LaunchData":
        """This, with what `other` says put over it; tags of both, the other's first."""
        return LaunchData(
            image=other.image or self.image,
            instance_type=other.instance_type or self.instance_type,
            subnet=other.subnet or self.subnet,
            user_data=other.user_data or self.user_data,
            tags=self.tags | other.tags,
            volume_tags=self.volume_tags | other.volume_tags,
            security_groups=other.security_groups or self.security_groups,
            instance_profile=other.instance_profile or self.instance_profile,
            metadata_options=self.metadata_options | other.metadata_options,
            shutdown_behavior=other.shutdown_behavior or self.shutdown_behavior,
            disks=self.disks | other.disks,
            market=other.market or self.market,
        )


@dataclass(frozen=True, slots=True)
class Template:
    """One version of a launch template."""

    id: str
    version: str
    data: LaunchData


class Resources:
    """Looks things up in moto, once."""

    def __init__(self, moto: MotoClient) -> None:
        self._moto = moto
        self._templates: dict[tuple[str, str], Template] = {}
        self._subnets: dict[str, Subnet] = {}

    def forwarded(self, action: str) -> None:
        """Forget what this call may have changed."""
        if not action.startswith(READING_VERBS):
            self._templates.clear()
            self._subnets.clear()

    async def template(self, wanted: Tree) -> Template:
        """The version that a LaunchTemplateSpecification means. Raises Ec2Error."""
        by_id, by_name = wanted.text("LaunchTemplateId"), wanted.text("LaunchTemplateName")
        key = (by_id or by_name, wanted.text("Version", "$Default"))
        if key not in self._templates:
            naming = {"LaunchTemplateId": by_id} if by_id else {"LaunchTemplateName": by_name}
            found = await self._moto.ask(
                "DescribeLaunchTemplateVersions",
                **naming,
                **{"LaunchTemplateVersion.1": key[1]},
            )
            version = found["launchTemplateVersionSet"][0]
            self._templates[key] = Template(
                id=version["launchTemplateId"],
                version=version["versionNumber"],
                data=template_data(version["launchTemplateData"]),
            )
        return self._templates[key]

    async def subnet(self, subnet_id: str) -> Subnet:
        """Raises Ec2Error for a subnet that is not there."""
        if not subnet_id:
            raise Ec2Error("MissingInput", "The lab launches into named subnets only.")
        if subnet_id not in self._subnets:
            found = await self._moto.ask("DescribeSubnets", **{"SubnetId.1": subnet_id})
            subnet = found["subnetSet"][0]
            self._subnets[subnet_id] = Subnet(
                subnet["subnetId"], subnet["availabilityZone"], subnet["vpcId"]
            )
        return self._subnets[subnet_id]


def template_data(found: Any) -> LaunchData:
    """Read the launch data of a template as DescribeLaunchTemplateVersions gives it."""
    specifications = _items(found, "tagSpecificationSet")
    profile = _structure(found, "iamInstanceProfile")
    return LaunchData(
        image=found.get("imageId", ""),
        instance_type=found.get("instanceType", ""),
        user_data=found.get("userData", ""),
        tags=_described_tags(specifications, "instance"),
        volume_tags=_described_tags(specifications, "volume"),
        security_groups=tuple(_items(found, "securityGroupIdSet")),
        instance_profile=profile.get("name", "") or profile.get("arn", ""),
        metadata_options=dict(_structure(found, "metadataOptions")),
        shutdown_behavior=found.get("instanceInitiatedShutdownBehavior", ""),
        disks={
            disk["deviceName"]: dict(_structure(disk, "ebs"))
            for disk in _items(found, "blockDeviceMappingSet")
        },
        market=_structure(found, "instanceMarketOptions").get("marketType", ""),
    )


def request_data(params: Tree) -> LaunchData:
    """Read the launch data of a RunInstances request."""
    profile = params.structure("IamInstanceProfile")
    return LaunchData(
        image=params.text("ImageId"),
        instance_type=params.text("InstanceType"),
        subnet=params.text("SubnetId"),
        user_data=params.text("UserData"),
        tags=requested_tags(params, "instance"),
        volume_tags=requested_tags(params, "volume"),
        security_groups=tuple(params.texts("SecurityGroupId")),
        instance_profile=profile.text("Name") or profile.text("Arn"),
        metadata_options=_lower_first(params.structure("MetadataOptions")),
        shutdown_behavior=params.text("InstanceInitiatedShutdownBehavior"),
        disks={
            disk.text("DeviceName"): _lower_first(disk.structure("Ebs"))
            for disk in params.structures("BlockDeviceMapping")
        },
        market=params.structure("InstanceMarketOptions").text("MarketType"),
    )


def requested_tags(params: Tree, kind: str) -> dict[str, str]:
    """The tags that a request's TagSpecifications give to a kind of resource."""
    return {
        tag.text("Key"): tag.text("Value")
        for specification in params.structures("TagSpecification")
        if specification.text("ResourceType") == kind
        for tag in specification.structures("Tag")
    }


def _described_tags(specifications: list[Any], kind: str) -> dict[str, str]:
    return {
        tag["key"]: tag["value"]
        for specification in specifications
        if specification["resourceType"] == kind
        for tag in _items(specification, "tagSet")
    }


def _items(found: Any, name: str) -> list[Any]:
    """A list; an empty one reads as empty text."""
    items = found.get(name)
    return items if isinstance(items, list) else []


def _structure(found: Any, name: str) -> dict[str, str]:
    structure = found.get(name)
    return structure if isinstance(structure, dict) else {}


def _lower_first(fields: Tree) -> dict[str, str]:
    return {name[:1].lower() + name[1:]: value for name, value in fields.plain().items()}
