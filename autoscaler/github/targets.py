"""Where registrations are made, as GitHub's routes name it: an organisation or a repository. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from autoscaler.controller.ports.github import OperatorError
from autoscaler.github.jobs import repository_name


@dataclass(frozen=True, slots=True)
class Target:
    """An organisation, or one repository. `account` is whose limits and installation count."""

    owner: str
    repository: str | None = None

    @property
    def account(self) -> str:
        """The owner, as a key: GitHub's names know no case."""
        return self.owner.lower()

    @property
    def route(self) -> str:
        """The URI template of its root."""
        return "/orgs/{org}" if self.repository is None else "/repos/{owner}/{repo}"

    @property
    def variables(self) -> Mapping[str, str]:
        """What fills `route`."""
        if self.repository is None:
            return {"org": self.owner}
        return {"owner": self.owner, "repo": self.repository}

    def __str__(self) -> str:
        return self.owner if self.repository is None else f"{self.owner}/{self.repository}"


def target_of_scope(scope: str) -> Target:
    """`org:acme` or `repo:acme/widgets` (`Scope.key`). Raises OperatorError on anything else."""
    kind, _, name = scope.partition(":")
    if kind == "repo":
        return target_of_repository(name)
    if kind == "org":
        # An owner obeys the same rule as one beside a repository.
        return Target(target_of_repository(f"{name}/any").owner)
    raise OperatorError(f"{scope!r} is no scope")


def target_of_repository(repository: str) -> Target:
    """`acme/widgets`. Raises OperatorError on anything else."""
    try:
        owner, _, name = repository_name(repository).partition("/")
    except ValueError:
        raise OperatorError(f"{repository!r} is no owner/name") from None
    return Target(owner, name)
