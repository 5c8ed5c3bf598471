"""The mutants that no test can kill: read from docs/mutants.yaml, listed with their reasons in docs/mutants.md.

    python scripts/mutant_survivors.py          writes the list in docs/mutants.md (a part of `make pages`)

A survivor is a function and what changes in it, without the unchanged rest of the lines, so that it
stays true when lines move or names beside it change. `…` stands for unchanged words inside a change.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import takewhile
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
FILE = ROOT / "docs" / "mutants.yaml"
PAGE = ROOT / "docs" / "mutants.md"
BEGIN = "<!-- Written by `make pages` from mutants.yaml. -->\n"
TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|\d[\d_.]*|\w+|[-+*/<>=!:]=|//|\*\*|->|\S')
ARROW = " -> "
NOTHING = "(nothing)"
JOINED = re.compile(
    r"(?<=[(\[{.]) | (?=[)\]},:.])|(?<=\w)(?<!\bif)(?<!\bor)(?<!\band)(?<!\bnot) (?=[(\[])"
)
"""The blanks between tokens that Python's usual format does not have."""
UNCHANGED = 3
"""At least so many unchanged tokens in the middle of a change do not appear in its text."""


@dataclass(frozen=True, slots=True, order=True)
class Survivor:
    """A function such as planner.shares.of, and a change such as `< -> <=`."""

    function: str
    change: str


def tokens(lines: Iterable[str]) -> list[str]:
    """Return the words, numbers, texts and operators of these lines."""
    return TOKEN.findall(" ".join(lines))


def change(before: Sequence[str], after: Sequence[str]) -> str:
    """Return what differs between the lines before and after, such as `16 -> 17`."""
    old, new = tokens(before), tokens(after)
    start = _shared(old, new)
    end = min(_shared(old[::-1], new[::-1]), min(len(old), len(new)) - start)
    old_end, new_end = len(old) - end, len(new) - end
    inserted = start == old_end or (new[start : start + 1] == ["("] != old[start : start + 1])
    if start and (inserted or old[start - 1] == "."):
        start -= 1  # The token before an insertion shows its place, and a dot that a name is an attribute.
    return ARROW.join(_texts(old[start:old_end], new[start:new_end]))


def _shared(one: list[str], other: list[str]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def _texts(old: list[str], new: list[str]) -> tuple[str, str]:
    parts: tuple[list[list[str]], list[list[str]]] = ([[]], [[]])
    for tag, a, b, c, d in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag == "equal" and b - a >= UNCHANGED:
            parts[0].append([])
            parts[1].append([])
        else:
            parts[0][-1] += old[a:b]
            parts[1][-1] += new[c:d]
    return _text(parts[0]), _text(parts[1])


def _text(parts: list[list[str]]) -> str:
    text = " … ".join(" ".join(part) for part in parts)
    return JOINED.sub("", text).strip() or NOTHING


def changes_of(function: Iterable[str], survivor: Survivor) -> bool:
    """Return True if a function with these lines has what the survivor changes."""
    words = " ".join(tokens(function))
    before, arrow, _ = survivor.change.rpartition(ARROW)
    parts = [" ".join(tokens([part])) for part in before.split("…")]
    return bool(arrow and any(parts)) and all(f" {part} " in f" {words} " for part in parts if part)


def entries() -> list[dict[str, Any]]:
    """Return the entries of docs/mutants.yaml: perhaps a heading, a reason, changes by function."""
    loaded: list[dict[str, Any]] = yaml.safe_load(FILE.read_text())
    return loaded


def listed(found: Iterable[dict[str, Any]]) -> Counter[Survivor]:
    """Return how often each survivor is listed. Raises: KeyError or ValueError for a wrong entry."""
    survivors: Counter[Survivor] = Counter()
    for entry in found:
        if not entry["reason"].strip():
            message = f"no reason: {entry}"
            raise ValueError(message)
        for function, changes in entry["changes"].items():
            for one in changes:
                if ARROW not in one:
                    message = f"{function}: not a change such as `16 -> 17`: {one!r}"
                    raise ValueError(message)
                survivors[Survivor(function, one)] += 1
    return survivors


def written(page: str, found: Iterable[dict[str, Any]]) -> str:
    """Return the page with the list of these entries at its end."""
    parts = [page.partition(BEGIN)[0] + BEGIN]
    for entry in found:
        if "heading" in entry:
            parts.append(f"### {entry['heading']}\n")
        lines = [
            f"- `{function}`: {', '.join(f'`{one}`' for one in changes)}\n"
            for function, changes in entry["changes"].items()
        ]
        parts += [f"{entry['reason'].strip()}\n", "".join(lines)]
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(), entries()))
