"""The tags that an operator gives to resources on AWS.

Limits: EC2 User Guide, "Tag restrictions". EC2 allows all characters.
"""

from collections.abc import Mapping
from typing import Annotated

from pydantic import AfterValidator

from autoscaler.config.problems import show
from autoscaler.config.settings.scalars import Matching, wrong

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
