"""Refuses a fleet.yaml that has more of something than the checks and the planner can handle quickly.

Comes before all other checks, because some of them compare every SKU with every other one. The bounds count
what aliases repeat: a small file can name very many launch options.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile

from autoscaler.config.problems import KeyPath, Problem
from autoscaler.config.reading.document import Document, Node

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
    scopes = document.root.get("github", "scopes")
    count = _length(scopes) if scopes is not None else 0
    if count > MAX_SCOPES:
        what = f"has {count} scopes, and {MAX_SCOPES} are allowed"
        fix = "name an organization instead of its repositories, or run a second fleet"
        yield document.problem(("github", "scopes"), what, fix)
    skus = document.root.child("skus")
    entries = list(skus.entries()) if skus else []
    if len(entries) > MAX_SKUS:
        what = f"has {len(entries)} SKUs, and {MAX_SKUS} are allowed"
        yield document.problem(("skus",), what, "remove some, or run a second fleet")
        return
    for bound in BOUNDS:
        yield from _exceeded(document, entries, bound)


def _exceeded(
    document: Document, entries: list[tuple[str, Node]], bound: Bound
) -> Iterator[Problem]:
    total = 0
    for name, sku in entries:
        count = sum(_length(node) for node in _found(sku, bound.path))
        total += count
        if count > bound.a_sku:
            what = f"has {count} entries of {bound.key}, and {bound.a_sku} are allowed in a SKU"
            yield document.problem(_place(name, bound), what, "remove some of them")
    if total > bound.altogether:
        what = f"has {total} entries of {bound.key} in all SKUs, and {bound.altogether} are allowed"
        yield document.problem(("skus",), what, "remove some of them")


def _place(name: str, bound: Bound) -> KeyPath:
    """Return the deepest key that has everything that the bound counts."""
    keys = (part or "" for part in takewhile(lambda part: part is not None, bound.path))
    return ("skus", name, *keys)


def _found(node: Node, path: tuple[str | None, ...]) -> Iterator[Node]:
    if not path:
        yield node
        return
    part, *rest = path
    below = [one for _, one in node.items()] if part is None else [node.child(part)]
    for one in below:
        if one is not None:
            yield from _found(one, tuple(rest))


def _length(node: Node) -> int:
    return len(node.value) if isinstance(node.value, list) else 0
