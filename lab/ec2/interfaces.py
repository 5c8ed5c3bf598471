"""Network interfaces of a launch: what a request or a template says, and what EC2 refuses of them.

EC2's messages: aws/aws-cli#518 (interfaces beside a subnet or security groups),
zalando-incubator/kubernetes-on-aws#8733 (a public address with several interfaces).
"""

from dataclasses import dataclass

from lab.ec2.query import Ec2Error, Tree, whole_number

KNOWN = frozenset(
    {
        "AssociatePublicIpAddress",
        "DeleteOnTermination",
        "DeviceIndex",
        "SecurityGroupId",
        "SubnetId",
    }
)
PUBLIC_NETWORK = 203 << 24
"""Where the lab's public addresses begin. No machine of the lab has one that anything can reach."""


@dataclass(frozen=True, slots=True)
class Interface:
    """One interface to create. `public` is whether it gets a public address; None: as its subnet says."""

    device: int
    groups: tuple[str, ...]
    public: bool | None = None
    subnet: str = ""


def read_interfaces(params: Tree) -> tuple[Interface, ...]:
    """Return the interfaces of a request or of a template's data. Raises Ec2Error."""
    found = []
    for said in params.structures("NetworkInterface"):
        unknown = said.keys() - KNOWN
        if unknown:
            raise Ec2Error("UnsupportedOperation", f"The lab does not do {sorted(unknown)[0]}.")
        if said.text("DeleteOnTermination", "true") != "true":
            raise Ec2Error("UnsupportedOperation", "The lab deletes interfaces with the instance.")
        public = said.text("AssociatePublicIpAddress")
        found.append(
            Interface(
                device=whole_number(said.text("DeviceIndex"), "DeviceIndex", 0, 63),
                groups=tuple(said.texts("SecurityGroupId")),
                public=None if not public else public == "true",
                subnet=said.text("SubnetId"),
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
    if len(interfaces) > 1 and any(one.public for one in interfaces):
        raise Ec2Error(
            "InvalidParameterCombination",
            "The associatePublicIPAddress parameter cannot be specified when launching with "
            "multiple network interfaces",
        )
    if 0 not in {one.device for one in interfaces}:
        text = "When specifying network interfaces, you must include a device at index 0."
        raise Ec2Error("InvalidParameterCombination", text)


def public_address(interfaces: tuple[Interface, ...], subnet_gives: bool, number: int) -> str:
    """Return the public address of an instance, by its number; empty if it has none."""
    said = interfaces[0].public if interfaces else None
    public = subnet_gives if said is None else said
    address = (PUBLIC_NETWORK + 10 + number).to_bytes(4, "big")
    return ".".join(str(byte) for byte in address) if public else ""
