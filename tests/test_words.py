"""Retired words are not used: the glossary has one term for each thing, and code and documents use it."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = (
    ".github",
    "autoscaler",
    "benchmarks",
    "deploy",
    "docker_images",
    "docs",
    "examples",
    "lab",
    "scripts",
    "tests",
)
SUFFIXES = {".json", ".md", ".py", ".sh", ".toml", ".tpl", ".txt", ".yaml", ".yml"}
CODESPELL = Path(sys.executable).parent / "codespell"

RETIRED = {
    "anybody": "any user, any caller",
    "beat": "heartbeat",
    "beats": "heartbeats",
    "bootstrap desk": "bootstrap service",
    "cannot be told": "unverified",
    "desk": "bootstrap service",
    "doubt": "unverified",
    "doubted": "unverified",
    "doubts": "marks as unverified",
    "end ground": "termination reason",
    "foretell": "give notice",
    "fuse": "crash point",
    "fuses": "crash points",
    "gate": "health checks",
    "gates": "health checks",
    "give way": "evict, yield",
    "gives way": "is evicted, yields",
    "grant": "assignment",
    "granted": "assigned",
    "granting": "assigning",
    "grants": "assignments",
    "ground": "reason",
    "grounds": "reasons",
    "hand over": "send, assign",
    "handed over": "sent, assigned",
    "hear": "receive, count",
    "heard": "received, answered",
    "hearer": "listener",
    "hearers": "listeners",
    "hello": "attestation",
    "hellos": "attestations",
    "ladder": "launch options",
    "left out": "omitted, skipped",
    "let go": "release, break",
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
    "seat": "machine activity",
    "seats": "machine activities",
    "somebody": "a reviewer, an operator, another fleet",
    "strike": "failure",
    "strikes": "failures",
    "sweep": "full listing",
    "sweeps": "full listings",
    "swept": "listed",
    "sync book": "sync state",
    "tell": "report",
    "telling": "reporting",
    "tells": "reports",
    "thaw": "resume",
    "told": "reported",
    "trials": "circuit breakers",
    "unclear": "unverified",
    "unproved": "without a job",
    "unproven": "unverified",
    "untold": "unverified",
    "weather": "fault schedule",
    "whoever": "the user, the caller, the machine",
    "withdraw": "deregister",
    "withdrawing": "deregistering",
    "withdrawn": "deregistered",
    "witness": "invariant",
}
"""By retired word or words: the term of docs/glossary.md that replaces it."""

ALLOWED = re.compile(
    r"menlo_park|client_hello|/grant\b|create-grant|KMS grant|list_grants|\[.Grants.\]"
    r"|(?:Create|Revoke)Grant|Grant(?:IsFor|Operations)\w*"
    r"|deploy/kubernetes/\S* grants|grant the rights in deploy/kubernetes|GRANT (rds_iam|ALL ON)"
)
"""A city, TLS's first message, and what icacls, AWS KMS, Kubernetes and SQL call a grant."""

NAMES = {"Dockerfile", "Makefile"}

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
    kept = {path for path in every if path.suffix in SUFFIXES or path.name in NAMES}
    return sorted(kept - NOT_READ)


def test_no_retired_word_is_in_the_code_or_the_documents() -> None:
    assert len(sources()) > 300
    folders = {path.relative_to(ROOT).parts[0] for path in sources()}
    assert {*FOLDERS, "Makefile"} <= folders
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
    ("line", "expected"),
    [
        ("kms:CreateGrant", []),
        ("aws kms create-grant", []),
        ("[deploy/kubernetes/rbac](../deploy/kubernetes/rbac) grants the rights", []),
        ("POST /bootstrap/hello", ["hello"]),
        ("the grant of a machine", ["grant"]),
    ],
)
def test_a_retired_word_is_allowed_where_it_is_another_services_term(
    line: str, expected: list[str]
) -> None:
    assert [word for _, word in found(line, RETIRED)] == expected


def test_a_misspelled_word_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("The machine recieves a registration.\n")  # codespell:ignore recieves
    done = subprocess.run([CODESPELL, page], cwd=ROOT, check=False, capture_output=True, text=True)
    assert "recieves ==> receives" in done.stdout  # codespell:ignore recieves
    assert done.returncode == 65
