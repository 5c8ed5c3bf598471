"""Writes SKUs as the text of a fleet.yaml: its `skus` part, or a complete file with placeholders.

`load` reads the written values back unchanged. `check` refuses placeholders that were not replaced.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from autoscaler.config.problems import show
from autoscaler.config.reading.placeholders import (
    APP_ID,
    HOST,
    ORGANIZATION,
    SECURITY_GROUP,
    SUBNET,
)

_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9._-]*")
_WORDS = {"null", "true", "false"}

_REST = f"""\
# Correct each entry that begins with YOUR-: `autoscaler check` lists them. Correct the region, choose
# a name for the fleet, and raise the limits, which are low on purpose. The file names below are
# relative to the folder of this file.
fleet: imported
github:
  apps:
    - {{id: {APP_ID}, private_key_file: github-app.pem}}
  webhook_secret_file: webhook-secret
  scopes:
    - {{org: {ORGANIZATION}}}
server:
  listen: 0.0.0.0:8443
  tls: {{certificate_file: server.pem, key_file: server.key}}
  public_url: https://{HOST}:8443
store: sqlite:///state.db
limits: {{machines: 10, dollars_per_hour: 20}}
providers:
  PROVIDER:
    ec2:
      region: us-east-1
      subnets: [{SUBNET}]
      security_groups: [{SECURITY_GROUP}]
"""


def skus_text(skus: Mapping[str, Mapping[str, Any]], source: str) -> str:
    """Return the `skus` part, with a first line that names the source; at least one SKU."""
    lines = [f"# Imported from {show(source)}.", "skus:"]
    for name, sku in skus.items():
        lines.append(f"  {scalar(name)}:")
        lines += [f"    {key}: {_flow(value)}" for key, value in sku.items()]
    return "\n".join(lines) + "\n"


def whole_text(skus: Mapping[str, Mapping[str, Any]], source: str, provider: str) -> str:
    """Return a complete fleet.yaml with an EC2 provider of this name."""
    return _REST.replace("PROVIDER", scalar(provider)) + skus_text(skus, source)


def _flow(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{scalar(key)}: {_flow(at)}" for key, at in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_flow, value)) + "]"
    return scalar(value) if isinstance(value, str) else json.dumps(value)


def scalar(text: str) -> str:
    """Return text as a YAML scalar, in quotes if it needs them."""
    plain = _PLAIN.fullmatch(text) and text.lower() not in _WORDS
    return text if plain else json.dumps(text)
