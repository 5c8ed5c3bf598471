"""Builds the requests for a launch: the launch template's data and name, and CreateFleet.

Pure: the same order, image and subnets give the same bytes.
"""

import base64
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from autoscaler.controller.ports.provider import LaunchOrder, ProviderError
from autoscaler.model.catalogue import Architecture, CapacityType
from autoscaler.model.machines.failures import FailureClass
from autoscaler.providers.ec2.configuration import Ec2OptionKeys, Ec2Section
from autoscaler.providers.ec2.instance_types import ORDINARY_FIRST_CARD
from autoscaler.providers.ec2.launching.disks import block_devices
from autoscaler.providers.ec2.settings import Ec2Settings, Ec2Sku
from autoscaler.providers.ec2.tags import (
    FLEET,
    INSTALLATION,
    LAUNCH_REQUEST,
    MAX_TAG_VALUE,
    SKU,
    tag_list,
)
from autoscaler.providers.ec2.worker.rows import ImageRow

MAX_MACHINES = 1000
"""Machines in one request: `instant` fleets use the bucket of 1,000 instances."""

MAX_OVERRIDES = 300
"""Launch specifications in one fleet (EC2 User Guide, "EC2 Fleet quotas")."""

_EC2_ARCHITECTURE = {Architecture.X64: "x86_64", Architecture.ARM64: "arm64"}


def canonical(value: object) -> str:
    """Return JSON text that depends only on the value."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def newest_image(sku: Ec2Sku, images: Sequence[ImageRow]) -> ImageRow:
    """Return the newest image of the SKU's architecture. Raises ProviderError if there is none."""
    wanted = _EC2_ARCHITECTURE[sku.keys.arch]
    what = f"image named {sku.image.name!r} of owner {sku.image.owner!r}"
    if not images:
        raise _configuration("ImageNotFound", f"no {what}")
    fitting = [image for image in images if image.architecture == wanted]
    if not fitting:
        found = ", ".join(sorted({image.architecture for image in images}))
        text = f"no {what} is for {wanted}, only for {found}"
        raise _configuration("ImageArchitecture", text)
    newest = max(fitting, key=lambda image: (image.created, image.id))
    if not newest.root_device:
        raise _configuration("ImageRootDevice", f"image {newest.id} has no root device on EBS")
    return newest


def machine_tags(settings: Ec2Settings, sku: Ec2Sku) -> dict[str, str]:
    """Return the tags of all resources of a SKU, without the tag of the launch request."""
    return {
        **settings.section.tags,
        **sku.keys.tags,
        "Name": f"{settings.fleet} {sku.name}"[:MAX_TAG_VALUE],
        FLEET: settings.fleet,
        INSTALLATION: settings.installations.own,
        SKU: sku.name,
    }


def template_data(
    settings: Ec2Settings, sku: Ec2Sku, image: ImageRow, option: Ec2OptionKeys | None = None
) -> dict[str, Any]:
    """Return the launch template's data for a SKU and one of its launch options.

    IMDSv2 with one hop hides the metadata from containers. A machine that powers itself off
    terminates and deletes all its disks, even if the image has other settings for them. Raises
    ProviderError if EC2 would refuse the SKU's options on this image.
    """
    tags, ec2 = tag_list(machine_tags(settings, sku)), settings.section
    option = option or Ec2OptionKeys(provider=settings.name)
    data: dict[str, Any] = {
        "ImageId": image.id,
        **network(ec2, option),
        "MetadataOptions": {
            "HttpEndpoint": "enabled",
            "HttpTokens": "required",
            "HttpPutResponseHopLimit": 1,
            "InstanceMetadataTags": "disabled",
        },
        "BlockDeviceMappings": block_devices(sku, image),
        "InstanceInitiatedShutdownBehavior": "terminate",
        "TagSpecifications": [
            {"ResourceType": "instance", "Tags": tags},
            {"ResourceType": "volume", "Tags": tags},
        ],
    }
    if option.placement_group is not None:
        data["Placement"] = {"GroupName": option.placement_group}
    if option.capacity_reservation is not None:
        # Karpenter sends both, too. With the preference alone, EC2 takes any reservation that fits.
        data["CapacityReservationSpecification"] = {
            "CapacityReservationPreference": "capacity-reservations-only",
            "CapacityReservationTarget": {"CapacityReservationId": option.capacity_reservation},
        }
    if CapacityType.CAPACITY_BLOCK in option.capacity:
        data["InstanceMarketOptions"] = {"MarketType": CapacityType.CAPACITY_BLOCK.value}
    if ec2.instance_profile is not None:
        data["IamInstanceProfile"] = {"Name": ec2.instance_profile}
    if sku.user_data:
        data["UserData"] = base64.b64encode(sku.user_data.encode()).decode()
    return data


def template_of(request: str) -> str:
    """Return the id of the launch template in a stored request."""
    config = json.loads(request)["LaunchTemplateConfigs"][0]
    return str(config["LaunchTemplateSpecification"]["LaunchTemplateId"])


