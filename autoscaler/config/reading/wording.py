"""Says in plain words what pydantic found wrong with a value.

`explain` quotes the value and adds the line and the fix, for files. `phrase` does not quote it, because it may
be a secret.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from autoscaler.config.problems import KeyPath, Problem, listed, nearest, show
from autoscaler.config.reading.document import Document
from autoscaler.config.settings.other_names import WORDS
from autoscaler.config.settings.sections import (
    container_in,
    keys,
    other_name,
    places_of,
    plain,
    section_at,
    section_in,
)
from autoscaler.config.settings.shapes import Section
from autoscaler.model.wording import counted

_KEY = "[key]"
_PLAIN_TEXT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]*")
"""Text that needs no quotes in a list of YAML."""

_AMOUNT = re.compile(r"\$?([0-9][0-9_]*(?:\.[0-9]+)?) ?(?:GB|GiB|Gi|G)?")
"""A number with a unit that its key has already."""

_MOST_PLACES = 3


class Wording(NamedTuple):
    """`VALUE is not EXPECTED`, or `VALUE is INSTEAD`; `must be EXPECTED`; and the fix for a file."""

    expected: str
    fix: str = "correct it"
    instead: str = ""


_NUMBER = Wording("a number", "write a number, without quotes")
_WHOLE = Wording("a whole number", "write digits, without quotes")
_BOOLEAN = Wording("true or false", "write true or false, without quotes")
_LIST = Wording("a list", "write [one, two], or a line with - for each")
_MAPPING = Wording("a mapping", "write `key: value` lines below it")
_LISTED = Wording("{expected}", "write {expected}")

_WORDINGS: Mapping[str, Wording] = MappingProxyType(
    {
        "string_type": Wording("text", "put it in quotes"),
        "string_pattern_mismatch": Wording("of the form {pattern}", "write {pattern}"),
        "enum": _LISTED,
        "literal_error": _LISTED,
        "float_type": _NUMBER,
        "float_parsing": _NUMBER,
        "finite_number": Wording("a finite number"),
        "int_type": _WHOLE,
        "int_parsing": _WHOLE,
        "int_parsing_size": Wording("a smaller whole number"),
        "int_from_float": _WHOLE,
        "bool_type": _BOOLEAN,
        "bool_parsing": _BOOLEAN,
        "greater_than": Wording("above {gt:.15g}", "write a number above {gt:.15g}"),
        "greater_than_equal": Wording(
            "at least {ge:.15g}", "write at least {ge:.15g}", "below {ge:.15g}"
        ),
        "less_than": Wording("below {lt:.15g}", "write a number below {lt:.15g}"),
        "less_than_equal": Wording(
            "at most {le:.15g}", "write at most {le:.15g}", "above {le:.15g}"
        ),
        "list_type": _LIST,
        "tuple_type": _LIST,
        "dict_type": _MAPPING,
        "mapping_type": _MAPPING,
        "model_type": _MAPPING,
        "model_attributes_type": _MAPPING,
    }
)
"""By pydantic's type of error (docs.pydantic.dev, "Validation Errors"), with the names in its context."""

_PLAIN: Mapping[str, str] = MappingProxyType(
    {
        "missing": "is missing",
        "extra_forbidden": "is an unknown key",
        "json_invalid": "is not JSON",
    }
)

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
    if kind in _WORDINGS:
        return f"must be {_WORDINGS[kind].expected.format_map(context)}"
    return str(context["error"]) if kind == "value_error" else _PLAIN.get(kind, "is not valid")


def explain(
    document: Document, errors: Iterable[ErrorDetails], root: type[Section]
) -> Iterator[Problem]:
    """Return a problem for each error, but only one for a misspelled key: unknown, not also missing.

    `root` is the structure of the file.
    """
    errors = list(errors)
    unknown = {error["loc"] for error in errors if error["type"] == "extra_forbidden"}
    misspelt = {(*loc[:-1], _unknown(root, loc)[0]) for loc in unknown}
    for error in errors:
        if error["type"] == "missing" and error["loc"] in misspelt:
            continue
        yield document.problem(value_path(error), *sentence(error, root))


def value_path(error: ErrorDetails) -> KeyPath:
    """Return the path of the wrong value, or of the wrong key with its value."""
    path = error["loc"]
    return path[:-1] if path[-1:] == (_KEY,) else path


def sentence(error: ErrorDetails, root: type[Section]) -> tuple[str, str]:
    """Return the error and the fix."""
    kind, value, context = error["type"], error["input"], error.get("ctx", {})
    path = error["loc"]
    if kind == "extra_forbidden":
        return "unknown key", _unknown(root, path)[1]
    if kind == "missing":
        return "is missing", f"add the key {path[-1]}{_meaning(root, path)}"
    if value is None:
        return no_value(root, path)
    if kind == "wrong":
        return context["what"], context["fix"]
    if kind == "too_short":
        return "is empty", "write at least one"
    if kind not in _WORDINGS:
        return phrase(error), "correct it"
    if kind == "enum":
        return _not_a_word(value, context["expected"])
    wording = _WORDINGS[kind]
    is_what = wording.instead or f"not {wording.expected}"
    return f"{show(value)} is {is_what.format_map(context)}", _fix(wording, error, root)


