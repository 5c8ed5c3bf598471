"""What is wrong with the fleet, as a value. Its words come from the table."""

from dataclasses import dataclass
from enum import StrEnum

from autoscaler.model.identifiers import Instant
from autoscaler.model.reasons.entry import Code
from autoscaler.model.reasons.table import CODES, FaultCode, WaitCode, cause_of


class Trend(StrEnum):
    """How the number of jobs that a fault holds up changed in the last minutes."""

    STEADY = "steady"
    GROWING = "growing"
    SHRINKING = "shrinking"


@dataclass(frozen=True, slots=True)
class Fault:
    """One cause that an operator should look at, with everything that it causes.

    `code` is a `FaultCode`, or the code of the jobs that it holds up. `about` is what the cause concerns: a
    SKU, a provider and its error, a quota, an account, an image, or empty for the whole fleet. `error` is the
    code of the provider's error, if that is the cause. `skus` are the SKUs in it, and `jobs` the number of
    waiting jobs that it holds up. `mend` is what an operator can do; empty if only the runbook says it.
    `effects` are codes of what follows from the cause, and is no fault of its own.

    `recovered_at` is set if what the fault counts happened a short time ago, and does not happen any more. The
    rest depends on what was seen before: `since` is when the fault began, and `after` the fault of the same
    SKUs that began just before it, in a few words.
    """

    code: str
    about: str
    message: str
    skus: tuple[str, ...] = ()
    jobs: int = 0
    mend: str = ""
    effects: tuple[str, ...] = ()
    since: Instant | None = None
    trend: Trend = Trend.STEADY
    after: str = ""
    recovered_at: Instant | None = None
    error: str = ""

    @classmethod
    def of(
        cls,
        code: Code,
        about: str = "",
        *,
        sku: str = "",
        variant: str = "",
        recovered_at: Instant | None = None,
        **values: object,
    ) -> "Fault":
        """Return the fault with a sentence of the table, filled with these values and the threshold."""
        above = code.entry.threshold.above
        text = code.entry.text(variant).format(above=above, **values)
        skus = (sku,) if sku else ()
        return cls(code.value, about or sku, text, skus, recovered_at=recovered_at)

    @property
    def key(self) -> str:
        """Return what identifies the cause for as long as it lasts."""
        return key_of(self.code, self.about)

    @property
    def name(self) -> str:
        """Return the cause in a few words, after what it concerns: the only SKU, else `about`."""
        where = self.skus[0] if len(self.skus) == 1 else self.about
        return f"{where}: {self.cause}" if where else self.cause

    @property
    def cause(self) -> str:
        """Return a few words for the code."""
        return cause_of(self.code)

    @property
    def is_page(self) -> bool:
        """Return True if an operator has to look at once: if one of its alerts is a page.

        The alerts of reasons to wait fire only while jobs wait for them.
        """
        if self.recovered_at is not None:
            return False
        fire = self.jobs or self.code not in _OF_WAITING_JOBS
        codes = (self.code, *self.effects) if fire else self.effects
        return any(code in CODES and CODES[code].entry.is_page for code in codes)

    @property
    def runbook(self) -> str:
        """Return the name of its page in docs/runbooks, or an empty text."""
        known = CODES[self.code].entry.runbook if self.code in CODES else None
        return known.name if known is not None else ""


MACHINES_FAIL = (
    WaitCode.HEALTH_CHECK,
    WaitCode.BOOT_DEADLINE,
    WaitCode.CIRCUIT_OPEN,
    FaultCode.OPTION_CIRCUIT_OPEN,
)
"""The codes of machines of a SKU that fail one after the other, the one that says most first."""

_FAMILIES: dict[str, str] = dict.fromkeys(MACHINES_FAIL, "machines_fail")


def key_of(code: str, about: str) -> str:
    """Return what identifies a cause for as long as it lasts.

    Machines of a SKU that fail in several ways are one cause, as for the circuit breaker.
    """
    return f"{_FAMILIES.get(code, code)}:{about}"


_OF_WAITING_JOBS = frozenset(WaitCode) - {WaitCode.CIRCUIT_OPEN}
