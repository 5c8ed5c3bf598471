"""Finds the place in an overlay that a key of the pod means, such as `spec.containers[runner].env[A]`. Pure."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from autoscaler.config.problems import KeyPath

MERGE_KEYS: Mapping[str, str] = MappingProxyType(
    {
        "containers": "name",
        "initContainers": "name",
        "volumes": "name",
        "env": "name",
        "imagePullSecrets": "name",
        "volumeMounts": "mountPath",
        "volumeDevices": "devicePath",
        "ports": "containerPort",
        "hostAliases": "ip",
    }
)
"""The field that names the elements of a list (Kubernetes API reference, `patchStrategy`)."""

_NAME = "name"
"""The field that names the elements of other lists, such as sysctls."""


def overlay_path(overlay: Mapping[str, Any], key: str) -> KeyPath:
    """Return the path of a key of the pod in its overlay, as far as the overlay has it."""
    return max(_paths(overlay, key, _NAME, ()), key=len)


def _paths(value: Any, rest: str, element: str, path: KeyPath) -> Iterator[KeyPath]:
    """Yield the paths that begin as `rest` does. `element` names the elements of a list."""
    yield path
    if isinstance(value, Mapping):
        # Keys may have dots, as those of labels do.
        for key, one in value.items():
            after = rest.removeprefix(str(key))
            if after != rest and (not after or after[0] in ".["):
                named = MERGE_KEYS.get(str(key), _NAME)
                yield from _paths(one, after.removeprefix("."), named, (*path, str(key)))
    elif isinstance(value, list):
        for index, one in enumerate(value):
            name = f"[{one.get(element)}]" if isinstance(one, Mapping) else ""
            if name and rest.startswith(name):
                after = rest.removeprefix(name).removeprefix(".")
                yield from _paths(one, after, element, (*path, index))
