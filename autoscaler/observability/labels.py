"""Bounds the set of values of a metric label.

Names from the configuration are always used as they are. Of other values, the first few that look
like a word are used; all further values count as `other`.
"""

import re
from collections.abc import Iterable

OTHER = "other"

_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._:/{}\-]{0,99}", re.ASCII)


class BoundedLabel:
    """A label with at most `len(known) + extra + 1` values."""

    def __init__(self, known: Iterable[str] = (), extra: int = 0) -> None:
        self._allowed = set(known)
        self._left = extra

    def allow(self, words: Iterable[str]) -> None:
        """Use these values as they are from now on, besides the earlier ones."""
        self._allowed.update(words)

    def value(self, word: str) -> str:
        """Return the word itself, or `other` if the label has all its values."""
        if word in self._allowed:
            return word
        if self._left <= 0 or _WORD.fullmatch(word) is None:
            return OTHER
        self._left -= 1
        self._allowed.add(word)
        return word
