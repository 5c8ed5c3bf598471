"""Finds the keys, sections and values of a `Section`, as fleet.yaml names them."""

from collections.abc import Iterator, Mapping
from typing import Any, get_args, get_origin

from pydantic.fields import FieldInfo

from autoscaler.config.problems import KeyPath
from autoscaler.config.settings.other_names import OtherName
from autoscaler.config.settings.shapes import Section

_CONTAINERS = (tuple, Mapping)

_ENTRY: Mapping[type | None, tuple[str, ...]] = {None: (), tuple: ("[]",), Mapping: ("<name>",)}
"""The part of a place between the key of a list or mapping of sections and the keys of these."""


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


def plain(key: str) -> str:
    """Return a key in lower case without - and _, so that `minRunners` and `min_runners` are the same."""
    return key.lower().replace("-", "").replace("_", "")


def other_name(section: type[Section], key: str) -> OtherName | None:
    """Return what to write instead of a key of another tool, or None if it is no such key."""
    tables = (one.others for one in section.__mro__ if issubclass(one, Section))
    return next((found for table in tables if (found := table.get(plain(key)))), None)


def places_of(root: type[Section], key: str, near: KeyPath) -> list[str]:
    """Return where the structure has a key of this name, as docs/configuration.md writes it.

    These are the highest places below `near`, and if there are none, those in the whole file.
    """
    found = [place for place in _places(root, ()) if plain(place[-1]) == plain(key)]
    here = _written_place(root, near)
    below = [place for place in found if place[: len(here)] == here] or found
    depth = min(map(len, below), default=0)
    return [_dotted(place) for place in below if len(place) == depth]


def _places(section: type[Section], above: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for key, field in keys(section).items():
        yield (*above, key)
        inner = section_in(field.annotation)
        if inner is not None:
            yield from _places(inner, (*above, key, *_ENTRY[container_in(field.annotation)]))


def _written_place(root: type[Section], path: KeyPath) -> tuple[str, ...]:
    """Return a path with `[]` and `<name>` for the positions and names in it."""
    section = root
    place: tuple[str, ...] = ()
    parts = iter(path)
    for part in parts:
        field = keys(section)[str(part)]
        section = section_in(field.annotation) or section
        entry = _ENTRY[container_in(field.annotation)]
        place += (str(part), *entry)
        for _ in entry:
            next(parts, None)
    return place


def _dotted(place: tuple[str, ...]) -> str:
    return ".".join(place).replace(".[]", "[]")


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
