"""Applies EC2's filters: all must match, one value of each suffices, `*` and `?` are wildcards."""

import re
from collections.abc import Mapping
from functools import lru_cache

from lab.ec2.query import Ec2Error, Tree


class Filters:
    """A request's filters, for resources whose attributes have the names in `known`."""

    def __init__(self, params: Tree, known: frozenset[str]) -> None:
        """Raises Ec2Error for a filter that these resources do not have."""
        self._filters = [
            (one.text("Name"), one.texts("Value")) for one in params.structures("Filter")
        ]
        for name, _ in self._filters:
            if name not in known and name != "tag-key" and not name.startswith("tag:"):
                raise Ec2Error("InvalidParameterValue", f"The filter '{name[:60]}' is invalid")

    def admit(self, attributes: Mapping[str, str], tags: Mapping[str, str]) -> bool:
        """Return True if a resource with these attributes (by filter name) and tags matches."""
        return all(_passes(attributes, tags, name, values) for name, values in self._filters)


def _passes(
    attributes: Mapping[str, str], tags: Mapping[str, str], name: str, values: list[str]
) -> bool:
    if name == "tag-key":
        return any(_matches(value, key) for value in values for key in tags)
    if name.startswith("tag:"):
        tag = tags.get(name.removeprefix("tag:"))
        return tag is not None and any(_matches(value, tag) for value in values)
    return any(_matches(value, attributes[name]) for value in values)


def _matches(pattern: str, text: str) -> bool:
    if "*" not in pattern and "?" not in pattern:
        return pattern == text
    return _compiled(pattern).fullmatch(text) is not None


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> re.Pattern[str]:
    escaped = re.escape(pattern).replace(r"\*", ".*").replace(r"\?", ".")
    return re.compile(escaped, re.DOTALL)
