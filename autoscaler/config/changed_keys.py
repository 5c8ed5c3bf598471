"""Compares two configurations: which keys differ, and what a change of each one takes."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from autoscaler.config.problems import KeyPath, dotted
from autoscaler.config.settings.fleet import Settings
from autoscaler.model.identifiers import ProviderName

APPLIED_LIVE: tuple[KeyPath, ...] = (("limits",), ("skus",), ("github", "registrations"))
"""The keys whose changes a running controller uses. For the others, a reload restarts it."""

IDENTITY: tuple[KeyPath, ...] = (("fleet",), ("store",), ("github", "api_url"))
"""The keys by which the controller finds its machines and what it knows of their jobs."""


def changed_keys(before: Settings, after: Settings) -> list[KeyPath]:
    """Return the paths of all values that differ, in the order of the file that has them."""
    return list(_differences((), _plain(before), _plain(after)))


def is_applied_live(path: KeyPath) -> bool:
    """Return True if a running controller can use a change of this key."""
    return any(path[: len(prefix)] == prefix for prefix in APPLIED_LIVE)


def is_identity(path: KeyPath) -> bool:
    """Return True if a change of this key loses every existing machine."""
    return path in IDENTITY


def moved_provider(path: KeyPath, before: Settings) -> ProviderName | None:
    """Return the provider whose existing machines a change of this key loses, or None.

    That is a provider which is removed, of another kind, or at another place.
    """
    if path[0] != "providers" or path[1] not in before.providers:
        return None
    name = str(path[1])
    is_section_kept = len(path) > len(("providers", name, "kind"))
    if is_section_kept and path[3] not in before.providers[name].section.place:
        return None
    return ProviderName(name)


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
