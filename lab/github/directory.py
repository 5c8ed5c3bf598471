"""The organizations, repositories, runner groups and Apps of the lab's GitHub, from the settings.

Look-ups ignore case, as GitHub does.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from lab.github.credentials import Installation
from lab.github.records import Organization, RegisteredApp, Repository, RunnerGroup
from lab.github.settings import (
    DEFAULT_GROUP,
    EVENTS,
    PERMISSIONS,
    LabApp,
    LabOrganization,
    LabRunnerGroup,
)

_FIRST_ORGANIZATION = 21_000_001
_FIRST_REPOSITORY = 650_000_001
_FIRST_INSTALLATION = 51_000_001


def _organization(settings: LabOrganization, index: int) -> Organization:
    number = _FIRST_ORGANIZATION + index
    public = frozenset(name.lower() for name in settings.public)
    repositories_by_name = {
        name.lower(): Repository(
            _FIRST_REPOSITORY + 1000 * index + place,
            settings.login,
            number,
            name,
            private=name.lower() not in public,
        )
        for place, name in enumerate(settings.repositories)
    }
    groups = _groups(settings, index)
    return Organization(number, settings.login, groups, repositories_by_name, settings.kind)


def _groups(settings: LabOrganization, index: int) -> dict[int, RunnerGroup]:
    groups = {1: _group(settings, LabRunnerGroup(DEFAULT_GROUP), 1)}
    for group in settings.runner_groups:
        number = group.id if group.id is not None else len(groups) + 1 + 100 * index
        groups[number] = _group(settings, group, number)
    return groups


def _group(settings: LabOrganization, group: LabRunnerGroup, number: int) -> RunnerGroup:
    listed = group.repositories
    chosen = None if listed is None else frozenset(name.lower() for name in listed)
    open_to = chosen
    if settings.public and not group.allows_public_repositories:
        every = chosen or frozenset(name.lower() for name in settings.repositories)
        open_to = every - {name.lower() for name in settings.public}
    workflows = None if group.workflows is None else frozenset(group.workflows)
    return RunnerGroup(
        number, group.name, chosen, open_to, group.allows_public_repositories, workflows
    )


def registered(app: LabApp, organizations: Sequence[LabOrganization]) -> RegisteredApp:
    """Return an App of the settings, which the first organization owns."""
    owner = organizations[0].login if organizations else "octocat"
    return RegisteredApp(
        app.id,
        f"lab-{app.id}",
        owner,
        PERMISSIONS,
        EVENTS,
        "https://example.com",
        app.webhook_url or "",
    )


class Directory:
    """All organizations, and the installations of Apps on them, by App ID and login."""

    def __init__(self, apps: Sequence[LabApp], organizations: Sequence[LabOrganization]) -> None:
        self._settings = {one.login.lower(): (n, one) for n, one in enumerate(organizations)}
        self.organizations: dict[str, Organization] = {
            settings.login.lower(): _organization(settings, index)
            for index, settings in enumerate(organizations)
        }
        self.installations: dict[tuple[int, str], Installation] = {}
        self._by_id: dict[int, Installation] = {}
        self.suspended: dict[int, float] = {}
        """When an installation was suspended, by its ID."""
        self.accepted: dict[int, Mapping[str, str]] = {}
        """The permissions that an installation's owner accepted, if they are not all of the App's."""
        self._installed = 0
        self.apps = {app.id: registered(app, organizations) for app in apps}
        for app in apps:
            for login in self.organizations:
                if app.organizations is None or login in map(str.lower, app.organizations):
                    self.install(app.id, login)

    def install(self, app_id: int, login: str, number: int | None = None) -> None:
        """Install an App on an organization, with this installation ID or a new one."""
        organization = self.organizations[login.lower()]
        if number is None:
            number = _FIRST_INSTALLATION + self._installed
        self._installed += 1
        installation = Installation(number, app_id, organization.login)
        self.installations[app_id, organization.login] = self._by_id[number] = installation

    def uninstall(self, app_id: int, login: str) -> Installation:
        """Remove and return an App's installation. Raises KeyError if there is none."""
        removed = self.installations.pop((app_id, self.organizations[login.lower()].login))
        return self._by_id.pop(removed.id)

    def replace_groups(self, login: str, groups: Sequence[LabRunnerGroup]) -> None:
        """Replace an organization's runner groups, except the default one."""
        index, settings = self._settings[login.lower()]
        found = _groups(replace(settings, runner_groups=tuple(groups)), index)
        organization = self.organizations[login.lower()]
        organization.groups.clear()
        organization.groups.update(found)

    def create_group(self, login: str, group: LabRunnerGroup) -> RunnerGroup:
        """Create a runner group and return it. Raises ValueError for a name that exists."""
        organization = self.organizations[login.lower()]
        if group.name in {one.name for one in organization.groups.values()}:
            raise ValueError(group.name)
        number = max(organization.groups) + 1
        settings = self._settings[login.lower()][1]
        made = organization.groups[number] = _group(settings, group, number)
        return made

    def installation(self, number: int) -> Installation | None:
        """Return the installation with this ID, or None."""
        return self._by_id.get(number)

    def installations_of(self, app_id: int) -> list[Installation]:
        """Return an App's installations, in the order of the organizations."""
        return [found for found in self._by_id.values() if found.app_id == app_id]

    def organization(self, login: str) -> Organization | None:
        """Return the organization with this login, or None."""
        return self.organizations.get(login.lower())

    def create_repository(self, owner: str, name: str, at: float) -> Repository:
        """Create a private repository. Raises ValueError for an unknown owner or a name that exists."""
        organization = self.organization(owner)
        if organization is None or name.lower() in organization.repositories:
            raise ValueError(f"{owner}/{name} cannot be created")
        first = min(one.id for one in organization.repositories.values())
        number = first + len(organization.repositories)
        made = Repository(number, organization.login, organization.id, name, created_at=at)
        organization.repositories[name.lower()] = made
        return made

    def repository(self, owner: str, name: str) -> Repository | None:
        """Return the repository with this owner and short name, or None."""
        organization = self.organization(owner)
        return organization.repositories.get(name.lower()) if organization is not None else None
