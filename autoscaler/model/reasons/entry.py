"""What a reason code stands for: its words, its urgency, its page and its alert."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Self

from autoscaler.model.identifiers import Seconds


class Severity(StrEnum):
    """How soon an operator has to look."""

    PAGE = "page"
    TICKET = "ticket"


@dataclass(frozen=True, slots=True)
class Runbook:
    """A page of docs/runbooks, which has the name of its alert."""

    name: str
    severity: Severity


@dataclass(frozen=True, slots=True)
class Threshold:
    """From when on something is a fault, for the console and the alert alike.

    `above` is a number, a share or seconds, as the metric is; `share` is a part of another number, and `count`
    the smallest number that matters, however large its share. What counts happened `within` the last seconds.
    For a leak, the console shows what has lasted for them, and the alert waits for the longer delay of its
    rule.
    """

    above: float = 0.0
    share: float = 0.0
    within: Seconds = 0.0
    count: int = 0


@dataclass(frozen=True, slots=True)
class Entry:
    """What the reasons with one code have in common.

    `sentence` is the message, with fields of the reason in braces, and `variants` has others, for reasons that
    differ in more than their fields. `cause` is a few words for the console, if the code itself is not enough,
    and `mend` what an operator can do, with `about` of the fault in braces.
    `fires`: the alert of the runbook fires for this code. `next_event` is what ends a wait whose end has no
    known time.
    """

    code: str
    sentence: str = ""
    runbook: Runbook | None = None
    cause: str = ""
    fires: bool = True
    next_event: str = ""
    mend: str = ""
    threshold: Threshold = Threshold()
    variants: Mapping[str, str] = field(default_factory=dict)

    def text(self, variant: str) -> str:
        """Return the sentence of a variant, and the usual one for the empty name."""
        return self.variants[variant] if variant else self.sentence

    @property
    def is_page(self) -> bool:
        """Return True if the runbook's alert is a page."""
        return self.runbook is not None and self.runbook.severity is Severity.PAGE


class Code(StrEnum):
    """A reason code with its entry. The value is the code itself."""

    entry: Entry

    def __new__(cls, entry: Entry | str) -> Self:
        """Return the member of an entry. With a code, the enum returns the member that has it."""
        assert isinstance(entry, Entry)
        member = str.__new__(cls, entry.code)
        member._value_, member.entry = entry.code, entry
        return member
