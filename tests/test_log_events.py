"""docs/operations.md and the reason codes explain every warning and error that the controller logs."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = (ROOT / "docs" / "operations.md", ROOT / "docs" / "runbooks" / "reasons.md")

LOGGED = re.compile(
    r"\b(?:_log\.(?:warning|error|exception|critical)(?:\(|, )|_refusals\.note\()\s*([^\s,)]+)"
)
"""The first argument of a line that is logged as a warning or worse, at once or by `RefusalLog`."""

REFUSALS = ROOT / "autoscaler" / "server" / "refusal_log.py"
"""Logs the events that others pass to `RefusalLog.note`."""

CHOSEN = {"list_not_read"}
"""Events whose level the code chooses when it logs them, so that `LOGGED` does not find them."""


def events() -> dict[str, str]:
    """Return the first arguments of all warnings and errors in autoscaler/, with a file of each."""
    found: dict[str, str] = {}
    sources = set((ROOT / "autoscaler").rglob("*.py")) - {REFUSALS}
    for path in sorted(sources):
        for event in LOGGED.findall(path.read_text()):
            found.setdefault(event, str(path.relative_to(ROOT)))
    return found


def test_every_event_of_a_warning_or_an_error_is_a_literal() -> None:
    """A computed name could not be looked up, neither by an operator nor by the next test."""
    assert {
        name: path for name, path in events().items() if not re.fullmatch('"[a-z_]+"', name)
    } == {}


def test_the_pages_for_operators_name_every_warning_and_error() -> None:
    names = {name.strip('"') for name in events()}
    assert len(names) > 50
    explained = {word for page in PAGES for word in re.findall(r"`([a-z_]+)`", page.read_text())}
    assert sorted((names | CHOSEN) - explained) == []
