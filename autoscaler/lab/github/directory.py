"""Who is on this GitHub: organizations, repositories and groups, and the Apps installed there.

Made once from the settings; finding is without regard to case, as at GitHub.
"""

from collections.abc import Sequence

from autoscaler.lab.github.credentials import Installation
from autoscaler.lab.github.records import Organization, Repository, RunnerGroup
from autoscaler.lab.github.settings import DEFAULT_GROUP, LabApp, LabOrganization

_FIRST_ORGANIZATION = 21_000_001
_FIRST_REPOSITORY = 650_000_001
_FIRST_INSTALLATION = 51_000_001


def _organization(settings: LabOrganization, index: int) -> Organization:
    number = _FIRST_ORGANIZATION + index
    groups = {1: RunnerGroup(1, DEFAULT_GROUP, None)}
    for group in settings.runner_groups:
        group_id = len(groups) + 1 + 100 * index
        repositories = group.repositories
        open_to = None if repositories is None else frozenset(r.lower() for r in repositories)
        groups[group_id] = RunnerGroup(group_id, group.name, open_to)
    repositories_by_name = {
        name.lower(): Repository(
            _FIRST_REPOSITORY + 1000 * index + place, settings.login, number, name
        )
        for place, name in enumerate(settings.repositories)
    }
    return Organization(number, settings.login, groups, repositories_by_name)


class Directory:
    """All of it. Every App is installed on every organization."""

    def __init__(self, apps: Sequence[LabApp], organizations: Sequence[LabOrganization]) -> None:
        self.organizations: dict[str, Organization] = {
            settings.login.lower(): _organization(settings, index)
            for index, settings in enumerate(organizations)
        }
        self.installations: dict[tuple[int, str], Installation] = {}
        self._by_id: dict[int, Installation] = {}
        for app in apps:
            for organization in self.organizations.values():
                number = _FIRST_INSTALLATION + len(self._by_id)
                installation = Installation(number, app.id, organization.login)
                self.installations[app.id, organization.login] = installation
                self._by_id[number] = installation

    def installation(self, number: int) -> Installation | None:
        """By id."""
        return self._by_id.get(number)

    def installations_of(self, app_id: int) -> list[Installation]:
        """One App's, in the order of the organizations."""
        return [found for found in self._by_id.values() if found.app_id == app_id]

    def organization(self, login: str) -> Organization | None:
        """By login."""
        return self.organizations.get(login.lower())

    def repository(self, owner: str, name: str) -> Repository | None:
        """By owner and short name."""
        organization = self.organization(owner)
        return organization.repositories.get(name.lower()) if organization is not None else None
