"""The permissions and the event that a fleet's GitHub App needs: one table for `init` and `doctor`. Pure.

Source: docs.github.com, "Permissions required for GitHub Apps".
"""

from collections.abc import Mapping

EVENT = "workflow_job"

_ENOUGH = {"read": {"read", "write", "admin"}, "write": {"write", "admin"}}


def permissions_for(*, repository: bool, reruns: bool = False) -> dict[str, str]:
    """Return the narrowest permissions: to serve a repository, or an organization.

    `reruns`: a SKU has `rerun_interrupted`, for which the App re-runs jobs.
    """
    runners = (
        {"administration": "write"} if repository else {"organization_self_hosted_runners": "write"}
    )
    return {"metadata": "read", "actions": "write" if reruns else "read", **runners}


def missing_permissions(needed: Mapping[str, str], allowed: Mapping[str, str]) -> list[str]:
    """Return the permissions that an App lacks, such as `actions: read`."""
    return [
        f"{name}: {level}"
        for name, level in needed.items()
        if allowed.get(name) not in _ENOUGH[level]
    ]
