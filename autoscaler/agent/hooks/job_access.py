"""Whether a job may use this machine: its repository, whether it comes from a fork, and its branch."""

from __future__ import annotations

import collections

from autoscaler.model.jobs.access_rules import admits_repository, branch_of_run, rule_against

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

Access = collections.namedtuple(
    "Access", ("repositories", "forks", "public_repositories", "branches")
)
Refusal = collections.namedtuple("Refusal", ("code", "text"))
JobOrigin = collections.namedtuple("JobOrigin", ("from_fork", "public", "branch"))

BRANCH_PREFIX = "refs/heads/"

REFUSAL_CODES = {
    "repositories": "repository_not_allowed",
    "forks": "fork_not_allowed",
    "public_repositories": "public_repository_not_allowed",
    "branches": "branch_not_allowed",
}
"""The reason code of a refused job by the key of `access` that refuses it, as in the controller's log."""

EVENT_UNREADABLE = "event_unreadable"
"""The reason code if the event, on which `access` depends, could not be read."""


def refusal_of_job(access: dict[str, Any], job: Mapping[str, str], event: Any) -> Refusal | None:
    """Return why `access` does not admit the job, as a code and in words, or None if it does.

    `access` is that of the SKU in fleet.yaml. `job` has GitHub's variables of the job (GITHUB_REPOSITORY,
    GITHUB_REF, GITHUB_EVENT_NAME). `event` is the payload of the webhook that started the run
    (GITHUB_EVENT_PATH), or None if it could not be read.
    """
    rules = access_of(access)
    rule: str | None = "repositories"
    if admits_repository(rules, job.get("GITHUB_REPOSITORY", "")):
        rule = rule_against(rules, origin_of_job(job, event))
    if rule is None:
        return None
    if rule != "repositories" and not isinstance(event, dict):
        value = "set" if rule == "branches" else "false"
        text = f"the event of the run could not be read, and access.{rule} is {value}"
        return Refusal(EVENT_UNREADABLE, text)
    return Refusal(REFUSAL_CODES[rule], _in_words(rule, rules, job, event))


def _in_words(rule: str, rules: Access, job: Mapping[str, str], event: Any) -> str:
    """Return why this key of `access` refuses the job, for its author."""
    repository = job.get("GITHUB_REPOSITORY", "")
    if rule == "repositories":
        return f"the repository {repository} may not use it"
    if rule == "branches":
        run = f"{job.get('GITHUB_EVENT_NAME', '')} runs on {job.get('GITHUB_REF') or 'no branch'}"
        return f"this {run}, and only runs on {' or '.join(rules.branches)} may use it"
    if rule == "forks":
        head = head_repository(event)
        return f"the run comes from {head or 'a deleted fork'}, and forks may not use it"
    return f"the repository {repository} is not private, and public repositories may not use it"


def access_of(access: dict[str, Any]) -> Access:
    """Return the rules. A controller of an earlier release sends no visibility and no branches."""
    return Access(
        _texts(access.get("repositories")),
        access.get("forks") is True,
        access.get("public_repositories", True) is True,
        _texts(access.get("branches")),
    )


def origin_of_job(job: Mapping[str, str], event: Any) -> JobOrigin:
    """Return where the job's run comes from. What the event does not say counts as refused."""
    name, ref = job.get("GITHUB_EVENT_NAME", ""), job.get("GITHUB_REF", "")
    from_fork = is_from_fork(job.get("GITHUB_REPOSITORY", ""), event)
    branch = ref[len(BRANCH_PREFIX) :] if ref.startswith(BRANCH_PREFIX) else None
    return JobOrigin(from_fork, is_public(name, event), branch_of_run(name, branch, from_fork))


def is_from_fork(repository: str, event: Any) -> bool:
    """Return True if the event is of a pull request from another repository, or could not be read."""
    if not isinstance(event, dict):
        return True
    head = head_repository(event)
    return head is not None and head.lower() != repository.lower()


def is_public(event_name: str, event: Any) -> bool:
    """Return True unless the event says that the job's repository is private or internal.

    The event of a scheduled run may have no repository. Then it counts as private: it is a run of the default
    branch that only a member can have written.
    """
    if not isinstance(event, dict):
        return True
    repository = event.get("repository")
    if repository is None and event_name == "schedule":
        return False
    return not isinstance(repository, dict) or repository.get("private") is not True


def head_repository(event: dict[str, Any]) -> str | None:
    """Return the repository of a pull request's head, empty if it was deleted; None if it is no pull request.

    As in the payloads of `pull_request`, `pull_request_target` and `pull_request_review` (GitHub
    documentation, "Webhook events and payloads"). `head.repo` is null if the fork was deleted.
    """
    request = event.get("pull_request")
    if not isinstance(request, dict):
        return None
    head = request.get("head")
    repository = head.get("repo") if isinstance(head, dict) else None
    name = repository.get("full_name") if isinstance(repository, dict) else None
    return name if isinstance(name, str) else ""


def _texts(value: Any) -> list[str]:
    return [str(one) for one in value] if isinstance(value, list) else []
