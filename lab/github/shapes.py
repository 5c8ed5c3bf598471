"""GitHub's JSON: users, organizations, repositories, installations, runners and runner groups.

Field names and types are those of GitHub's OpenAPI description and webhook schemas. Jobs
and runs are in job_shapes.py.
"""

import base64
import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from lab.github.credentials import Installation
from lab.github.records import Organization, RegisteredApp, Repository, Runner, RunnerGroup

READ_ONLY_LABELS = frozenset(
    {"self-hosted", "linux", "windows", "macos", "x64", "x86", "arm", "arm64"}
)
RUNNER_VERSION = "2.338.0"

_USER_LINKS = {
    "followers_url": "/followers",
    "following_url": "/following{/other_user}",
    "gists_url": "/gists{/gist_id}",
    "starred_url": "/starred{/owner}{/repo}",
    "subscriptions_url": "/subscriptions",
    "organizations_url": "/orgs",
    "repos_url": "/repos",
    "events_url": "/events{/privacy}",
    "received_events_url": "/received_events",
}
_REPOSITORY_LINKS = {
    "archive": "/{archive_format}{/ref}",
    "assignees": "/assignees{/user}",
    "blobs": "/git/blobs{/sha}",
    "branches": "/branches{/branch}",
    "collaborators": "/collaborators{/collaborator}",
    "comments": "/comments{/number}",
    "commits": "/commits{/sha}",
    "compare": "/compare/{base}...{head}",
    "contents": "/contents/{+path}",
    "contributors": "/contributors",
    "deployments": "/deployments",
    "downloads": "/downloads",
    "events": "/events",
    "forks": "/forks",
    "git_commits": "/git/commits{/sha}",
    "git_refs": "/git/refs{/sha}",
    "git_tags": "/git/tags{/sha}",
    "hooks": "/hooks",
    "issue_comment": "/issues/comments{/number}",
    "issue_events": "/issues/events{/number}",
    "issues": "/issues{/number}",
    "keys": "/keys{/key_id}",
    "labels": "/labels{/name}",
    "languages": "/languages",
    "merges": "/merges",
    "milestones": "/milestones{/number}",
    "notifications": "/notifications{?since,all,participating}",
    "pulls": "/pulls{/number}",
    "releases": "/releases{/id}",
    "stargazers": "/stargazers",
    "statuses": "/statuses/{sha}",
    "subscribers": "/subscribers",
    "subscription": "/subscription",
    "tags": "/tags",
    "teams": "/teams",
    "trees": "/git/trees{/sha}",
}
_PLAIN_REPOSITORY: Mapping[str, Any] = {
    "description": None,
    "fork": False,
    "private": True,
    "homepage": None,
    "size": 0,
    "stargazers_count": 0,
    "watchers_count": 0,
    "language": None,
    "has_issues": True,
    "has_projects": False,
    "has_downloads": True,
    "has_wiki": False,
    "has_pages": False,
    "has_discussions": False,
    "forks_count": 0,
    "mirror_url": None,
    "archived": False,
    "disabled": False,
    "open_issues_count": 0,
    "license": None,
    "allow_forking": True,
    "is_template": False,
    "web_commit_signoff_required": False,
    "topics": [],
    "visibility": "private",
    "forks": 0,
    "open_issues": 0,
    "watchers": 0,
    "default_branch": "main",
    "custom_properties": {},
}


def timestamp(moment: float) -> str:
    """Return Unix seconds in GitHub's format: whole seconds in UTC."""
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def node_id(kind: str, number: int) -> str:
    """Return a global node ID in GitHub's format: a kind and an opaque part."""
    return f"{kind}_{base64.urlsafe_b64encode(str(number).encode()).decode().rstrip('=')}"


def digest(text: str) -> str:
    """Return 40 hexadecimal digits, like the SHA of a commit."""
    return hashlib.sha256(text.encode()).hexdigest()[:40]


