"""Finds repositories that a runner group admits at GitHub and that no SKU's `access` admits.

GitHub gives a runner jobs of any repository that its runner group admits. `access` only decides for which
repositories the controller launches machines. So the runner group is the security boundary.
Fields: docs.github.com, REST "Self-hosted runner groups".
"""

from dataclasses import dataclass
from enum import StrEnum

from autoscaler.model.catalogue import Catalogue, Scope
from autoscaler.model.jobs.demand import admits, scope_of

_TO_COME = ("any-repository-to-come-1f0c9a7e", "1f0c9a7e-repository-to-come-0")
"""Invented names that stand for future repositories. Two, because a glob like `a*` matches only the first."""

REASONS_BY_KEY = {
    "repositories": "repository",
    "forks": "fork",
    "public_repositories": "public_repository",
    "branches": "branch",
}
"""Why a job that ran was outside `access`, by the key that does not admit it."""

OUTSIDE_ACCESS_REASONS = (*REASONS_BY_KEY.values(), "scope")
"""`scope`: the job's repository is outside every scope."""


class Excess(StrEnum):
    """Which jobs a runner group admits although it should not."""

    PUBLIC_REPOSITORIES = "public_repositories"
    OUTSIDE_ACCESS = "outside_access"


@dataclass(frozen=True, slots=True)
class RunnerGroup:
    """A runner group as GitHub shows it.

    `repositories` are the repositories selected for the group (`owner/name`). It is None if the group
    admits all repositories of the organization (`visibility` is `all` or `private`). `workflows` are those that
    may use it, if it is restricted to some.
    """

    visibility: str
    allows_public_repositories: bool
    restricted_to_workflows: bool
    repositories: tuple[str, ...] | None = None
    workflows: tuple[str, ...] = ()

    def refuses(self, repository: str, is_public: bool) -> bool:
        """Return True if GitHub gives no job of `owner/name` to a runner of the group, whatever the workflow.

        Without `allows_public_repositories`, that is so for a public repository that is selected, too
        (docs.github.com, "Managing access to self-hosted runners using groups").
        """
        if is_public and not self.allows_public_repositories:
            return True
        name, chosen = repository.lower(), self.repositories
        return chosen is not None and all(name != one.lower() for one in chosen)


@dataclass(frozen=True, slots=True)
class Finding:
    """One kind of excess, and the repositories that are known to be affected."""

    excess: Excess
    repositories: tuple[str, ...] = ()


def excesses(
    catalogue: Catalogue, scope: Scope, group: RunnerGroup, known: tuple[str, ...]
) -> tuple[Finding, ...]:
    """Return what a scope's runner group admits although no scope or no SKU's `access` admits it.

    `known` are repositories of the organization. A group that admits all repositories also admits
    future ones. This is an excess unless an `access` admits future repositories, too.
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
