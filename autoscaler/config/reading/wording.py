"""Converts pydantic's errors into problems with a line, a plain sentence and a fix."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, get_args, get_origin

from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from autoscaler.config.importing.runner_types import RUNNER_TYPES
from autoscaler.config.problems import KeyPath, Problem, listed, nearest, show
from autoscaler.config.reading.document import Document
from autoscaler.config.settings.shapes import Section

_CONTAINERS = (tuple, Mapping)
_KEY = "[key]"


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
        if error["type"] == "too_short" and error["input"]:
            continue  # The list has entries, and each has an error of its own.
        path = error["loc"]
        if path and path[-1] == _KEY:
            path = path[:-1]
        what, fix = sentence(error, root)
        yield document.problem(path, what, fix)


def section_at(root: type[Section], path: KeyPath) -> type[Section] | None:
    """Return the section at a path from the root, if there is one."""
    section = root
    inside = False
    for part in path:
        if inside:
            inside = False
            continue
        field = keys(section).get(str(part))
        found = section_in(field.annotation) if field else None
        if field is None or found is None:
            return None
        section, inside = found, container_in(field.annotation) is not None
    return None if inside else section


def keys(section: type[Section]) -> dict[str, FieldInfo]:
    """Return a section's fields by their key in fleet.yaml."""
    return {field.alias or name: field for name, field in section.model_fields.items()}


def section_in(annotation: Any) -> type[Section] | None:
    """Return the `Section` class in a field's type, for example inside a list or mapping, or None."""
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return annotation
    return next((found for part in get_args(annotation) if (found := section_in(part))), None)


def container_in(annotation: Any) -> type | None:
    """Return `tuple` or `Mapping` if a field contains several values."""
    origin = get_origin(annotation)
    if origin in _CONTAINERS:
        return tuple if origin is tuple else Mapping
    return next((found for part in get_args(annotation) if (found := container_in(part))), None)


def _meant(root: type[Section], path: KeyPath) -> str | None:
    section = section_at(root, path[:-1])
    return nearest(str(path[-1]), keys(section)) if section else None


def sentence(error: ErrorDetails, root: type[Section]) -> tuple[str, str]:
    """Return the error and the fix."""
    kind = error["type"]
    if kind == "wrong":
        context = error["ctx"]
        return context["what"], context["fix"]
    if kind == "extra_forbidden":
        return "unknown key", _unknown_fix(root, error["loc"])
    if kind == "missing":
        return "is missing", _missing_fix(root, error["loc"])
    if error["input"] is None:
        return "has no value", "write one, or remove the key"
    if kind in _SENTENCES:
        return _SENTENCES[kind](error)
    return error["msg"], "see docs/configuration.md"


def _unknown_fix(root: type[Section], path: KeyPath) -> str:
    meant = _meant(root, path)
    if meant is not None:
        return f"did you mean {meant}?"
    if path == (RUNNER_TYPES,):
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


def _not_text(error: ErrorDetails) -> tuple[str, str]:
    value = error["input"]
    if isinstance(value, dict | list):
        return f"{show(value)} is not text", "write a single value"
    return f"{show(value)} is not text", "put it in quotes"


def _not_listed(error: ErrorDetails) -> tuple[str, str]:
    expected = error["ctx"]["expected"].replace("'", "").replace(" or ", ", ").split(", ")
    value = error["input"]
    meant = nearest(value, expected) if isinstance(value, str) else None
    fix = f"did you mean {meant}?" if meant else f"write {listed(expected)}"
    return f"{show(value)} is not {listed(expected)}", fix


def _expected(expected: str, fix: str) -> Callable[[ErrorDetails], tuple[str, str]]:
    return lambda error: (f"{show(error['input'])} is not {expected}", fix)


def _bound(word: str, key: str, fix: str) -> Callable[[ErrorDetails], tuple[str, str]]:
    def sentence(error: ErrorDetails) -> tuple[str, str]:
        bound = error["ctx"][key]
        return f"{show(error['input'])} is {word} {bound:.15g}", f"{fix} {bound:.15g}"

    return sentence


_WHOLE = _expected("a whole number", "write digits, without quotes")
_MAPPING = _expected("a mapping", "write `key: value` lines below it")

_SENTENCES: dict[str, Callable[[ErrorDetails], tuple[str, str]]] = {
    "string_type": _not_text,
    "enum": _not_listed,
    "int_type": _WHOLE,
    "int_from_float": _WHOLE,
    "float_type": _expected("a number", "write a number, without quotes"),
    "bool_type": _expected("true or false", "write true or false, without quotes"),
    "tuple_type": _expected("a list", "write [one, two] or a line with - for each"),
    "dict_type": _MAPPING,
    "model_type": _MAPPING,
    "too_short": lambda _: ("is empty", "write at least one"),
    "greater_than": _bound("not above", "gt", "write a number above"),
    "greater_than_equal": _bound("below", "ge", "write at least"),
    "less_than_equal": _bound("above", "le", "write at most"),
}
