"""Compares runner groups with the SKUs' `access`, at the start and every hour, and warns if one is too wide."""

from collections.abc import Collection

import structlog

from autoscaler.controller.journal import Journal
from autoscaler.controller.ports.clock import Clock
from autoscaler.controller.ports.github import GitHub, GitHubError
from autoscaler.controller.ports.github_lists import GitHubLists, ListedRepository, Listing
from autoscaler.controller.ports.telemetry import GroupTelemetry
from autoscaler.model.access import Excess, excesses
from autoscaler.model.catalogue import Scope
from autoscaler.model.identifiers import Seconds

EVERY: Seconds = 3600.0
AGAIN: Seconds = 300.0
"""Interval of retries after a group could not be read."""

NAMED_AT_MOST = 10
"""Maximum number of repositories in a warning."""

_log = structlog.get_logger(__name__)


class GroupWatch:
    """Reads the runner group of every organization's scope, and changes nothing."""

    def __init__(
        self,
        journal: Journal,
        github: GitHub,
        lists: GitHubLists,
        telemetry: GroupTelemetry,
        clock: Clock,
    ) -> None:
        self._journal = journal
        self._github = github
        self._lists = lists
        self._telemetry = telemetry
        self._clock = clock

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            read = [await self._check_group(scope) for scope in self._scopes()]
            await self._clock.sleep(EVERY if all(read) else AGAIN)

    def _scopes(self) -> list[Scope]:
        """Return one scope for each runner group. Runners of a repository's scope have no such group."""
        scopes = self._journal.ledger.state.catalogue.scopes
        groups = {
            (scope.key, scope.runner_group): scope for scope in scopes if scope.repository is None
        }
        return list(groups.values())

    async def _check_group(self, scope: Scope) -> bool:
        """Compare one runner group with `access`. Return False if it could not be read.

        The organization's repositories matter only for a group that admits all of them.
        """
        listed: Listing[ListedRepository] = Listing()
        try:
            group = await self._github.runner_group(scope.key, scope.runner_group)
            if group.repositories is None:
                listed = await self._lists.repositories(scope.key)
        except GitHubError as error:
            _log.warning(
                "runner_group_not_read",
                scope=scope.key,
                runner_group=scope.runner_group,
                error=str(error),
            )
            return False
        known = tuple(one.name for one in listed.items)
        catalogue = self._journal.ledger.state.catalogue
        found = excesses(catalogue, scope, group, known)
        for finding in found:
            _log.warning(
                "runner_group_too_wide",
                scope=scope.key,
                runner_group=scope.runner_group,
                reason=finding.excess,
                visibility=group.visibility,
                restricted_to_workflows=group.restricted_to_workflows,
                repositories=finding.repositories[:NAMED_AT_MOST],
                count=len(finding.repositories),
                is_complete=listed.whole,
            )
        self._report(scope, {finding.excess for finding in found}, is_complete=listed.whole)
        return True

    def _report(self, scope: Scope, found: Collection[Excess], *, is_complete: bool) -> None:
        """Set the metric of a group.

        An incomplete list of repositories proves no absence, so the metric keeps its earlier value.
        """
        for excess in Excess:
            if excess in found or is_complete or excess is not Excess.OUTSIDE_ACCESS:
                account = scope.owner.lower()
                self._telemetry.runner_group(account, scope.runner_group, excess, excess in found)
            else:
                _log.warning(
                    "runner_group_partly_checked", scope=scope.key, runner_group=scope.runner_group
                )
