"""Merges an operator's overlay into a pod, and refuses one that would break a rule. Pure.

An overlay has the form of a Pod: `metadata` with labels and annotations, and `spec`.

- Mappings are merged key by key. `null` removes a key.
- Lists of `MERGE_KEYS` are merged element by element: an element with the same key is merged into the
  pod's one, another one is added. These are the merge keys of Kubernetes' strategic merge patch (API
  reference, `patchStrategy`).
- Tolerations are added to those of the pod.
- Any other list replaces the pod's one.
- Init containers of an overlay run before the agent, so that they do not delay an assigned job.

What the provider relies on stays as it is (`overlay_rules`). What containers may have, the namespace's Pod
Security level decides: see docs/kubernetes.md, "The overlay".
"""

from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from types import MappingProxyType
from typing import Any

from autoscaler.config.problems import KeyPath
from autoscaler.providers.kubernetes.manifest.overlay_rules import rule_problems
from autoscaler.providers.kubernetes.manifest.visible_gpus import visible_gpu_problems
from autoscaler.providers.kubernetes.settings import Accelerator

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

_ADDED = frozenset({"tolerations"})


class OverlayError(ValueError):
    """An overlay breaks rules. Each of the `problems` begins with the pod's key, and says why."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(dict.fromkeys(problems))
        super().__init__("; ".join(self.problems))


def merged(
    pod: Mapping[str, Any], overlay: Mapping[str, Any], accelerator: Accelerator | None = None
) -> dict[str, Any]:
    """Return the pod with the overlay merged into it. Raises OverlayError with all problems.

    `accelerator` is what the generated containers request.
    """
    problems: list[str] = []
    usable: dict[str, Any] = {}
    for key, value in overlay.items():
        if key not in ("metadata", "spec"):
            problems.append(f"{key}: an overlay has metadata and spec only")
        elif not isinstance(value, Mapping):
            problems.append(f"{key}: must be a mapping")
        else:
            usable[key] = value
    result: dict[str, Any] = _merge(deepcopy(dict(pod)), usable, "", problems)
    problems += rule_problems(pod, usable, result)
    problems += visible_gpu_problems(result, accelerator)
    if problems:
        raise OverlayError(problems)
    return result


def _merge(value: Any, overlay: Any, path: str, problems: list[str]) -> Any:
    """Return the merged value. What cannot be merged stays as it is in the pod, and is a problem."""
    if isinstance(overlay, Mapping) and isinstance(value, Mapping):
        found = dict(value)
        for key, new in overlay.items():
            if new is None:
                found.pop(key, None)
            else:
                below = f"{path}.{key}" if path else str(key)
                found[key] = _merge(found.get(key), new, below, problems)
        return found
    if isinstance(overlay, list) and isinstance(value, list):
        name = path.rpartition(".")[2].partition("[")[0]
        if name in _ADDED:
            return [*value, *overlay]
        if name in MERGE_KEYS:
            return _merge_lists(value, overlay, MERGE_KEYS[name], path, problems)
    for kind, word in ((Mapping, "mapping"), (list, "list")):
        if isinstance(value, kind) and not isinstance(overlay, kind):
            problems.append(f"{path}: must be a {word}")
            return value
    return deepcopy(overlay)


def _merge_lists(
    value: list[Any], overlay: list[Any], key: str, path: str, problems: list[str]
) -> list[Any]:
    found = list(value)
    for new in overlay:
        if not isinstance(new, Mapping) or not isinstance(new.get(key), str | int):
            problems.append(f"{path}: each element needs {key}")
            continue
        for index, old in enumerate(found):
            if isinstance(old, Mapping) and old.get(key) == new[key]:
                found[index] = _merge(old, new, f"{path}[{new[key]}]", problems)
                break
        else:
            found.append(deepcopy(dict(new)))
    return found


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
