"""Says in plain words what pydantic found wrong with a value, without the value, which may be a secret."""

from collections.abc import Mapping
from types import MappingProxyType

from pydantic_core import ErrorDetails

from autoscaler.model.wording import counted

_NUMBER = "must be a number"
_WHOLE = "must be a whole number"
_BOOLEAN = "must be true or false"
_LIST = "must be a list"
_MAPPING = "must be a mapping"

_PHRASES: Mapping[str, str] = MappingProxyType(
    {
        "missing": "is missing",
        "extra_forbidden": "is an unknown key",
        "string_type": "must be text",
        "string_pattern_mismatch": "must have the form {pattern}",
        "enum": "must be {expected}",
        "literal_error": "must be {expected}",
        "float_type": _NUMBER,
        "float_parsing": _NUMBER,
        "finite_number": "must be a finite number",
        "int_type": _WHOLE,
        "int_parsing": _WHOLE,
        "int_parsing_size": "must be a smaller whole number",
        "int_from_float": _WHOLE,
        "bool_type": _BOOLEAN,
        "bool_parsing": _BOOLEAN,
        "greater_than": "must be above {gt:.15g}",
        "greater_than_equal": "must be at least {ge:.15g}",
        "less_than": "must be below {lt:.15g}",
        "less_than_equal": "must be at most {le:.15g}",
        "list_type": _LIST,
        "tuple_type": _LIST,
        "dict_type": _MAPPING,
        "mapping_type": _MAPPING,
        "model_type": _MAPPING,
        "model_attributes_type": _MAPPING,
        "json_invalid": "is not JSON",
        "value_error": "{error}",
    }
)
"""The phrases by pydantic's type of error (docs.pydantic.dev, "Validation Errors"), with its context."""

_SIZES: Mapping[str, tuple[str, str, str]] = MappingProxyType(
    {
        "string_too_short": ("at least", "min_length", "character"),
        "string_too_long": ("at most", "max_length", "character"),
        "too_short": ("at least", "min_length", "entry"),
        "too_long": ("at most", "max_length", "entry"),
    }
)


def phrase(error: ErrorDetails) -> str:
    """Return such as `must be at least 1`."""
    kind, context = error["type"], error.get("ctx", {})
    if kind in _SIZES:
        bound, key, noun = _SIZES[kind]
        return f"must have {bound} {counted(context[key], noun)}"
    return _PHRASES.get(kind, "is not valid").format_map(context)
