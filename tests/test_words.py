"""Retired words stay away: the glossary has one term for each thing, and code and documents use it."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("autoscaler", "benchmarks", "docs", "examples", "lab", "scripts", "tests")
SUFFIXES = {".md", ".py", ".sh", ".toml", ".yaml"}
CODESPELL = Path(sys.executable).parent / "codespell"

RETIRED = {
    "bootstrap desk": "bootstrap service",
    "cannot be told": "unverified",
    "doubt": "unverified",
    "doubted": "unverified",
    "doubts": "marks as unverified",
    "end ground": "termination reason",
    "fuse": "crash point",
    "fuses": "crash points",
    "gates": "health checks",
    "granted": "assigned",
    "granting": "assigning",
    "ground": "reason",
    "grounds": "reasons",
    "hearer": "listener",
    "hearers": "listeners",
    "hellos": "attestations",
    "ladder": "launch options",
    "mint": "register",
    "minted": "registered",
    "minting": "registering",
    "mints": "registers",
    "on trial": "circuit breaker open",
    "park": "become ready",
    "parked": "ready",
    "parks": "becomes ready",
    "rung": "launch option",
    "rungs": "launch options",
    "strike": "failure",
    "strikes": "failures",
    "sweep": "full listing",
    "sweeps": "full listings",
    "swept": "listed",
    "sync book": "sync state",
    "tell": "report",
    "telling": "reporting",
    "tells": "reports",
    "told": "reported",
    "trials": "circuit breakers",
    "unclear": "unverified",
    "unproved": "without a job",
    "unproven": "unverified",
    "untold": "unverified",
    "weather": "fault schedule",
    "withdraw": "deregister",
    "withdrawing": "deregistering",
    "withdrawn": "deregistered",
    "witness": "invariant",
}
"""By retired word or words: the term of docs/glossary.md that replaces it."""

STILL_BEING_RENAMED = {
    "beat": "heartbeat",
    "beats": "heartbeats",
    "gate": "health checks",
    "grant": "assignment",
    "grants": "assignments",
    "hello": "attestation",
    "left out": "unwatched",
}
"""Words that the code still uses. Each one that is gone moves to `RETIRED`."""

ALLOWED = re.compile(
    r"/bootstrap/hello|bootstrap/machines/\S+/gate|github/gate\.py|menlo_park|kms:\w*Grant\w*|create-grant"
)
"""The wire protocol of released agents, a file, a city, and words of AWS's."""

NOT_READ = {Path(__file__), ROOT / "CHANGELOG.md"}


def words(line: str) -> str:
    """A line as lower-case words with a blank before and after each; identifiers are split."""
    text = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", ALLOWED.sub(" ", line))
    return f" {' '.join(re.findall('[a-z]+', text.lower()))} "


def found(text: str, retired: dict[str, str]) -> Iterator[tuple[int, str]]:
    """The numbers of the lines with a retired word, and the word."""
    longest_first = "|".join(sorted(retired, key=len, reverse=True))
    pattern = re.compile(f"(?<= )(?:{longest_first})(?= )")
    for number, line in enumerate(text.splitlines(), start=1):
        for word in pattern.findall(words(line)):
            yield number, word


def sources() -> list[Path]:
    """The code and the documents of the project."""
    deep = (path for folder in FOLDERS for path in (ROOT / folder).rglob("*"))
    every = [*deep, *ROOT.glob("*.md"), *ROOT.glob("*.toml"), ROOT / "Makefile"]
    kept = {path for path in every if path.suffix in SUFFIXES or path.name == "Makefile"}
    return sorted(kept - NOT_READ)


def test_no_retired_word_is_in_the_code_or_the_documents() -> None:
    assert len(sources()) > 300
    names = {
        path: [(0, word) for _, word in found(str(path.relative_to(ROOT)), RETIRED)]
        for path in sources()
    }
    wrong = [
        f"{path.relative_to(ROOT)}:{number}: {word}; write: {RETIRED[word]}"
        for path in sources()
        for number, word in [*names[path], *found(path.read_text(), RETIRED)]
    ]
    assert wrong == []


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("is unclear", ["unclear"]),
        ("is_unclear: bool", ["unclear"]),
        ("class UnclearMachine:", ["unclear"]),
        ("UNCLEAR = 1", ["unclear"]),
        ('raise EndGround("unclear")', ["end ground", "unclear"]),
        ("nuclear background", []),
    ],
)
def test_a_retired_word_is_found_in_every_spelling(line: str, expected: list[str]) -> None:
    assert [word for _, word in found(line, RETIRED)] == expected


@pytest.mark.parametrize(
    "line", ["POST /bootstrap/hello", "kms:CreateGrant", "aws kms create-grant"]
)
def test_words_of_the_wire_and_of_aws_are_allowed(line: str) -> None:
    assert list(found(line, STILL_BEING_RENAMED)) == []


def test_each_word_is_retired_or_still_being_renamed() -> None:
    assert RETIRED.keys() & STILL_BEING_RENAMED.keys() == set()


def test_a_misspelled_word_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("The machine recieves a registration.\n")  # codespell:ignore recieves
    done = subprocess.run([CODESPELL, page], cwd=ROOT, check=False, capture_output=True, text=True)
    assert "recieves ==> receives" in done.stdout  # codespell:ignore recieves
    assert done.returncode == 65
