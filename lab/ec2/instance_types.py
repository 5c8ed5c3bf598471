"""What DescribeInstanceTypes says of each instance type: AWS's own answer, which moto brings."""

import gzip
import json
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any


def described_type(name: str) -> dict[str, Any]:
    """Return the InstanceTypeInfo of a type; empty if moto does not have it."""
    found: dict[str, Any] = _types().get(name, {})
    return found


@cache
def _types() -> dict[str, Any]:
    # Find moto without importing it, which takes half a second.
    moto = find_spec("moto")
    (root,) = (moto.submodule_search_locations if moto is not None else None) or ("",)
    found: dict[str, Any] = json.loads(
        gzip.decompress(Path(root, "ec2/resources/instance_types.json.gz").read_bytes())
    )
    return found
