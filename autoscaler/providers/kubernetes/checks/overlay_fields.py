"""Finds fields of an overlay that no Pod has, or has with another type, in the official client's models.

The API server refuses a pod with an unknown field. It may know newer fields than the client, so only a field
that looks like a known one is an error.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from autoscaler.config.problems import KeyPath, nearest, show
from autoscaler.providers.kubernetes.api.library import import_library

_ROOT: Mapping[str, str] = {"metadata": "V1ObjectMeta", "spec": "V1PodSpec"}

_QUANTITIES = frozenset({"sizeLimit", "divisor"})
"""Fields of the type `str` in the models that may be numbers (Kubernetes API reference, "Quantity")."""


class WrongField(NamedTuple):
    """A field for which the API server refuses the pod. `misspelled`: it looks like another one."""

    path: KeyPath
    what: str
    fix: str
    misspelled: bool = False


def wrong_fields(overlay: Mapping[str, Any]) -> Iterator[WrongField]:
    """Yield the fields of an overlay that look like a Pod's and are none, or that have another type than there.

    Blocks for the client's import.
    """
    import_library()
    for key, kind in _ROOT.items():
        yield from _fields(overlay.get(key), kind, (key,))


def _fields(value: object, kind: str, path: KeyPath) -> Iterator[WrongField]:
    """Yield the wrong fields of a value that is to have a type such as `List[V1Container]`."""
    from kubernetes.aio.client import models

    model = getattr(models, kind, None)
    if value is None:
        return  # It removes the field from the pod.
    if wrong := _wrong_type(value, "model" if model is not None else kind, path):
        yield wrong
    elif kind.startswith("List[") and isinstance(value, list):
        for index, one in enumerate(value):
            yield from _fields(one, kind.removeprefix("List[")[:-1], (*path, index))
    # Keys of labels, selectors, requests and limits are free.
    elif model is not None and isinstance(value, Mapping):
        types = {name: model.openapi_types[own] for own, name in model.attribute_map.items()}
        for key, one in value.items():
            if key in types:
                yield from _fields(one, types[key], (*path, key))
            elif meant := nearest(str(key), types):
                what = f"{show(key)} is not a field of a Pod there"
                yield WrongField((*path, str(key)), what, f"did you mean {meant}?", True)


def _wrong_type(value: object, kind: str, path: KeyPath) -> WrongField | None:
    """Return the problem of a value of another type than `kind`, or None."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if kind.startswith("List["):
        right, what, fix = isinstance(value, list), "must be a list", "write it as a list"
    elif kind.startswith("Dict[") or kind == "model":
        right, what, fix = isinstance(value, Mapping), "must be a mapping", "write it as a mapping"
    elif kind == "str":
        right = isinstance(value, str) or (number and path[-1] in _QUANTITIES)
        scalar = number or isinstance(value, bool)
        what = f"{show(value)} is not text" if scalar else "must be text"
        fix = "put it in quotes" if scalar else "write text"
    elif kind == "int":
        right = number and isinstance(value, int)
        what, fix = "must be a whole number", "write a number without quotes"
    elif kind == "bool":
        right, what, fix = isinstance(value, bool), "must be true or false", "write true or false"
    else:
        return None
    return None if right else WrongField(path, what, fix)
