"""Refuses a fleet.yaml that has more of something than the checks and the planner can handle quickly.

Comes before all other checks, because some of them compare every SKU with every other one. The bounds count
what aliases repeat: a small file can name very many launch options.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from autoscaler.config.problems import Problem
from autoscaler.config.reading.document import Document, children

MAX_SKUS = 500
"""Maximum number of SKUs. All checks together then take about half a second."""

MAX_SCOPES = 100
"""Maximum number of scopes. Each glob of `access.repositories` is compared with each of them."""

MAX_SCHEDULES = 300
"""Maximum number of schedules of all SKUs. Finding those in force takes about 15 ms once a minute."""


@dataclass(frozen=True, slots=True)
class Bound:
    """How many entries a list may have in one SKU, and in all of them. A None in `path` is every position."""

    path: tuple[str | None, ...]
    a_sku: int
    altogether: int

    @property
    def key(self) -> str:
        """Return the list's key below a SKU, as messages show it."""
        return ".".join(part for part in self.path if part is not None)

    @property
    def place(self) -> tuple[str, ...]:
        """Return the deepest key below a SKU that has everything that the bound counts."""
        return tuple(str(part) for part in takewhile(lambda part: part is not None, self.path))


BOUNDS = (
    Bound(("on",), 20, 2000),
    Bound(("on", None, "instance_types"), 150, 5000),
    Bound(("labels",), 100, 5000),
    Bound(("access", "repositories"), 500, 5000),
    Bound(("access", "branches"), 500, 5000),
    Bound(("idle", "schedule"), MAX_SCHEDULES, MAX_SCHEDULES),
)


def check_sizes(document: Document) -> Iterator[Problem]:
    """Return an error for each bound that the file exceeds."""
    count = _length(document.value(("github", "scopes")))
    if count > MAX_SCOPES:
        what = f"has {count} scopes, and {MAX_SCOPES} are allowed"
        fix = "name an organization instead of its repositories, or run a second fleet"
        yield document.problem(("github", "scopes"), what, fix)
    skus = dict(children(document.value(("skus",))))
    if len(skus) > MAX_SKUS:
        what = f"has {len(skus)} SKUs, and {MAX_SKUS} are allowed"
        yield document.problem(("skus",), what, "remove some, or run a second fleet")
        return
    for bound in BOUNDS:
        counts = {name: _count(sku, bound.path) for name, sku in skus.items()}
        for name, count in counts.items():
            if count > bound.a_sku:
                what = f"has {count} entries of {bound.key}, and {bound.a_sku} are allowed in a SKU"
                yield document.problem(("skus", name, *bound.place), what, "remove some of them")
        if (total := sum(counts.values())) > bound.altogether:
            what = f"has {total} entries of {bound.key} in all SKUs, and {bound.altogether} are allowed"
            yield document.problem(("skus",), what, "remove some of them")


def _count(value: Any, path: tuple[str | None, ...]) -> int:
    """Return the number of entries of the lists at a path."""
    if not path:
        return _length(value)
    part, *rest = path
    return sum(_count(one, tuple(rest)) for key, one in children(value) if part in (None, key))


def _length(value: Any) -> int:
    return len(value) if isinstance(value, list) else 0
