"""Keeps the set of values that one metric label can take finite.

Names of the configuration always pass; of other words only the first few, and only if they look
like a word of ours. The rest is counted under one name, never dropped.
"""

import re
from collections.abc import Iterable

OTHER = "other"

_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._:/{}\-]{0,99}", re.ASCII)


class BoundedLabel:
    """At most `len(known) + extra + 1` values."""

    def __init__(self, known: Iterable[str] = (), extra: int = 0) -> None:
        self._allowed = set(known)
        self._left = extra

    def value(self, word: str) -> str:
        """The word itself, or `other`."""
        if word in self._allowed:
            return word
        if self._left <= 0 or _WORD.fullmatch(word) is None:
            return OTHER
        self._left -= 1
        self._allowed.add(word)
        return word
