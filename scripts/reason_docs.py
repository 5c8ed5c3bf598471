"""Writes the facts of docs/runbooks/reasons.md from the table of reason codes.

    python scripts/reason_docs.py

Each code has a section, in alphabetical order. Its first paragraph says what the console calls the code, and
which alert or runbook it has; this program writes it. The rest of a section is its own text: what the code
means for each kind of record, and what to do.
"""

import re
from pathlib import Path

from autoscaler.model.reasons.table import CODES, cause_of

PAGE = Path(__file__).parents[1] / "docs" / "runbooks" / "reasons.md"
COMMAND = "python scripts/reason_docs.py"

_FACTS = re.compile(r"\AThe console says: .*?\n\n", re.DOTALL)


def with_facts(text: str) -> str:
    """Return the page with the facts of the table, and a heading for each code that is not in it yet."""
    head, *parts = text.rstrip().split("\n## ")
    sections = {
        part.partition("\n")[0]: _FACTS.sub("", part.partition("\n")[2].strip() + "\n\n").strip()
        for part in parts
    }
    for code, known in CODES.items():
        sections.setdefault(code, "") if known.entry.sentence else None
    written = (f"## {code}\n\n{_facts(code)}{sections[code]}".rstrip() for code in sorted(sections))
    return "\n\n".join([head.rstrip(), *written]) + "\n"


def _facts(code: str) -> str:
    """Return the paragraph of facts; empty for a code without a runbook."""
    known = CODES.get(code)
    if known is None or known.entry.runbook is None:
        return ""
    page = f"[{known.entry.runbook.name}]({known.entry.runbook.name}.md)"
    says = f"The console says: {cause_of(code)}."
    if known.entry.fires:
        return f"{says} Alert: {page}.\n\n"
    return f"{says} Runbook: {page}.\nNo alert fires for this code alone.\n\n"


if __name__ == "__main__":
    PAGE.write_text(with_facts(PAGE.read_text()))
