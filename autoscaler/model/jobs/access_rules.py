"""Whether a SKU's `access` admits a job. The controller and the job hook both decide with this module.

The agent's file contains this module. So it imports the standard library alone, and needs only Python 3.9.
"""

from __future__ import annotations

import fnmatch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Protocol

    class AccessRules(Protocol):
        """The keys of `access` that decide."""

        @property
        def repositories(self) -> Sequence[str]:
            """Globs over `owner/name`, case-insensitive."""

        @property
        def forks(self) -> bool:
            """Whether runs from forks are admitted."""

        @property
        def public_repositories(self) -> bool:
            """Whether public repositories are admitted."""

        @property
        def branches(self) -> Sequence[str]:
            """Globs over branches, case-sensitive as branches are; empty for any run."""

    class Origin(Protocol):
        """Where a run comes from. `branch` is the result of `branch_of_run`."""

        @property
        def from_fork(self) -> bool:
            """Whether the head repository is another one than the run's."""

        @property
        def public(self) -> bool:
            """Whether the run's repository is public."""

        @property
        def branch(self) -> str | None:
            """The branch on which the run is, or None."""


def admits_repository(rules: AccessRules, repository: str) -> bool:
    """Return True if `access.repositories` admits `owner/name`."""
    name = repository.lower()
    return any(fnmatch.fnmatchcase(name, glob.lower()) for glob in rules.repositories)


def depends_on_run(rules: AccessRules) -> bool:
    """Return True if these rules need the origin of a job's run, and not only its repository's name."""
    return not rules.forks or not rules.public_repositories or bool(rules.branches)


def rule_against(rules: AccessRules, origin: Origin) -> str | None:
    """Return the key of `access` that refuses jobs of a run with this origin, or None if none does."""
    if origin.from_fork and not rules.forks:
        return "forks"
    if origin.public and not rules.public_repositories:
        return "public_repositories"
    if rules.branches:
        branch = origin.branch
        if branch is None or not any(fnmatch.fnmatchcase(branch, glob) for glob in rules.branches):
            return "branches"
    return None


def branch_of_run(event: str, branch: str | None, from_fork: bool) -> str | None:
    """Return the branch of the repository on which a run is, or None if it is on none.

    `event` is the event that started the run (`event`, GITHUB_EVENT_NAME). `branch` is the branch that GitHub
    names: `head_branch` of the run, or that of GITHUB_REF.

    The run of a pull request is on no branch. It runs the code of two branches (`refs/pull/N/merge`), and its
    author chooses both: neither name shows who has reviewed the code. Of `pull_request_target`, GITHUB_REF has
    the base branch and the run's `head_branch` that of the pull request (GitHub documentation, "Events that
    trigger workflows"). The name of a fork's branch means nothing in the repository.
    """
    return None if from_fork or event.startswith("pull_request") else branch
