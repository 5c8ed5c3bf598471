"""The IDs of an installation: its own, and former ones from before adoptions."""

from dataclasses import dataclass

from autoscaler.model.identifiers import InstallationId

MOST_FORMER = 8
"""Maximum number of former IDs. Each one is a value in EC2 filters."""


@dataclass(frozen=True, slots=True)
class Installations:
    """The installation's current ID (`own`) and its `former` IDs, newest first.

    Resources tagged with any of these IDs belong to this fleet.
    """

    own: InstallationId
    former: tuple[InstallationId, ...] = ()

    @property
    def all(self) -> tuple[InstallationId, ...]:
        """Return every ID: the current one, then the former ones."""
        return (self.own, *self.former)

    def after_adoption(self, taken: InstallationId) -> "Installations":
        """Return the IDs after the adoption of another installation. Keeps the newest former IDs."""
        former = tuple(one for one in self.all if one != taken)
        return Installations(taken, former[:MOST_FORMER])
