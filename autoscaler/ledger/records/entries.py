"""Adds an entry to an index (sign 1), or removes it (-1): one rule for both, so that they cannot differ."""

from collections import Counter
from collections.abc import Callable
from typing import Any, TypeVar

Key = TypeVar("Key")


def put(index: Any, key: object, value: object, sign: int) -> None:
    """Add or remove an entry of a mapping. An entry that is not there is removed without an error."""
    if sign > 0:
        index[key] = value
    else:
        index.pop(key, None)


def put_in(
    groups: dict[Any, Any],
    group: object,
    key: object,
    value: object,
    sign: int,
    new: Callable[[], Any] = dict,
) -> None:
    """Add or remove an entry of a group. `new` makes a group for its first entry; an empty group is removed."""
    entries = groups.get(group)
    if sign > 0:
        if entries is None:
            entries = groups[group] = new()
        entries[key] = value
    elif entries is not None:
        entries.pop(key, None)
        if not entries:
            del groups[group]


def count(counts: Counter[Key], key: Key, sign: int) -> None:
    """Count one more or one less. A key without a count is removed."""
    counts[key] += sign
    if not counts[key]:
        del counts[key]
