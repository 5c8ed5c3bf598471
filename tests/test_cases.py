"""docs/cases.md is true: each case has a source that anybody can read, and a test that is there."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "cases.md").read_text()
LINK = re.compile(r"\[[^\]]+\]\(([^)\s]+)\)")
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)(?:\[([^`]+)\])?`")
WITHOUT_TEST = "Not yet"
ROUTES = {"/api/v3", "/rate_limit"}
"""The only words of the page that may begin with a slash."""


@dataclass(frozen=True, slots=True)
class Row:
    """A line of a table, and the heading that it stands under."""

    section: str
    case: str
    source: str
    shown: str


def rows(page: str) -> list[Row]:
    """Every line of every table, without the tables' heads."""
    found = []
    for part in page.split("\n## ")[1:]:
        section, _, text = part.partition("\n")
        lines = [line for line in text.splitlines() if line.startswith("|")]
        cells = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:])
        found += [Row(section, *row) for row in cells]
    return found


@cache
def named_tests(path: str) -> dict[str, bool]:
    """The names of a file's tests, and whether each is one of many by parameters."""
    file = ROOT / path
    if not file.is_file():
        return {}
    body = ast.parse(file.read_text()).body
    marks = {
        ast.unparse(node.targets[0])
        for node in body
        if isinstance(node, ast.Assign) and "parametrize" in ast.unparse(node.value)
    }
    return dict(_tests(body, marks))


def _tests(body: list[ast.stmt], marks: set[str]) -> Iterator[tuple[str, bool]]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if node.name.startswith("test_"):
                decorators = [ast.unparse(one) for one in node.decorator_list]
                yield node.name, any("parametrize" in one or one in marks for one in decorators)
        elif isinstance(node, ast.ClassDef):
            yield from _tests(node.body, marks)
        elif isinstance(node, ast.Assign) and ast.unparse(node.value).endswith(".TestCase"):
            # What hypothesis makes of a state machine.
            yield ast.unparse(node.targets[0]), False


@cache
def texts_beside(path: str) -> str:
    """The text of a file and of those in its folder, where its parameters' ids are spelled."""
    return "\n".join(file.read_text() for file in sorted((ROOT / path).parent.glob("*.py")))


def faults(page: str) -> list[str]:
    """What is wrong with the page, in words."""
    found = []
    table = rows(page)
    for row in table:
        if not LINK.findall(row.source):
            found.append(f"no source: {row.case}")
        if row.section != WITHOUT_TEST:
            found += [f"{fault}: {row.case}" for fault in _faults_of_tests(row.shown)]
    cases = Counter(re.sub(r"\W+", " ", row.case).strip().casefold() for row in table)
    found += [f"stands {count} times: {case}" for case, count in cases.items() if count > 1]
    return found


def _faults_of_tests(shown: str) -> Iterator[str]:
    named = NAMED.findall(shown)
    if not named or NAMED.sub("", shown).strip(", "):
        yield "no test, or more than tests"
    if len(set(named)) != len(named):
        yield "the same test twice"
    for path, name, parameter in named:
        known = named_tests(path)
        if name not in known:
            yield f"{path}::{name} is not there"
        elif parameter and not (known[name] and f'"{parameter}"' in texts_beside(path)):
            yield f"{path}::{name} has no [{parameter}]"


def test_every_case_stands_once_with_a_source_and_tests_that_are_there() -> None:
    assert len(rows(PAGE)) > 200
    assert faults(PAGE) == []


def test_every_source_can_be_read_by_anybody() -> None:
    links = [urlsplit(link) for row in rows(PAGE) for link in LINK.findall(row.source)]
    assert {link.scheme for link in links} == {"https"}
    hosts = {link.hostname or "" for link in links}
    assert [host for host in hosts if not re.fullmatch(r"([a-z0-9-]+\.)+[a-z]{2,}", host)] == []


def test_it_names_nothing_that_only_one_host_has() -> None:
    words = re.findall(r"(?<![\w.:/*`])`?(/\w[\w./-]*)", LINK.sub("", PAGE))
    assert set(words) == ROUTES


GOOD = "[one](https://example.com/1)"
TEST = "`tests/test_cases.py::test_a_wrong_page_is_noticed`"


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        (f"| a | nobody | {TEST} |", "no source"),
        (f"| a | {GOOD} | |", "no test"),
        (f"| a | {GOOD} | `tests/test_cases.py::test_gone` |", "is not there"),
        (f"| a | {GOOD} | `tests/test_gone.py::test_gone` |", "is not there"),
        (f"| a | {GOOD} | {TEST}, {TEST} |", "the same test twice"),
        (f"| a | {GOOD} | {TEST}, by hand |", "more than tests"),
        (f"| a | {GOOD} | {TEST[:-1]}[other]` |", "has no [other]"),
        (f"| The case! | {GOOD} | {TEST} |", "stands 2 times"),
    ],
)
def test_a_wrong_page_is_noticed(line: str, fault: str) -> None:
    head = "# Cases\n\n## Some\n\n| case | source | shown by |\n|---|---|---|\n"
    right = f"{head}| `the` case | {GOOD} | {TEST} |\n"
    assert faults(right) == []
    (found,) = faults(f"{right}{line}\n")
    assert fault in found
