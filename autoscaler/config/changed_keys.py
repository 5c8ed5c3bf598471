"""Compares two configurations: which keys differ, and which of them take effect without a restart."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from autoscaler.config.problems import KeyPath, dotted
from autoscaler.config.settings import Settings

RELOADABLE: tuple[KeyPath, ...] = (("limits",), ("skus",), ("github", "registrations"))
"""The keys whose changes a reload applies."""

RESTART_FIX = "restart the controller to change it, or undo the change"


def changed_keys(before: Settings, after: Settings) -> list[KeyPath]:
    """Return the paths of all values that differ, in the order of the file that has them."""
    return list(_differences((), _plain(before), _plain(after)))


def takes_effect(path: KeyPath) -> bool:
    """Return True if a reload applies a change of this key."""
    return any(path[: len(prefix)] == prefix for prefix in RELOADABLE)


def shown(paths: Sequence[KeyPath]) -> list[str]:
    """Return the paths as messages name them."""
    return [dotted(path) for path in paths]


def _plain(settings: Settings) -> Any:
    return settings.model_dump(mode="json", by_alias=True)


def _differences(path: KeyPath, before: Any, after: Any) -> Iterator[KeyPath]:
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in dict.fromkeys([*before, *after]):
            if key not in before or key not in after:
                yield (*path, key)
            else:
                yield from _differences((*path, key), before[key], after[key])
    elif before != after:
        yield path
