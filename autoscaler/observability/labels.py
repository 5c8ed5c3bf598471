"""Bounds the set of values of a metric label.

Names from the configuration are always used as they are. Of other values, the first few that have the
right form are used; all further values count as `other`.
"""

import re
from collections.abc import Iterable

OTHER = "other"

WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._:/{}\-]{0,99}", re.ASCII)

IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@\-]{0,499}", re.ASCII)
"""The ID of a machine image, or the reference of a container image with its registry, tag and digest."""

UNKNOWN_IMAGE = "unknown"


class BoundedLabel:
    """A label with at most `len(known) + extra + 1` values."""

    def __init__(
        self, known: Iterable[str] = (), extra: int = 0, form: re.Pattern[str] = WORD
    ) -> None:
        """`extra` further values are used as they are if they have this `form`."""
        self._allowed = set(known)
        self._left = extra
        self._form = form

    def allow(self, words: Iterable[str]) -> None:
        """Use these values as they are from now on, besides the earlier ones."""
        self._allowed.update(words)

    def value(self, word: str) -> str:
        """Return the word itself, or `other` if the label has all its values."""
        if word in self._allowed:
            return word
        if self._left <= 0 or self._form.fullmatch(word) is None:
            return OTHER
        self._left -= 1
        self._allowed.add(word)
        return word
