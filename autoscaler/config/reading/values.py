"""Validates single values by their type, independently of the rest of the file.

`shapes` has the types; `settings` has the keys with their types.
"""

import json
from functools import cache
from typing import Any

from pydantic import TypeAdapter, ValidationError

from autoscaler.config.reading.document import Node
from autoscaler.config.reading.wording import sentence
from autoscaler.config.settings.shapes import Section


def read(shape: Any, value: object) -> Any:
    """Return the value if fleet.yaml accepts it for this type. Raises ValueError with the reason."""
    try:
        return _adapter(shape).validate_json(json.dumps(value), strict=True)
    except ValidationError as error:
        raise ValueError(sentence(error.errors(include_url=False)[0], Section)[0]) from None


def valid(node: Node | None, shape: Any, *path: str | int) -> Any:
    """Return the value at a path below `node`, or None if there is none of this type."""
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
