"""Whether a job may use this machine: its repository, and whether it comes from a fork."""

from __future__ import annotations

import fnmatch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def refusal_of_job(access: dict[str, Any], repository: str, event: Any) -> str | None:
    """Return why `access` does not admit the job, or None if it does.

    `access` is that of the SKU in fleet.yaml. `repository` is the job's `owner/name`. `event` is the
    payload of the webhook that started the run (GITHUB_EVENT_PATH), or None if it could not be read.
    """
    globs = access.get("repositories")
    globs = globs if isinstance(globs, list) else []
    if not any(fnmatch.fnmatchcase(repository.lower(), str(glob).lower()) for glob in globs):
        return f"the repository {repository} may not use it"
    if access.get("forks") is True:
        return None
    if not isinstance(event, dict):
        return "the event of the run could not be read, so it may come from a fork"
    head = head_repository(event)
    if head is None or head.lower() == repository.lower():
        return None
    return f"the run comes from {head or 'a deleted fork'}, and forks may not use it"


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