def no_value(root: type[Section], path: KeyPath) -> tuple[str, str]:
    """Return the error and the fix for a key with nothing after it."""
    field = _field(root, path)
    if field is not None and field.is_required():
        return "has no value", f"write one: it is required{_meaning(root, path)}"
    return "has no value", "write one, or remove the key"


def _not_a_word(value: Any, expected: str) -> tuple[str, str]:
    words = expected.replace("'", "").replace(" or ", ", ").split(", ")
    what = f"{show(value)} is not {listed(words)}"
    if not isinstance(value, str):
        return what, f"write {listed(words)}"
    same = WORDS.get(value.lower())
    if same in words:
        return what, f"write {same}"
    meant = nearest(value, words)
    return what, f"did you mean {meant}?" if meant else f"write {listed(words)}"


def _fix(wording: Wording, error: ErrorDetails, root: type[Section]) -> str:
    """Return the fix for a value of another type, with the value in the form that is right."""
    kind, value, path = error["type"], error["input"], error["loc"]
    if kind == "string_type" and isinstance(value, dict | list):
        return "write a single value"
    field = _field(root, path)
    of_sections = field is not None and section_in(field.annotation) is not None
    if wording is _LIST and isinstance(value, str | int | float) and not of_sections:
        parts = re.split(r"[,\s]+", value.strip(", ")) if isinstance(value, str) else [value]
        shown = (one if _PLAIN_TEXT.fullmatch(str(one)) else show(one) for one in parts)
        return f"write it in brackets: [{', '.join(map(str, shown))}]"
    if wording is _LIST and isinstance(value, dict):
        return "write - before its first key, and indent its other keys to match"
    number = _AMOUNT.fullmatch(value) if isinstance(value, str) else None
    if wording in (_NUMBER, _WHOLE) and number is not None:
        return f"write {number[1].replace('_', '')}, digits without quotes"
    if wording is _MAPPING:
        return _mapping_fix(value, path, root)
    return wording.fix.format_map(error.get("ctx", {}))


def _mapping_fix(value: Any, path: KeyPath, root: type[Section]) -> str:
    field = _field(root, path)
    if field is not None and container_in(field.annotation) is Mapping and isinstance(value, list):
        if section_in(field.annotation) is None:
            return "write NAME: VALUE for each entry, without -"
        return "write NAME: for each entry, without -, and below it its keys"
    inner = section_at(root, path)
    if inner is None or not path:
        return _MAPPING.fix
    required = [key for key, one in keys(inner).items() if one.is_required()]
    alone = inner.alone or (required if len(required) == 1 else ())
    if alone and isinstance(value, str | int):
        return _with_key(alone, value, path, inner)
    if isinstance(value, str) and value in keys(inner):
        return f"write {path[-1]}: {{{value}: {{...}}}}"
    if required:
        shown = ", ".join(f"{key}: ..." for key in required)
        return f"write `key: value` lines below it, such as {{{shown}}}"
    return f"write `key: value` lines below it; known keys: {listed(list(keys(inner)))}"


def _with_key(alone: Sequence[str], value: str | int, path: KeyPath, section: type[Section]) -> str:
    """Return the fix for a single value in place of a section: the first of these keys that accepts it.

    If none does, the fix that the last one has for it.
    """
    fix = _MAPPING.fix
    for key in alone:
        try:
            section.model_validate_json(json.dumps({key: value}))
        except ValidationError as error:
            fix = sentence(error.errors(include_url=False)[0], section)[1]
            continue
        below = f"{{{key}: {value if _PLAIN_TEXT.fullmatch(str(value)) else show(value)}}}"
        return f"write {below}" if isinstance(path[-1], int) else f"write {path[-1]}: {below}"
    return fix


def _unknown(root: type[Section], path: KeyPath) -> tuple[str | None, str]:
    """Return the key of the same section that an unknown one stands for, or None, and the fix."""
    section, key = section_at(root, path[:-1]), str(path[-1])
    if section is None:
        return None, "remove it"
    own = next((one for one in keys(section) if plain(one) == plain(key)), None)
    other = other_name(section, key) if own is None else None
    if other is not None:
        return other.means or None, other.fix
    places = places_of(root, key, path[:-1]) if own is None else []
    if 0 < len(places) <= _MOST_PLACES:
        return None, f"write it as {listed(places)}"
    meant = own or nearest(key, keys(section))
    if meant is not None:
        return meant, f"did you mean {meant}?"
    return None, f"remove it; known keys: {listed(list(keys(section)))}"


def _meaning(root: type[Section], path: KeyPath) -> str:
    field = _field(root, path)
    meaning = field.description if field else None
    return f" ({meaning.rstrip('.')})" if meaning else ""


def _field(root: type[Section], path: KeyPath) -> FieldInfo | None:
    section = section_at(root, path[:-1]) if path else None
    return keys(section).get(str(path[-1])) if section else None
