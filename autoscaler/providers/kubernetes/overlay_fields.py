"""Finds fields of an overlay that no Pod has, in the official client's models of the API.

The API server refuses a pod with an unknown field. It may know newer fields than the client, so only a field
that looks like a known one is an error.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from autoscaler.config.problems import KeyPath, nearest
from autoscaler.providers.kubernetes.library import import_library

_ROOT: Mapping[str, str] = {"metadata": "V1ObjectMeta", "spec": "V1PodSpec"}


class Misspelled(NamedTuple):
    """A field that no Pod has, and the one that was probably meant."""

    path: KeyPath
    meant: str


def misspelled_fields(overlay: Mapping[str, Any]) -> Iterator[Misspelled]:
    """Yield the fields of an overlay that look like a Pod's and are none. Blocks for the client's import."""
    import_library()
    for key, kind in _ROOT.items():
        yield from _fields(overlay.get(key), kind, (key,))


def _fields(value: object, kind: str, path: KeyPath) -> Iterator[Misspelled]:
    """Yield the misspelled fields of a value, which has a type such as `List[V1Container]`."""
    from kubernetes.aio.client import models

    if kind.startswith("List[") and isinstance(value, list):
        for index, one in enumerate(value):
            yield from _fields(one, kind.removeprefix("List[")[:-1], (*path, index))
    # Keys of labels, selectors, requests and limits are free.
    model = getattr(models, kind, None)
    if model is None or not isinstance(value, Mapping):
        return
    types = {name: model.openapi_types[own] for own, name in model.attribute_map.items()}
    for key, one in value.items():
        if key in types:
            yield from _fields(one, types[key], (*path, key))
        elif meant := nearest(str(key), types):
            yield Misspelled((*path, str(key)), meant)
