"""The network of a machine in its launch template: its security groups or, with more options, its interfaces.

A template with interfaces names the security groups in them (botocore's data/ec2/2016-11-15/service-2.json,
RequestLaunchTemplateData.SecurityGroupIds). The subnet is that of CreateFleet's override. Karpenter sends the
same, one Elastic Fabric Adapter a network card (aws/karpenter-provider-aws, `generateNetworkInterfaces`).
"""

from typing import Any

from autoscaler.providers.ec2.efa import ORDINARY_FIRST_CARD
from autoscaler.providers.ec2.settings import Ec2Option, Ec2Settings


def network(settings: Ec2Settings, option: Ec2Option) -> dict[str, Any]:
    """Return the keys of the launch template for the network of a launch option's machines."""
    groups = list(settings.security_groups)
    kinds = _kinds(option)
    if settings.public_ip is None and not option.efa_interfaces:
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
    if settings.public_ip is not None and len(interfaces) == 1:
        interfaces[0]["AssociatePublicIpAddress"] = settings.public_ip
    return {"NetworkInterfaces": interfaces}


def _kinds(option: Ec2Option) -> list[str]:
    """Return the interface of each network card, from card 0 on."""
    count = option.efa_interfaces
    if count and ORDINARY_FIRST_CARD.issuperset(option.instance_types):
        # As ParallelCluster has them. An EFA-only interface takes no address.
        return ["interface", *["efa-only"] * count]
    return ["efa"] * count or ["interface"]
