"""The organization or repository of a request, as GitHub's routes name it. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from autoscaler.controller.ports.github import OperatorError
from autoscaler.github.jobs import repository_name


@dataclass(frozen=True, slots=True)
class Target:
    """An organization, or one repository. `account` has the installation and the rate limits."""

    owner: str
    repository: str | None = None

    @property
    def account(self) -> str:
        """The owner in lower case, because GitHub's names are case-insensitive."""
        return self.owner.lower()

    @property
    def route(self) -> str:
        """The URI template with which routes about it begin."""
        return "/orgs/{org}" if self.repository is None else "/repos/{owner}/{repo}"

    @property
    def variables(self) -> Mapping[str, str]:
        """The values of the variables in `route`."""
        if self.repository is None:
            return {"org": self.owner}
        return {"owner": self.owner, "repo": self.repository}

    def __str__(self) -> str:
        return self.owner if self.repository is None else f"{self.owner}/{self.repository}"


def target_of_scope(scope: str) -> Target:
    """Parse `org:acme` or `repo:acme/widgets` (`Scope.key`). Raises OperatorError."""
    kind, _, name = scope.partition(":")
    if kind == "repo":
        return target_of_repository(name)
    if kind == "org":
        # The name of an owner has the same format as in `owner/name`.
        return Target(target_of_repository(f"{name}/any").owner)
    raise OperatorError(f"{scope!r} is not a scope such as org:OWNER or repo:OWNER/NAME")


def target_of_repository(repository: str) -> Target:
    """Parse `acme/widgets`. Raises OperatorError."""
    try:
        owner, _, name = repository_name(repository).partition("/")
    except ValueError:
        raise OperatorError(f"{repository!r} is not a repository such as OWNER/NAME") from None
    return Target(owner, name)
