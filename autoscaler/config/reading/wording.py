"""Says in plain words what pydantic found wrong with a value.

`explain` quotes the value and adds the line and the fix, for files. `phrase` does not quote it, because it may
be a secret.
"""

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from pydantic_core import ErrorDetails

from autoscaler.config.problems import KeyPath, Problem, listed, nearest, show
from autoscaler.config.reading.document import Document
from autoscaler.config.settings.sections import keys, section_at
from autoscaler.config.settings.shapes import Section
from autoscaler.model.wording import counted

_KEY = "[key]"
_SCALE_CONFIG = ("runner_types",)


class Wording(NamedTuple):
    """`VALUE is not EXPECTED`, or `VALUE is INSTEAD`; `must be EXPECTED`; and the fix for a file."""

    expected: str
    fix: str = "correct it"
    instead: str = ""


_NUMBER = Wording("a number", "write a number, without quotes")
_WHOLE = Wording("a whole number", "write digits, without quotes")
_BOOLEAN = Wording("true or false", "write true or false, without quotes")
_LIST = Wording("a list", "write [one, two] or a line with - for each")
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
    misspelt = {(*loc[:-1], _meant(root, loc)) for loc in unknown}
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
    if kind == "wrong":
        return context["what"], context["fix"]
    if kind == "extra_forbidden":
        return "unknown key", _unknown_fix(root, error["loc"])
    if kind == "missing":
        return "is missing", _missing_fix(root, error["loc"])
    if value is None:
        return "has no value", "write one, or remove the key"
    if kind == "too_short":
        return "is empty", "write at least one"
    if kind not in _WORDINGS:
        return phrase(error), "correct it"
    if kind == "enum":
        words = context["expected"].replace("'", "").replace(" or ", ", ").split(", ")
        context = {"expected": listed(words)}
        meant = nearest(value, words) if isinstance(value, str) else None
        if meant is not None:
            return f"{show(value)} is not {listed(words)}", f"did you mean {meant}?"
    wording = _WORDINGS[kind]
    is_what = wording.instead or f"not {wording.expected}"
    fix = wording.fix.format_map(context)
    if kind == "string_type" and isinstance(value, dict | list):
        fix = "write a single value"
    return f"{show(value)} is {is_what.format_map(context)}", fix


def _meant(root: type[Section], path: KeyPath) -> str | None:
    section = section_at(root, path[:-1])
    return nearest(str(path[-1]), keys(section)) if section else None


def _unknown_fix(root: type[Section], path: KeyPath) -> str:
    meant = _meant(root, path)
    if meant is not None:
        return f"did you mean {meant}?"
    if path == _SCALE_CONFIG:
        return "this is a scale-config.yml: convert it with autoscaler import"
    section = section_at(root, path[:-1])
    known = listed(list(keys(section))) if section else ""
    return f"remove it; known keys: {known}"


def _missing_fix(root: type[Section], path: KeyPath) -> str:
    section = section_at(root, path[:-1])
    field = keys(section).get(str(path[-1])) if section else None
    meaning = field.description if field else None
    about = f" ({meaning.rstrip('.')})" if meaning else ""
    return f"add the key {path[-1]}{about}"
