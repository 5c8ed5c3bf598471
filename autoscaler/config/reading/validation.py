"""Validates a document with pydantic, and keeps what is valid, so that one error hides no other."""

import json
from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from autoscaler.config.problems import KeyPath, Problem
from autoscaler.config.reading.document import Document
from autoscaler.config.reading.wording import explain, value_path
from autoscaler.config.settings.sections import container_in, section_in
from autoscaler.config.settings.shapes import Section

_NO_VALUE = object()

_S = TypeVar("_S", bound=Section)


def validate(document: Document, structure: type[_S]) -> tuple[_S, list[Problem]]:
    """Return the content of a document as a section, and what is wrong with single values.

    Reading a key with an error raises `NoValueError`. A list with a wrong entry has no value, because entries
    are named by their positions; a mapping loses the wrong entry. SKUs, launch options and other sections stay
    in their mapping or list, without their wrong keys.
    """
    try:
        # As JSON, because pydantic's strict mode converts lists to tuples and text to enums only there.
        return structure.model_validate_json(json.dumps(document.content)), []
    except ValidationError as error:
        # For pydantic, a list is too short, too, if each of its entries has an error.
        found = error.errors(include_url=False)
        errors = [one for one in found if one["type"] != "too_short" or not one["input"]]
    wrong = {value_path(one) for one in errors}
    around = {path[:end] for path in wrong for end in range(len(path))}
    part = _Part(wrong, around).section(structure, document.content, ())
    assert isinstance(part, structure)
    return part, list(explain(document, errors, structure))


class _Part:
    """`wrong` are the paths of the wrong values, and `around` those of all that contain one."""

    def __init__(self, wrong: set[KeyPath], around: set[KeyPath]) -> None:
        self._wrong, self._around = wrong, around

    def section(self, section: type[Section], content: Any, path: KeyPath) -> Section:
        keys = {name: field.alias or name for name, field in section.model_fields.items()}
        given = {
            name: key for name, key in keys.items() if isinstance(content, dict) and key in content
        }
        part = section.model_construct(set(given))
        if not isinstance(content, dict):
            part.__dict__.clear()
        for name, key in given.items():
            value = self._value(section, name, content[key], (*path, key))
            part.__dict__[name] = value
            if value is _NO_VALUE:
                del part.__dict__[name]
        return part

    def _value(self, section: type[Section], name: str, value: Any, path: KeyPath) -> Any:
        if path in self._wrong:
            return _NO_VALUE
        if path not in self._around:
            return _adapter(section, name).validate_json(json.dumps(value), strict=True)
        annotation = section.model_fields[name].annotation
        inner, container = section_in(annotation), container_in(annotation)
        if inner is None and container is not Mapping:
            return _NO_VALUE
        if inner is None:
            kept = {key: one for key, one in value.items() if (*path, key) not in self._wrong}
            return _adapter(section, name).validate_json(json.dumps(kept), strict=True)
        if container is None:
            return self.section(inner, value, path)
        if container is tuple:
            entries = enumerate(value)
            return tuple(self.section(inner, one, (*path, index)) for index, one in entries)
        return {key: self.section(inner, one, (*path, key)) for key, one in value.items()}


@cache
def _adapter(section: type[Section], name: str) -> TypeAdapter[Any]:
    field = section.model_fields[name]
    shape: Any = (
        Annotated[(field.annotation, *field.metadata)] if field.metadata else field.annotation
    )
    return TypeAdapter(shape)
