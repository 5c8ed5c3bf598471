"""What is wrong with the fleet, as a value. Its words come from the table."""

from dataclasses import dataclass

from autoscaler.model.reasons.entry import Code
from autoscaler.model.reasons.table import CODES, cause_of


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that an operator should look at. `about` is a SKU, a provider, an account or empty.

    `code` is a `FaultCode`, or the `WaitCode` of jobs that are blocked. `sku` is the SKU that it concerns, or
    empty.
    """

    code: str
    about: str
    message: str
    sku: str = ""

    @classmethod
    def of(
        cls, code: Code, about: str = "", *, sku: str = "", variant: str = "", **values: object
    ) -> "Fault":
        """Return the fault with a sentence of the table, filled with these values and the threshold."""
        above = code.entry.threshold.above
        text = code.entry.text(variant).format(above=above, **values)
        return cls(code.value, about or sku, text, sku)

    @property
    def cause(self) -> str:
        """Return a few words for the code."""
        return cause_of(self.code)

    @property
    def is_page(self) -> bool:
        """Return True if an operator has to look at once."""
        return self.code in CODES and CODES[self.code].entry.is_page

    @property
    def runbook(self) -> str:
        """Return the name of its page in docs/runbooks, or an empty text."""
        known = CODES[self.code].entry.runbook if self.code in CODES else None
        return known.name if known is not None else ""
