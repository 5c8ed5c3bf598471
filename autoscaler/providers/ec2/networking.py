"""The network of a machine in its launch template: its security groups or, with more options, its interfaces.

A template with interfaces names the security groups in them (botocore's data/ec2/2016-11-15/service-2.json,
RequestLaunchTemplateData.SecurityGroupIds). The subnet is that of CreateFleet's override. Karpenter sends the
same (aws/karpenter-provider-aws, `generateNetworkInterfaces`).
"""

from typing import Any

from autoscaler.providers.ec2.settings import Ec2Settings


def network(settings: Ec2Settings) -> dict[str, Any]:
    """Return the keys of the launch template for the network of a SKU's machines."""
    groups = list(settings.security_groups)
    if settings.public_ip is None:
        return {"SecurityGroupIds": groups}
    interface = {
        "DeviceIndex": 0,
        "Groups": groups,
        "DeleteOnTermination": True,
        "AssociatePublicIpAddress": settings.public_ip,
    }
    return {"NetworkInterfaces": [interface]}
