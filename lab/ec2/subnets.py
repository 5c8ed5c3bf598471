"""Subnets: moto stores them, and the lab counts the addresses that its instances use.

Caches moto's answers until a call may have changed them.
"""

import re
from collections.abc import Callable

from lab.ec2.instances import Instances, Subnet
from lab.ec2.moto import MotoClient
from lab.ec2.query import Ec2Error
from lab.ec2.throttling import READING_VERBS

_FREE = re.compile(
    rb"<subnetId>(?P<id>subnet-[0-9a-f]+)</subnetId>"
    rb"|<availableIpAddressCount>(?P<free>\d+)</availableIpAddressCount>"
)
Addresses = Callable[[str, int], int]
"""Returns the number of addresses of a subnet, from its ID and the number in its CIDR block."""


class Subnets:
    """Looks subnets up in moto, with a cache."""

    def __init__(self, moto: MotoClient, instances: Instances, addresses: Addresses) -> None:
        self._moto = moto
        self._instances = instances
        self._addresses = addresses
        self._known: dict[str, Subnet] = {}

    def forwarded(self, action: str) -> None:
        """Clear the cache if this call may have changed a subnet."""
        if not action.startswith(READING_VERBS):
            self._known.clear()

    async def find(self, subnet_id: str) -> Subnet:
        """Return the subnet with this ID. Raises Ec2Error if it does not exist."""
        if not subnet_id:
            raise Ec2Error("MissingInput", "The lab launches into named subnets only.")
        if subnet_id not in self._known:
            found = await self._moto.ask("DescribeSubnets", **{"SubnetId.1": subnet_id})
            subnet = found["subnetSet"][0]
            self._known[subnet_id] = Subnet(
                subnet["subnetId"],
                subnet["availabilityZone"],
                subnet["vpcId"],
                int(subnet["availableIpAddressCount"]),
                subnet["mapPublicIpOnLaunch"] == "true",
            )
        return self._known[subnet_id]

    def free(self, subnet_id: str, in_block: int) -> int:
        """Return the number of free addresses, of the `in_block` that the CIDR block has for instances."""
        total = self._addresses(subnet_id, in_block)
        return max(0, total - self._instances.addresses_taken(subnet_id))

    def corrected(self, body: bytes) -> bytes:
        """Return DescribeSubnets' answer with the lab's free addresses, because moto knows no instances."""
        # An item's id and its count, in whichever order moto writes them.
        found = list(_FREE.finditer(body))
        corrected, end = [], 0
        for first, second in zip(found[::2], found[1::2], strict=True):
            name = (first["id"] or second["id"]).decode()
            count = first if first["free"] is not None else second
            corrected += [
                body[end : count.start("free")],
                b"%d" % self.free(name, int(count["free"])),
            ]
            end = count.end("free")
        return b"".join([*corrected, body[end:]])
