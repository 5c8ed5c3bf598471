"""The types of single values in an EC2 provider's section of fleet.yaml, by name."""

from typing import Annotated

from autoscaler.config.settings.scalars import Matching

Region = Annotated[
    str, Matching("[a-z]{2,4}(-[a-z]+)+-[0-9]{1,2}", "an AWS region", "write one such as us-east-1")
]
SubnetId = Annotated[
    str, Matching("subnet-[0-9a-z]+", "a subnet id", "write one such as subnet-0123456789abcdef0")
]
SecurityGroupId = Annotated[
    str, Matching("sg-[0-9a-z]+", "a security group id", "write one such as sg-0123456789abcdef0")
]
CapacityReservation = Annotated[
    str,
    Matching(
        "cr-[0-9a-z]+", "a capacity reservation's id", "write one such as cr-0123456789abcdef0"
    ),
]
PlacementGroup = Annotated[
    str,
    Matching("[!-~]([ -~]*[!-~])?", "a placement group", "write its name, in ASCII", maximum=255),
]
Account = Annotated[
    str, Matching("[0-9]{12}", "an AWS account id", "write its 12 digits in quotes")
]
Quota = Annotated[
    str,
    Matching(
        "((spot|on-demand)/)?[A-Za-z][A-Za-z0-9 -]*",
        "a quota",
        "write a family, such as G and VT, or on-demand/G and VT",
    ),
]
