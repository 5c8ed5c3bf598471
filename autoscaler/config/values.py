"""Reads single values by their shape, whatever stands beside them in the file.

What the shapes are is `shapes`' part; which key has which, `settings`'.
"""

import json
from functools import cache
from typing import Any

from pydantic import TypeAdapter, ValidationError

from autoscaler.config.document import Node
from autoscaler.config.explain import sentence


def read(shape: Any, value: object) -> Any:
    """A value that fleet.yaml takes where it wants this shape. Raises ValueError, saying why not."""
    try:
        return _adapter(shape).validate_json(json.dumps(value), strict=True)
    except ValidationError as error:
        raise ValueError(sentence(error.errors(include_url=False)[0])[0]) from None


def valid(node: Node | None, shape: Any, *path: str | int) -> Any:
    """The value at a path below `node`; None where there is none, or one of another shape."""
    found = node.get(*path) if node is not None else None
    if found is None:
        return None
    try:
        return read(shape, found.plain())
    except ValueError:
        return None


@cache
def _adapter(shape: Any) -> TypeAdapter[Any]:
    return TypeAdapter(shape)
