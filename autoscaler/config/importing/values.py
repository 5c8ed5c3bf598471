"""Validates single values by their type, independently of a whole fleet.yaml."""

import json
from functools import cache
from typing import Any

from pydantic import TypeAdapter, ValidationError

from autoscaler.config.reading.wording import sentence
from autoscaler.config.settings.shapes import Section


def read(shape: Any, value: object) -> Any:
    """Return the value if fleet.yaml accepts it for this type. Raises ValueError with the reason."""
    try:
        return _adapter(shape).validate_json(json.dumps(value), strict=True)
    except ValidationError as error:
        raise ValueError(sentence(error.errors(include_url=False)[0], Section)[0]) from None


@cache
def _adapter(shape: Any) -> TypeAdapter[Any]:
    return TypeAdapter(shape)
