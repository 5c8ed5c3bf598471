"""The tags of all resources that this provider creates."""

from collections.abc import Mapping
from types import MappingProxyType

FLEET = "autoscaler:fleet"
"""The fleet's name: what lists are filtered by."""

INSTALLATION = "autoscaler:installation"
"""The random id of the installation that owns the machine."""

SKU = "autoscaler:sku"
"""The SKU the machine was launched for."""

CALL = "autoscaler:call"
"""The call that launched the machine: it identifies the call if the answer was lost."""

FIELDS: Mapping[str, str] = MappingProxyType(
    {FLEET: "fleet", INSTALLATION: "installation", SKU: "sku", CALL: "call"}
)
"""Tag key to the field of `rows.InstanceRow` that carries it."""


def tag_list(tags: Mapping[str, str]) -> list[dict[str, str]]:
    """Return tags in the form of EC2's requests, in the order of the keys."""
    return [{"Key": key, "Value": tags[key]} for key in sorted(tags)]
