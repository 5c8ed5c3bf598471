"""No text makes a regular expression of the product slow: a stranger or a job may have written the text.

Each pattern meets texts that repeat what the pattern itself looks for: each of its literals and sets, and each
pair of them. A pattern that tries again at each place takes a hundred times as long as one that reads once.
"""

import importlib
import inspect
import pkgutil
import re
import time
from collections.abc import Iterator
from itertools import product
from re import _constants as codes  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from types import ModuleType
from typing import Any

import pytest

import autoscaler

_LENGTH = 8192
_READS_ONCE = re.compile("[a-z]")
_TIMES = 20
"""How many times as long as `_READS_ONCE` a pattern may take: on a busy host, times differ by a few times."""

_CATEGORIES = {codes.CATEGORY_SPACE: " ", codes.CATEGORY_DIGIT: "1", codes.CATEGORY_WORD: "a"}


def _modules() -> Iterator[ModuleType]:
    for one in pkgutil.walk_packages(autoscaler.__path__, "autoscaler."):
        if not one.name.endswith("__main__"):
            yield importlib.import_module(one.name)


def _within(value: object) -> Iterator[re.Pattern[Any]]:
    """Yield the patterns in a value of a module, also in its tables."""
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, dict):
        for one in value.values():
            yield from _within(one)
    elif isinstance(value, tuple | list | frozenset):
        for one in value:
            yield from _within(one)


def _patterns() -> Iterator[Any]:
    """Yield each pattern, and whether the product only ever matches it against the start of a text."""
    seen: set[re.Pattern[Any]] = set()
    for module in _modules():
        source = inspect.getsource(module)
        for name, value in vars(module).items():
            for one in set(_within(value)) - seen:
                seen.add(one)
                methods = set(re.findall(rf"\b{name}\.(\w+)\(", source))
                anchored = bool(methods) and methods <= {"match", "fullmatch"}
                yield pytest.param(one, anchored, id=f"{module.__name__}.{name}-{len(seen)}")


def _atoms(tree: Any) -> Iterator[str]:
    """Yield the literal texts of a parsed pattern, and two characters of each of its sets."""
    text = ""
    for code, value in tree:
        if code is codes.LITERAL:
            text += chr(value)
            continue
        yield text
        text = ""
        if code is codes.IN:
            ends = {codes.LITERAL: lambda of: chr(of), codes.RANGE: lambda of: chr(of[0])}
            yield from [ends[kind](of) for kind, of in value if kind in ends][:2]
            yield from (_CATEGORIES.get(of, "-") for kind, of in value if kind is codes.CATEGORY)
        elif isinstance(value, tuple | list):
            for part in value:
                for one in part if isinstance(part, list) else [part]:
                    if isinstance(one, parser.SubPattern):
                        yield from _atoms(one)
    yield text


def _texts(pattern: re.Pattern[Any]) -> Iterator[Any]:
    plain = isinstance(pattern.pattern, str)
    source = pattern.pattern if plain else pattern.pattern.decode("latin-1")
    flags = pattern.flags if plain else pattern.flags | re.ASCII
    atoms = dict.fromkeys([*filter(None, _atoms(parser.parse(source, flags))), " ", "a", "-"])
    for pump in dict.fromkeys([*atoms, *map("".join, product(atoms, repeat=2))]):
        text = (pump * _LENGTH)[:_LENGTH] + "\0"
        yield text if plain else text.encode("latin-1", "replace")


def _seconds(pattern: re.Pattern[Any], text: Any, anchored: bool) -> float:
    """Return the least CPU time of two tries."""
    taken = []
    for _ in range(2):
        began = time.thread_time()
        if anchored:
            pattern.fullmatch(text)
            pattern.match(text)
        else:
            for _ in pattern.finditer(text):
                pass
        taken.append(time.thread_time() - began)
    return min(taken)


@pytest.mark.parametrize(("pattern", "anchored"), [*_patterns()])
def test_a_pattern_reads_each_text_a_few_times_at_most(
    pattern: re.Pattern[Any], anchored: bool
) -> None:
    most = _TIMES * max(_seconds(_READS_ONCE, "a" * _LENGTH, anchored=False) for _ in range(5))
    slow = [text[:40] for text in _texts(pattern) if _seconds(pattern, text, anchored) > most]
    assert slow == []