class Shapes:
    """JSON values with links to one server: the URLs of its API and its pages, without a slash at the end."""

    def __init__(self, api: str, pages: str, founded: float) -> None:
        self.api = api
        self.pages = pages
        self._founded = timestamp(founded)

    def user(self, login: str, number: int, kind: str) -> dict[str, Any]:
        """Return a user's JSON. `kind` is User, Organization or Bot."""
        url = f"{self.api}/users/{login}"
        return {
            "login": login,
            "id": number,
            "node_id": node_id("O" if kind == "Organization" else "U", number),
            "avatar_url": f"{self.pages}/avatars/u/{number}",
            "gravatar_id": "",
            "url": url,
            "html_url": f"{self.pages}/{login}",
            **{name: url + path for name, path in _USER_LINKS.items()},
            "type": kind,
            "user_view_type": "public",
            "site_admin": False,
        }

    def sender(self) -> dict[str, Any]:
        """Return the JSON of the user who pushes everything in the lab."""
        return self.user("lab-pusher", 1000, "User")

    def organization(self, organization: Organization) -> dict[str, Any]:
        """Return an organization's JSON as webhooks have it."""
        url = f"{self.api}/orgs/{organization.login}"
        return {
            "login": organization.login,
            "id": organization.id,
            "node_id": node_id("O", organization.id),
            "url": url,
            "repos_url": f"{url}/repos",
            "events_url": f"{url}/events",
            "hooks_url": f"{url}/hooks",
            "issues_url": f"{url}/issues",
            "members_url": f"{url}/members{{/member}}",
            "public_members_url": f"{url}/public_members{{/member}}",
            "avatar_url": f"{self.pages}/avatars/u/{organization.id}",
            "description": "",
        }

    def repository(self, repository: Repository) -> dict[str, Any]:
        """Return a repository's JSON as webhooks and workflow runs have it."""
        name = repository.full_name
        created = timestamp(repository.created_at) if repository.created_at else self._founded
        url, html = f"{self.api}/repos/{name}", f"{self.pages}/{name}"
        return {
            "id": repository.id,
            "node_id": node_id("R", repository.id),
            "name": repository.name,
            "full_name": name,
            "owner": self.user(repository.owner, repository.owner_id, "Organization"),
            "html_url": html,
            "url": url,
            **{f"{link}_url": url + path for link, path in _REPOSITORY_LINKS.items()},
            "git_url": html.replace("http", "git", 1) + ".git",
            "ssh_url": f"git@{html.split('//', 1)[1]}.git",
            "clone_url": f"{html}.git",
            "svn_url": html,
            "created_at": created,
            "updated_at": created,
            "pushed_at": created,
            **_PLAIN_REPOSITORY,
            "fork": repository.fork,
            "private": repository.private,
            "visibility": "private" if repository.private else "public",
        }

    def app(self, app: RegisteredApp, owner: Organization, installations: int) -> dict[str, Any]:
        """Return the JSON of an App, as it reads itself (REST "Get the authenticated app")."""
        # github.com has /apps/SLUG, an Enterprise Server /github-apps/SLUG.
        pages = "github-apps" if self.api != self.pages else "apps"
        return {
            "id": app.id,
            "slug": app.slug,
            "node_id": node_id("A", app.id),
            "client_id": f"Iv23li{app.id:014}",
            "owner": self.user(owner.login, owner.id, owner.kind),
            "name": app.name,
            "description": None,
            "external_url": app.url,
            "html_url": f"{self.pages}/{pages}/{app.slug}",
            "created_at": self._founded,
            "updated_at": self._founded,
            "permissions": dict(app.permissions),
            "events": list(app.events),
            "installations_count": installations,
        }

    def installation(
        self, installation: Installation, account: Organization, app: RegisteredApp
    ) -> dict[str, Any]:
        """Return the JSON of an App's installation, as the App reads it."""
        url = f"{self.api}/app/installations/{installation.id}"
        return {
            "id": installation.id,
            "account": self.user(account.login, account.id, account.kind),
            "repository_selection": "all",
            "access_tokens_url": f"{url}/access_tokens",
            "repositories_url": f"{self.api}/installation/repositories",
            "html_url": f"{self.pages}/organizations/{account.login}/settings/installations",
            "app_id": installation.app_id,
            "app_slug": app.slug,
            "target_id": account.id,
            "target_type": account.kind,
            "permissions": dict(app.permissions),
            "events": list(app.events),
            "created_at": self._founded,
            "updated_at": self._founded,
            "single_file_name": None,
            "has_multiple_single_files": False,
            "single_file_paths": [],
            "suspended_by": None,
            "suspended_at": None,
        }

    def runner_group(self, organization: str, group: RunnerGroup) -> dict[str, Any]:
        """Return the JSON of an organization's runner group."""
        url = f"{self.api}/orgs/{organization}/actions/runner-groups/{group.id}"
        shape: dict[str, Any] = {
            "id": group.id,
            "name": group.name,
            "visibility": "all" if group.repositories is None else "selected",
            "default": group.id == 1,
            "runners_url": f"{url}/runners",
            "hosted_runners_url": f"{url}/hosted-runners",
            "inherited": False,
            "allows_public_repositories": group.allows_public_repositories,
            "restricted_to_workflows": group.workflows is not None,
            "selected_workflows": sorted(group.workflows or ()),
            "workflow_restrictions_read_only": False,
        }
        if group.repositories is not None:
            shape["selected_repositories_url"] = f"{url}/repositories"
        return shape


def runner(record: Runner, *, online: bool) -> dict[str, Any]:
    """Return a runner's JSON. Its operating system is `unknown` until the runner has connected."""
    system = "unknown"
    if record.connected:
        system = "windows" if "windows" in record.kind.labels else "linux"
    return {
        "id": record.id,
        "runner_group_id": record.group.id,
        "name": record.name,
        "os": system,
        "status": "online" if online else "offline",
        "busy": record.job is not None,
        "ephemeral": True,
        "version": RUNNER_VERSION if record.connected else None,
        "labels": [
            {
                "id": number,
                "name": label,
                "type": "read-only" if label.lower() in READ_ONLY_LABELS else "custom",
            }
            for number, label in enumerate(record.labels, 1)
        ],
    }
