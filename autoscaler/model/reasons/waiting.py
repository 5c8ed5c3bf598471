"""Why jobs wait, in fields. The sentence for people comes from the table."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from autoscaler.model.identifiers import Instant
from autoscaler.model.reasons.entry import Code
from autoscaler.model.reasons.table import ON_HOLD, WaitCode
from autoscaler.model.wording import counted

MAX_NAMED_REPOSITORIES = 3
"""Maximum number of repositories that a message names."""


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason with a code.

    `about` are the offerings, SKUs, scopes or repositories that it concerns. `words` are those of the provider,
    of GitHub or of the operator, and `error` is the code of the provider's error, if it has one. `until` is
    when the reason ends by itself (a hold is over), or None if no time is known. `count` is the limit that is
    reached, or how often something failed. `where` is what to look at: a runner group, a SKU, the quota or the
    provider of a hold, the key of a circuit breaker, or the target of `autoscaler resume`.
    """

    code: Code
    about: tuple[str, ...] = ()
    words: str = ""
    until: Instant | None = None
    count: float = 0
    where: str = ""
    variant: str = ""
    error: str = ""

    @property
    def message(self) -> str:
        """Return the reason as a sentence for operators."""
        more = ", ..." if len(self.about) > MAX_NAMED_REPOSITORIES else ""
        return self.code.entry.text(self.variant).format(
            about=" and ".join(self.about),
            are="are" if len(self.about) > 1 else "is",
            names=", ".join(self.about[:MAX_NAMED_REPOSITORIES]) + more,
            labels=", ".join(self.about),
            words=self.words,
            where=self.where,
            count=self.count,
            machines=counted(int(self.count), "machine"),
            probe="a probe follows" if self.until is not None else "a probe is under way",
        )


@dataclass(frozen=True, slots=True)
class WaitReason(Reason):
    """One reason why a job waits, or why a launch option is not used."""

    code: WaitCode


@dataclass(frozen=True, slots=True)
class Waiting:
    """Why the next oldest `count` jobs of a class wait. `reasons` has at least one reason.

    Several reasons follow the SKU's launch options, in order of preference.
    """

    count: int
    reasons: tuple[WaitReason, ...]
    blocked: bool = False
    """Whether no machine is on its way for these jobs."""

    @property
    def code(self) -> WaitCode:
        """Return the code of the first reason, which concerns the preferred launch option."""
        return self.reasons[0].code

    @property
    def message(self) -> str:
        """Return all reasons as one line."""
        return "; ".join(reason.message for reason in self.reasons)


def in_short(reasons: Iterable[Reason]) -> str:
    """Return all reasons as one line. What is on hold for the same reason is named together."""
    found: dict[tuple[str, ...], Reason] = {}
    for reason in reasons:
        held = reason.code.entry.text(reason.variant) == ON_HOLD
        key = (ON_HOLD, reason.words) if held else (reason.message,)
        known = found.get(key)
        about = dict.fromkeys((*known.about, *reason.about)) if known is not None else reason.about
        found[key] = replace(known or reason, about=tuple(about))
    return "; ".join(reason.message for reason in found.values())
