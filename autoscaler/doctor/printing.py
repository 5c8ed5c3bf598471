"""The checks of a doctor as text, and as JSON."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from autoscaler.app.examining import Group
from autoscaler.config.examinations import Check, Outcome
from autoscaler.observability.redaction import redact_text
from autoscaler.operator_commands.options import plain

_WIDTH = max(map(len, Outcome))


def lines_of(name: str, checks: Sequence[Check]) -> list[str]:
    """Return a group: its name, and a line for each check."""
    return [f"{plain(name)}:", *(f"  {line(check)}" for check in checks)]


def line(check: Check) -> str:
    """Return a check on one line: what was found, why it matters, and what mends it."""
    text = f"{check.outcome.value.ljust(_WIDTH)} {check.name}: {check.what}"
    text += f"; {check.why}" if check.why else ""
    text += f"; fix: {check.fix}" if check.fix else ""
    return plain(redact_text(text))


def summary(groups: Iterable[Group]) -> str:
    """Return how many checks had each outcome."""
    found = Counter(check.outcome for _, checks in groups for check in checks)
    return ", ".join(f"{found[outcome]} {outcome.value}" for outcome in Outcome)


def as_json(groups: Iterable[Group]) -> dict[str, Any]:
    """Return all checks, and whether nothing is wrong, as JSON values."""
    groups = list(groups)
    return {
        "fine": not is_wrong(groups),
        "checks": [
            {
                "group": name,
                "name": check.name,
                "outcome": check.outcome.value,
                "what": redact_text(check.what),
                "why": check.why,
                "fix": check.fix,
            }
            for name, checks in groups
            for check in checks
        ],
    }


def is_wrong(groups: Iterable[Group]) -> bool:
    """Return whether a check found something to mend."""
    return any(check.outcome is Outcome.WRONG for _, checks in groups for check in checks)
