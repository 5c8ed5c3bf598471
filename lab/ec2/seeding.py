"""Creates a network for the lab in moto: one VPC, one subnet for each zone, one security group."""

from dataclasses import dataclass

from lab.ec2.moto import MotoClient

MAX_ZONES = 6


@dataclass(frozen=True, slots=True)
class Network:
    """The part of a provider's configuration about its network. `subnets` and `zones` have the same order."""

    vpc: str
    zones: tuple[str, ...]
    subnets: tuple[str, ...]
    security_group: str


async def seed_network(
    moto: MotoClient, region: str, zones: int, seed: int | None = None
) -> Network:
    """Create a network with this number of zones (1 to 6, named a to f). Raises Ec2Error, ValueError.

    `seed` is for the IDs, which are random without one (docs.getmoto.org, "Deterministic Identifiers").
    """
    if not 1 <= zones <= MAX_ZONES:
        raise ValueError(f"zones must be 1 to {MAX_ZONES}, not {zones}")
    if seed is not None:
        await moto.forward(b"", f"moto-api/seed?a={seed}")
    vpc = (await moto.ask("CreateVpc", CidrBlock="10.0.0.0/16"))["vpc"]["vpcId"]
    names = tuple(f"{region}{letter}" for letter in "abcdef"[:zones])
    subnets = []
    for number, zone in enumerate(names):
        made = await moto.ask(
            "CreateSubnet", VpcId=vpc, CidrBlock=f"10.0.{number * 32}.0/19", AvailabilityZone=zone
        )
        subnets.append(made["subnet"]["subnetId"])
    group = await moto.ask(
        "CreateSecurityGroup", GroupName="runners", GroupDescription="Runners", VpcId=vpc
    )
    return Network(vpc, names, tuple(subnets), group["groupId"])
