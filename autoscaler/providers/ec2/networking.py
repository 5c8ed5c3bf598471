"""The network of a machine in its launch template: its security groups or, with more options, its interfaces.

A template with interfaces names the security groups in them (botocore's data/ec2/2016-11-15/service-2.json,
RequestLaunchTemplateData.SecurityGroupIds). The subnet is that of CreateFleet's override. Karpenter sends the
same, one Elastic Fabric Adapter a network card (aws/karpenter-provider-aws, `generateNetworkInterfaces`).
"""

from typing import Any

from autoscaler.providers.ec2.settings import Ec2Option, Ec2Settings


def network(settings: Ec2Settings, option: Ec2Option) -> dict[str, Any]:
    """Return the keys of the launch template for the network of a launch option's machines."""
    groups = list(settings.security_groups)
    count = option.efa_interfaces
    if settings.public_ip is None and count == 0:
        return {"SecurityGroupIds": groups}
    interfaces: list[dict[str, Any]] = []
    for card in range(max(1, count)):
        interface: dict[str, Any] = {
            # Only the first card's interface is the machine's primary one.
            "DeviceIndex": 0 if card == 0 else 1,
            "Groups": groups,
            "DeleteOnTermination": True,
        }
        if count:
            interface |= {"InterfaceType": "efa", "NetworkCardIndex": card}
        interfaces.append(interface)
    # EC2 refuses the key beside several interfaces, and gives such a machine no public address.
    if settings.public_ip is not None and len(interfaces) == 1:
        interfaces[0]["AssociatePublicIpAddress"] = settings.public_ip
    return {"NetworkInterfaces": interfaces}