def template_name(fleet: str, data: Mapping[str, Any]) -> str:
    """Return `autoscaler-<fleet>-<hash of the data>`, so that the same name means the same data."""
    digest = hashlib.sha256(canonical(data).encode()).hexdigest()[:32]
    plain = re.sub(r"[^A-Za-z0-9().\-/_]", "-", fleet)[:80]
    return f"autoscaler-{plain}-{digest}"


def fleet_request(
    settings: Ec2Settings,
    order: LaunchOrder,
    template: str,
    subnets: Mapping[str, str],
) -> str:
    """Return the CreateFleet request as canonical JSON. `subnets` is zone to subnet.

    The template's version is always 1, because its name contains the hash of its data.
    Raises ProviderError if the order cannot become a request.
    """
    if not 0 < order.count <= MAX_MACHINES:
        text = f"{order.count} machines in one request, not 1 to {MAX_MACHINES}"
        raise _configuration("MachineCount", text)
    tags = tag_list(
        {**machine_tags(settings, settings.skus[order.sku]), LAUNCH_REQUEST: order.launch_request}
    )
    request: dict[str, Any] = {
        "Type": "instant",
        "ClientToken": order.token,
        "LaunchTemplateConfigs": [
            {
                "LaunchTemplateSpecification": {"LaunchTemplateId": template, "Version": "1"},
                "Overrides": _overrides(settings, order, subnets),
            }
        ],
        "TargetCapacitySpecification": {
            "TotalTargetCapacity": order.count,
            "DefaultTargetCapacityType": order.capacity_type.value,
        },
        "TagSpecifications": [
            # The template also has the volumes' tags. A policy with a condition on aws:RequestTag
            # for volumes checks the tags of this request (Karpenter sends them too).
            {"ResourceType": kind, "Tags": tags}
            for kind in ("fleet", "instance", "volume")
        ],
    }
    if order.capacity_type is CapacityType.SPOT:
        request["SpotOptions"] = {"AllocationStrategy": "price-capacity-optimized"}
    elif order.capacity_type is CapacityType.ON_DEMAND:
        request["OnDemandOptions"] = {"AllocationStrategy": "prioritized"}
    return canonical(request)


def _overrides(
    settings: Ec2Settings, order: LaunchOrder, subnets: Mapping[str, str]
) -> list[dict[str, Any]]:
    priorities: dict[str, int] = {}
    overrides = []
    for key in order.offerings:
        provider, instance_type, zone, capacity_type = key.split("/", 4)[:4]
        if provider != settings.name or capacity_type != order.capacity_type:
            text = f"{key} is of another provider or capacity type than the request"
            raise _configuration("Offering", text)
        if zone not in subnets:
            text = f"no subnet is configured in {zone}; add one to the provider's subnets"
            raise _configuration("Zone", text)
        priority = priorities.setdefault(instance_type, len(priorities))
        override: dict[str, Any] = {
            "InstanceType": instance_type,
            "SubnetId": subnets[zone],
            "AvailabilityZone": zone,
        }
        if order.capacity_type is CapacityType.ON_DEMAND:
            override["Priority"] = float(priority)
        overrides.append(override)
    if not 0 < len(overrides) <= MAX_OVERRIDES:
        text = f"{len(overrides)} offerings in one request, not 1 to {MAX_OVERRIDES}"
        raise _configuration("Offerings", text)
    return overrides


def _configuration(code: str, message: str) -> ProviderError:
    return ProviderError(FailureClass.CONFIGURATION, code, message)


def network(ec2: Ec2Section, option: Ec2OptionKeys) -> dict[str, Any]:
    """Return the keys of the launch template for the network of a launch option's machines.

    A template with interfaces names the security groups in them (botocore's
    data/ec2/2016-11-15/service-2.json, RequestLaunchTemplateData.SecurityGroupIds). The subnet is that of
    CreateFleet's override. Karpenter sends the same, one Elastic Fabric Adapter a network card
    (aws/karpenter-provider-aws, `generateNetworkInterfaces`).
    """
    groups = list(ec2.security_groups)
    kinds = _kinds(option)
    if ec2.public_ip is None and not option.efa_interfaces:
        return {"SecurityGroupIds": groups}
    interfaces: list[dict[str, Any]] = []
    for card, kind in enumerate(kinds):
        interface: dict[str, Any] = {
            # Only the first card's interface is the machine's primary one.
            "DeviceIndex": 0 if card == 0 else 1,
            "Groups": groups,
            "DeleteOnTermination": True,
        }
        if option.efa_interfaces:
            interface |= {"InterfaceType": kind, "NetworkCardIndex": card}
        interfaces.append(interface)
    # EC2 refuses the key beside several interfaces, and gives such a machine no public address.
    if ec2.public_ip is not None and len(interfaces) == 1:
        interfaces[0]["AssociatePublicIpAddress"] = ec2.public_ip
    return {"NetworkInterfaces": interfaces}


def _kinds(option: Ec2OptionKeys) -> list[str]:
    """Return the interface of each network card, from card 0 on."""
    count = option.efa_interfaces
    if count and ORDINARY_FIRST_CARD.issuperset(option.instance_types or ()):
        # As ParallelCluster has them. An EFA-only interface takes no address.
        return ["interface", *["efa-only"] * count]
    return ["efa"] * count or ["interface"]
