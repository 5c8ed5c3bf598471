"""Reads the results that pytest wrote for a part, and words the summary of a suite."""

import json
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

SHOWN = 150
"""Lines of a failed part's output that the runner prints."""


@dataclass(frozen=True, slots=True)
class Tests:
    """The tests of a part: their number by outcome, and `(seconds, name)` of each."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: tuple[tuple[float, str], ...] = ()

    @property
    def words(self) -> str:
        """Return the counts, such as `12 tests` or `12 tests, 1 failed`. Empty for a part without tests."""
        count = self.passed + self.failed
        more = [
            f"{number} {word}"
            for number, word in ((self.failed, "failed"), (self.skipped, "skipped"))
            if number
        ]
        return ", ".join([f"{count} tests", *more]) if count or more else ""


def read_tests(path: Path) -> Tests:
    """Read a JUnit file of pytest. A part without tests, or whose pytest was killed, has none."""
    try:
        cases = list(ElementTree.parse(path).iter("testcase"))
    except (OSError, ElementTree.ParseError):
        return Tests()
    failed = {
        id(one) for one in cases if one.find("failure") is not None or one.find("error") is not None
    }
    skipped = {id(one) for one in cases if one.find("skipped") is not None} - failed
    return Tests(
        passed=len(cases) - len(failed) - len(skipped),
        failed=len(failed),
        skipped=len(skipped),
        seconds=tuple(
            (float(one.get("time", 0.0)), f"{one.get('classname', '')}.{one.get('name', '')}")
            for one in cases
        ),
    )


def failed_tests(cache: Path) -> list[str]:
    """Return the IDs of the tests that failed in the last run, from pytest's cache."""
    try:
        return sorted(json.loads((cache / "v" / "cache" / "lastfailed").read_text()))
    except (OSError, ValueError):
        return []


def last_lines(log: Path, count: int = SHOWN) -> str:
    """Return the last lines of a part's output."""
    lines = log.read_text(errors="replace").splitlines()
    return "\n".join(lines[-count:])


def slowest(parts: Iterable[Tests], count: int = 10) -> list[str]:
    """Return a line for each of the slowest tests, the slowest first."""
    found = sorted((one for part in parts for one in part.seconds), reverse=True)
    return [f"{seconds:6.1f} s  {name}" for seconds, name in found[:count]]
