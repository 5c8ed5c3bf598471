"""The ids that an installation goes by: its own, and those that it bore before take-overs.

It says which ids follow from a take-over. Whether one may be taken over is decided in the ledger.
"""

from dataclasses import dataclass

from autoscaler.model.identifiers import InstallationId

MOST_FORMER = 8
"""How many ids of before are followed: each is one more value in EC2's filters."""


@dataclass(frozen=True, slots=True)
class Installations:
    """`own` is borne; `former` were given up in take-overs, newest first. What bears any is ours."""

    own: InstallationId
    former: tuple[InstallationId, ...] = ()

    @property
    def all(self) -> tuple[InstallationId, ...]:
        """Every id of ours: its own, then the former ones."""
        return (self.own, *self.former)

    def after_takeover(self, taken: InstallationId) -> "Installations":
        """The ids once another installation was taken over; of former ones the newest are kept."""
        former = tuple(one for one in self.all if one != taken)
        return Installations(taken, former[:MOST_FORMER])
