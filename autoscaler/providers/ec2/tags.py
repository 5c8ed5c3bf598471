"""The tags of all resources that this provider creates."""

from collections.abc import Mapping
from types import MappingProxyType

MAX_TAG_VALUE = 256
"""EC2's limit on a tag's value, in characters."""

FLEET = "autoscaler:fleet"
"""The fleet's name, by which lists are filtered."""

INSTALLATION = "autoscaler:installation"
"""The random id of the installation that owns the machine."""

SKU = "autoscaler:sku"
"""The SKU the machine was launched for."""

LAUNCH_REQUEST = "autoscaler:launch-request"
"""The id of the launch request. It identifies the request of a machine if the answer was lost."""

PUBLISHED = "autoscaler:published"
"""The tag that `autoscaler images publish` gives to an image that passed its test."""

RECIPE_PREFIX = "autoscaler/"
"""The names of images that the recipes in ami/ make begin so. Machines use them only with the tag PUBLISHED."""

FIELDS: Mapping[str, str] = MappingProxyType(
    {
        FLEET: "fleet",
        INSTALLATION: "installation",
        SKU: "sku",
        LAUNCH_REQUEST: "launch_request",
    }
)
"""The fields of `rows.InstanceRow` by tag key."""


def tag_list(tags: Mapping[str, str]) -> list[dict[str, str]]:
    """Return tags in the form of EC2's requests, in the order of the keys."""
    return [{"Key": key, "Value": tags[key]} for key in sorted(tags)]
