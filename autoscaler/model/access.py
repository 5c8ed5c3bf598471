"""What a runner group admits at GitHub that no `access` of the fleet does.

GitHub gives a runner to any repository that its group admits. `access` only decides for whom machines are
launched, so the group is the boundary that a stranger meets.
Fields: docs.github.com, REST "Self-hosted runner groups".
"""

from dataclasses import dataclass
from enum import StrEnum

from autoscaler.model.catalogue import Catalogue, Scope
from autoscaler.model.demand import admits, scope_of

_TO_COME = ("any-repository-to-come-1f0c9a7e", "1f0c9a7e-repository-to-come-0")
"""Names that no repository has. Two, so that a pattern such as `a*` does not cover all of them."""


class Excess(StrEnum):
    """What a runner group admits too much of."""

    PUBLIC_REPOSITORIES = "public_repositories"
    OUTSIDE_ACCESS = "outside_access"


@dataclass(frozen=True, slots=True)
class RunnerGroup:
    """A runner group as GitHub shows it.

    `repositories` are those that were chosen for it (`owner/name`), None where it admits all of the
    organization's (`visibility` is `all` or `private`).
    """

    visibility: str
    allows_public_repositories: bool
    restricted_to_workflows: bool
    repositories: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """One kind of excess of a group, and the repositories that are known to be in it."""

    excess: Excess
    repositories: tuple[str, ...] = ()


def excesses(
    catalogue: Catalogue, scope: Scope, group: RunnerGroup, known: tuple[str, ...]
) -> tuple[Finding, ...]:
    """Return what the runner group of a scope admits beyond the group's scopes and the fleet's SKUs.

    `known` are repositories of the organization. A group that admits all of them also admits those
    to come: it is too wide unless an `access` admits these, too.
    """
    found = []
    if group.allows_public_repositories:
        found.append(Finding(Excess.PUBLIC_REPOSITORIES))

    def is_served(repository: str) -> bool:
        covering = scope_of(catalogue, repository)
        if covering is None or covering.runner_group != scope.runner_group:
            return False
        return any(admits(sku, repository) for sku in catalogue.skus.values())

    admitted = known if group.repositories is None else group.repositories
    outside = tuple(sorted(name for name in admitted if not is_served(name)))
    to_come = (f"{scope.owner}/{name}" for name in _TO_COME)
    open_ended = group.repositories is None and not all(map(is_served, to_come))
    if outside or open_ended:
        found.append(Finding(Excess.OUTSIDE_ACCESS, outside))
    return tuple(found)
