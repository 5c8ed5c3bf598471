"""Merges an operator's overlay into a pod, and refuses one that would break a rule. Pure.

An overlay has the form of a Pod: `metadata` with labels and annotations, and `spec`.

- Mappings are merged key by key. `null` removes a key.
- Lists of `_MERGE_KEYS` are merged element by element: an element with the same key is merged into the
  pod's one, another one is added. These are the merge keys of Kubernetes' strategic merge patch (API
  reference, `patchStrategy`).
- Tolerations are added to those of the pod.
- Any other list replaces the pod's one.
- Init containers of an overlay run before the agent, so that they do not delay an assigned job.

What the provider relies on stays as it is (`overlay_rules`), and no container gets more than Pod Security
`restricted` allows (`pod_security`): see docs/kubernetes.md, "The overlay".
"""

from collections.abc import Mapping
from copy import deepcopy
from types import MappingProxyType
from typing import Any

from autoscaler.providers.kubernetes.overlay_rules import rule_problems
from autoscaler.providers.kubernetes.pod_security import pod_security_problems

_MERGE_KEYS: Mapping[str, str] = MappingProxyType(
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
_ADDED = frozenset({"tolerations"})


class OverlayError(ValueError):
    """An overlay breaks a rule. The message names the key, and says why."""


def merged(pod: Mapping[str, Any], overlay: Mapping[str, Any]) -> dict[str, Any]:
    """Return the pod with the overlay merged into it. Raises OverlayError."""
    unknown = sorted(set(overlay) - {"metadata", "spec"})
    if unknown:
        raise OverlayError(f"{unknown[0]}: an overlay has metadata and spec only")
    for key in overlay:
        if not isinstance(overlay[key], Mapping):
            raise OverlayError(f"{key}: must be a mapping")
    result: dict[str, Any] = _merge(deepcopy(dict(pod)), overlay, "")
    for problem in (
        *rule_problems(pod, overlay, result),
        *pod_security_problems(pod, result),
    ):
        raise OverlayError(problem)
    return result


def _merge(value: Any, overlay: Any, path: str) -> Any:
    if isinstance(overlay, Mapping) and isinstance(value, Mapping):
        found = dict(value)
        for key, new in overlay.items():
            if new is None:
                found.pop(key, None)
            else:
                found[key] = _merge(found.get(key), new, f"{path}.{key}" if path else str(key))
        return found
    if isinstance(overlay, list) and isinstance(value, list):
        name = path.rpartition(".")[2].partition("[")[0]
        if name in _ADDED:
            return [*value, *overlay]
        if name in _MERGE_KEYS:
            return _merge_lists(value, overlay, _MERGE_KEYS[name], path)
    if isinstance(value, Mapping) and not isinstance(overlay, Mapping):
        raise OverlayError(f"{path}: must be a mapping")
    if isinstance(value, list) and not isinstance(overlay, list):
        raise OverlayError(f"{path}: must be a list")
    return deepcopy(overlay)


def _merge_lists(value: list[Any], overlay: list[Any], key: str, path: str) -> list[Any]:
    found = list(value)
    for new in overlay:
        if not isinstance(new, Mapping) or not isinstance(new.get(key), str | int):
            raise OverlayError(f"{path}: each element needs {key}")
        for index, old in enumerate(found):
            if isinstance(old, Mapping) and old.get(key) == new[key]:
                found[index] = _merge(old, new, f"{path}[{new[key]}]")
                break
        else:
            found.append(deepcopy(dict(new)))
    return found
