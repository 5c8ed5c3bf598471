"""Reads fields of a pod that an operator wrote: they may be absent, or have another type. Pure."""

import posixpath
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

CONTAINER_LISTS = ("initContainers", "containers")
"""The fields of a new pod's spec that hold containers."""


def elements(value: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    """Return the mappings in the list of a field."""
    found = value.get(key)
    if not isinstance(found, list):
        return []
    return [one for one in found if isinstance(one, Mapping)]


def mapping(value: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Return the mapping of a field, or an empty one."""
    found = value.get(key)
    return found if isinstance(found, Mapping) else {}


def plain_path(path: str) -> PurePosixPath:
    """Return an absolute path without `..` and without a second slash."""
    return PurePosixPath(posixpath.normpath("/" + path.lstrip("/")))
