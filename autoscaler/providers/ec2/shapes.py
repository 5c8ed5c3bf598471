"""The types of single values in the keys of fleet.yaml that only EC2 has, by name.

Limits of tags: EC2 User Guide, "Tag restrictions". EC2 allows all characters.
"""

import re
from collections.abc import Mapping
from typing import Annotated

from pydantic import AfterValidator

from autoscaler.config.problems import show
from autoscaler.config.settings.scalars import Matching, wrong


def _no_zone(text: str) -> str:
    found = re.fullmatch("([a-z]{2,4}(?:-[a-z]+)+-[0-9]{1,2})[a-z]", text)
    if found is not None:
        raise wrong(f"{show(text)} is a zone", f"write {found[1]}: the subnets decide the zone")
    return text


Region = Annotated[
    str,
    AfterValidator(_no_zone),
    Matching("[a-z]{2,4}(-[a-z]+)+-[0-9]{1,2}", "an AWS region", "write one such as us-east-1"),
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
KmsKey = Annotated[
    str,
    Matching(
        r"(arn:aws[a-z-]*:kms:[a-z0-9-]+:[0-9]{12}:)?alias/[A-Za-z0-9/_-]{1,250}"
        r"|arn:aws[a-z-]*:kms:[a-z0-9-]+:[0-9]{12}:key/[a-z0-9-]+"
        r"|mrk-[0-9a-f]{32}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}",
        "a KMS key",
        "write a key's id, alias/NAME, or the ARN of either",
        maximum=2048,
    ),
]

MAX_TAGS = 45
"""EC2's limit of 50 tags for a resource, less the controller's five."""


def _check_key(text: str) -> str:
    if text.lower().startswith("aws:"):
        raise wrong(f"{show(text)} begins with aws:, which AWS reserves", "use another prefix")
    if text == "Name" or text.startswith("autoscaler:"):
        raise wrong(f"{show(text)} is a tag that the controller sets", "use another key")
    return text


def _check_count(tags: Mapping[str, str]) -> Mapping[str, str]:
    if len(tags) > MAX_TAGS:
        what = f"has {len(tags)} tags: AWS allows 50, and 5 are the controller's"
        raise wrong(what, f"keep {MAX_TAGS}")
    return tags


TagKey = Annotated[
    str,
    Matching(
        r"[^\x00-\x1f\x7f]+", "the key of a tag", "write 1 to 128 characters on one line", 128
    ),
    AfterValidator(_check_key),
]
TagValue = Annotated[
    str,
    Matching(r"[^\x00-\x1f\x7f]*", "the value of a tag", "write it on one line", maximum=256),
]
Tags = Annotated[Mapping[TagKey, TagValue], AfterValidator(_check_count)]
