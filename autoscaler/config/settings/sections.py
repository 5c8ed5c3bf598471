"""Finds the keys, sections and values of a `Section`, as fleet.yaml names them."""

from collections.abc import Iterator, Mapping
from typing import Any, get_args, get_origin

from pydantic.fields import FieldInfo

from autoscaler.config.problems import KeyPath
from autoscaler.config.settings.shapes import Section

_CONTAINERS = (tuple, Mapping)


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


def values_in(value: object, path: KeyPath = ()) -> Iterator[tuple[KeyPath, object]]:
    """Return every value in a section, mapping or tuple with its path, except keys without a value."""
    yield path, value
    below: Iterator[tuple[str | int, object]] = iter(())
    if isinstance(value, Section):
        names = {name: field.alias or name for name, field in type(value).model_fields.items()}
        below = ((key, getattr(value, name, None)) for name, key in names.items())
    elif isinstance(value, Mapping):
        below = iter(value.items())
    elif isinstance(value, tuple):
        below = enumerate(value)
    for key, child in below:
        yield from values_in(child, (*path, key))
