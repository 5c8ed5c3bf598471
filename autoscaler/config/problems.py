"""Errors and warnings of a configuration: what is wrong, where, and what to do.

They never contain a secret.
"""

import json
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

KeyPath = tuple[str | int, ...]
"""The place of a value: mapping keys and list positions, from the root."""

_PLAIN_KEY = re.compile(r"[A-Za-z0-9_-]{1,100}")
_SHOWN = 60


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """One problem. `line` counts from 1, 0 for a file that cannot be read; `key` is a dotted path."""

    file: str
    line: int
    key: str
    what: str
    fix: str
    warning: bool = False

    def __str__(self) -> str:
        """Return `file:line: key: what; fix: ...` on one line, with `warning: ` for a warning."""
        kind = "warning: " if self.warning else ""
        key = f"{self.key}: " if self.key else ""
        file = printable(self.file)
        place = f"{file}:{self.line}" if self.line else file
        return f"{place}: {kind}{key}{self.what}; fix: {self.fix}"


class ConfigurationError(Exception):
    """The configuration cannot be used. `problems` are all its errors, by line.

    `warnings` are those about keys without an error.
    """

    def __init__(self, problems: Iterable[Problem], warnings: Iterable[Problem] = ()) -> None:
        self.problems: tuple[Problem, ...] = tuple(sorted(set(problems)))
        keys = {problem.key for problem in self.problems}
        self.warnings = tuple(sorted({one for one in warnings if one.key not in keys}))
        super().__init__("\n".join(map(str, self.problems)))


def dotted(path: KeyPath) -> str:
    """Return a path such as `skus."linux.g5".on[0].provider`; unusual names are quoted."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
            continue
        plain = _PLAIN_KEY.fullmatch(part) is not None
        text += "." if text else ""
        text += part if plain else show(part)
    return text


def show(value: object) -> str:
    """Return a value of the file as short text on one line, escaped as in `printable`."""
    if isinstance(value, str) and "\n" in value:
        return f"text of {value.count(chr(10)) + 1} lines"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    text = printable(json.dumps(value, ensure_ascii=False))
    return text if len(text) <= _SHOWN else text[: _SHOWN - 4] + '..."'


def printable(text: str) -> str:
    """Return text on one line: characters that are not printable are escaped as in JSON."""
    return "".join(one if one.isprintable() else json.dumps(one)[1:-1] for one in text)


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the known word that is most similar to `word`, if one is similar."""
    by_lower = {name.lower(): name for name in known}
    letters = sorted(word.lower()[:_SHOWN])
    if swapped := next((name for name in by_lower if sorted(name) == letters), None):
        return by_lower[swapped]
    found = get_close_matches(word.lower()[:_SHOWN], by_lower, n=1, cutoff=0.6)
    return by_lower[found[0]] if found else None


def unreadable_fix(error: OSError) -> str:
    """Return the fix for a file that cannot be opened for reading."""
    if isinstance(error, PermissionError):
        return f"let the user who runs this (id {os.geteuid()}) read it and enter its folders"
    return "name a file to read"


def listed(names: Sequence[str]) -> str:
    """Return `a, b or c`."""
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} or {names[-1]}"
