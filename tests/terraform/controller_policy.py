"""The controller's policy as the module `permissions` writes it, and as docs/ec2.md shows it."""

import json
import re
from collections.abc import Mapping
from string import Template
from typing import Any

from lab.terraform.commands import SOURCE

FILE = SOURCE / "modules" / "permissions" / "policy.json.tftpl"
DOCUMENT = SOURCE.parent / "docs" / "ec2.md"


def rendered(values: Mapping[str, str]) -> dict[str, Any]:
    """Return the policy with these values: `templatefile` writes variables as `string.Template` does."""
    found: dict[str, Any] = json.loads(Template(FILE.read_text()).substitute(values))
    return found


def documented() -> dict[str, Any]:
    """Return the policy of docs/ec2.md."""
    text = DOCUMENT.read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(re.findall(r"```json\n(.*?)```", text, re.DOTALL)[0])
    return found


def allowed_actions(policy: Mapping[str, Any]) -> set[str]:
    """Return every action of a policy."""
    found: set[str] = set()
    for statement in policy["Statement"]:
        named = statement["Action"]
        found |= {named} if isinstance(named, str) else set(named)
    return found
