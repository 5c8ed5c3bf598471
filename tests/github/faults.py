"""Faults of the small GitHub."""

import re
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Fault:
    """What to answer instead, for the next `times` requests that match `METHOD path-pattern`.

    `done` does the real work first; `cut` then closes the connection, `hang` never answers.
    `by` has it happen to one installation alone.
    """

    match: str
    status: int = 500
    body: bytes | dict[str, Any] = b"{}"
    headers: dict[str, str] = field(default_factory=dict)
    times: int = 1
    done: bool = False
    cut: bool = False
    hang: bool = False
    by: int | None = None

    def fits(self, call: str, holder: str) -> bool:
        """Return True if the fault applies to this request."""
        if not self.times or re.search(self.match, call) is None:
            return False
        return self.by is None or holder == str(self.by)
