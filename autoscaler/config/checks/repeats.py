"""Finds values that are listed twice."""

from collections.abc import Hashable, Iterable, Iterator


def repeats(values: Iterable[Hashable]) -> Iterator[int]:
    """Return the position of each value that stands before it, too."""
    seen: set[Hashable] = set()
    for index, value in enumerate(values):
        if value in seen:
            yield index
        seen.add(value)
