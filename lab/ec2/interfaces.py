"""Network interfaces of a launch: what a request or a template says, and what EC2 refuses of them.

EC2's messages: aws/aws-cli#518 (interfaces beside a subnet or security groups),
zalando-incubator/kubernetes-on-aws#8733 and hashicorp/terraform-provider-aws#6777 (a public address, or none,
with several interfaces).
"""

from dataclasses import dataclass

from lab.ec2.instance_types import described_type
from lab.ec2.query import Ec2Error, Tree, whole_number

KNOWN = frozenset(
    {
        "AssociatePublicIpAddress",
        "DeleteOnTermination",
        "DeviceIndex",
        "InterfaceType",
        "NetworkCardIndex",
        "SecurityGroupId",
        "SubnetId",
    }
)
EFA_ONLY = "efa-only"
PUBLIC_NETWORK = 203 << 24
"""Where the lab's public addresses begin. No machine of the lab has one that anything can reach."""


@dataclass(frozen=True, slots=True)
class Interface:
    """One interface to create. `public` is whether it gets a public address; None: as its subnet says.

    `card` is its network card, `kind` EC2's word for the type of interface.
    """

    device: int
    groups: tuple[str, ...]
    public: bool | None = None
    subnet: str = ""
    card: int = 0
    kind: str = "interface"

    @property
    def efa(self) -> bool:
        """Whether it is an Elastic Fabric Adapter."""
        return self.kind != "interface"


def read_interfaces(params: Tree) -> tuple[Interface, ...]:
    """Return the interfaces of a request or of a template's data. Raises Ec2Error."""
    found = []
    for said in params.structures("NetworkInterface"):
        unknown = said.keys() - KNOWN
        if unknown:
            raise Ec2Error("UnsupportedOperation", f"The lab does not do {sorted(unknown)[0]}.")
        if said.text("DeleteOnTermination", "true") != "true":
            raise Ec2Error("UnsupportedOperation", "The lab deletes interfaces with the instance.")
        kind = said.text("InterfaceType", "interface")
        if kind not in ("interface", "efa", EFA_ONLY):
            raise Ec2Error("UnsupportedOperation", f"The lab has no {kind[:60]}.")
        public = said.text("AssociatePublicIpAddress")
        found.append(
            Interface(
                device=whole_number(said.text("DeviceIndex"), "DeviceIndex", 0, 63),
                groups=tuple(said.texts("SecurityGroupId")),
                public=None if not public else public == "true",
                subnet=said.text("SubnetId"),
                card=whole_number(said.text("NetworkCardIndex", "0"), "NetworkCardIndex", 0, 63),
                kind=kind,
            )
        )
    return tuple(found)


def check_interfaces(
    interfaces: tuple[Interface, ...], security_groups: tuple[str, ...], subnet: str = ""
) -> None:
    """Raise Ec2Error if EC2 refuses the interfaces. `subnet` is that of the whole instance."""
    if not interfaces:
        return
    for named, what in ((subnet, "subnet ID"), (security_groups, "security groups")):
        if named:
            raise Ec2Error(
                "InvalidParameterCombination",
                f"Network interfaces and an instance-level {what} may not be specified on the "
                "same request",
            )
    if len(interfaces) > 1 and any(one.public is not None for one in interfaces):
        raise Ec2Error(
            "InvalidParameterCombination",
            "The associatePublicIPAddress parameter cannot be specified when launching with "
            "multiple network interfaces",
        )
    places = [(one.card, one.device) for one in interfaces]
    if len(set(places)) < len(places):
        raise Ec2Error("InvalidParameterValue", "Each network interface requires its own place.")
    if (0, 0) not in places:
        text = "When specifying network interfaces, you must include a device at index 0."
        raise Ec2Error("InvalidParameterCombination", text)
    if any(one.kind == EFA_ONLY and (one.card, one.device) == (0, 0) for one in interfaces):
        # EC2 User Guide, "Maximize network bandwidth". No report of EC2's words was found.
        text = "An EFA-only network interface cannot be the primary network interface."
        raise Ec2Error("InvalidParameterCombination", text)


def addresses(interfaces: tuple[Interface, ...]) -> int:
    """Return how many addresses of its subnet a machine takes: an EFA-only interface has none."""
    return max(1, sum(one.kind != EFA_ONLY for one in interfaces))


def public_address(interfaces: tuple[Interface, ...], subnet_gives: bool, number: int) -> str:
    """Return the public address of an instance, by its number; empty if it has none."""
    if len(interfaces) > 1:
        return ""  # zalando-incubator/kubernetes-on-aws#8733
    said = interfaces[0].public if interfaces else None
    public = subnet_gives if said is None else said
    address = (PUBLIC_NETWORK + 10 + number).to_bytes(4, "big")
    return ".".join(str(byte) for byte in address) if public else ""


def check_adapters(interfaces: tuple[Interface, ...], instance_type: str) -> None:
    """Raise Ec2Error if the type has not as many network cards and Elastic Fabric Adapters.

    The numbers are those of DescribeInstanceTypes, which moto brings. The first message is EC2's when it
    attaches an interface (devopsacademyau/academy#277); no report of a launch was found.
    """
    if not any(one.efa for one in interfaces):
        return
    cards, adapters = _network_of(instance_type)
    if not adapters:
        text = f"{instance_type} instances do not support Elastic Fabric Adapters."
        raise Ec2Error("InvalidParameterCombination", text)
    if sum(one.efa for one in interfaces) > adapters or any(
        one.card >= cards for one in interfaces
    ):
        text = f"{instance_type} has {cards} network cards and {adapters} adapters."
        raise Ec2Error("AttachmentLimitExceeded", text)
    for one in interfaces:
        if one.kind not in _kinds_of(instance_type, one.card):
            text = f"Network card {one.card} of {instance_type} supports no {one.kind} interface."
            raise Ec2Error("InvalidParameterCombination", text)


def _network_of(instance_type: str) -> tuple[int, int]:
    """Return the network cards and the Elastic Fabric Adapters of a type."""
    network = described_type(instance_type).get("NetworkInfo", {})
    adapters = network.get("EfaInfo", {}).get("MaximumEfaInterfaces", 0)
    return network.get("MaximumNetworkCards", 1), adapters


def _kinds_of(instance_type: str, card: int) -> list[str]:
    """Return the types of interfaces that a network card supports."""
    described = described_type(instance_type)["NetworkInfo"]["NetworkCards"]
    found: list[str] = described[card]["InterfaceTypes"]
    return found
