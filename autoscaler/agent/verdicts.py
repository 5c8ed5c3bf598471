"""The results of health checks."""

from __future__ import annotations

import collections

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

Check = collections.namedtuple("Check", ("name", "ok", "detail"))

MOST_DETAIL = 300
"""The longest detail of a failed check, in characters. The controller keeps 1,000 of all together."""


def verdict(name: str, problems: Iterable[str], otherwise: str) -> Check:
    """Return a check that failed with these problems; if there are none, one that passed."""
    found = "; ".join(problems)
    return Check(name, not found, found[:MOST_DETAIL] or otherwise)
