"""Reads runner groups at the start and every hour, and each minute while jobs of one are on hold.

Warns if a group admits more than the SKUs' `access`. The ledger puts jobs on hold that a group refuses.
"""

from collections.abc import Collection

import structlog

from autoscaler.controller.journal import Journal
from autoscaler.controller.ports.clock import Clock
from autoscaler.controller.ports.github import GitHub, GitHubError
from autoscaler.controller.ports.github_lists import GitHubLists, ListedRepository, Listing
from autoscaler.controller.ports.telemetry import Telemetry
from autoscaler.model.catalogue import Scope
from autoscaler.model.events import RunnerGroupRead
from autoscaler.model.identifiers import Instant, Seconds
from autoscaler.model.jobs.access import Excess, RunnerGroup, excesses

EVERY: Seconds = 3600.0
AGAIN: Seconds = 300.0
"""Interval of retries after a group could not be read."""

LOOK_EVERY: Seconds = 60.0
"""How often a group is read while jobs are on hold that GitHub gives to no runner of it."""

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
        telemetry: Telemetry,
        clock: Clock,
    ) -> None:
        self._journal = journal
        self._github = github
        self._lists = lists
        self._telemetry = telemetry
        self._clock = clock
        self._due: dict[tuple[str, str], Instant] = {}

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            for scope in self._scopes():
                key, now = (scope.key, scope.runner_group), self._clock.now()
                if now >= self._due.get(key, now):
                    self._due[key] = now + (EVERY if await self._check_group(scope) else AGAIN)
                elif self._has_jobs_on_hold(scope):
                    await self._read(scope)
            await self._clock.sleep(LOOK_EVERY)

    def _has_jobs_on_hold(self, scope: Scope) -> bool:
        return any(
            (demand.scope, demand.runner_group) == (scope.key, scope.runner_group)
            for demand in self._journal.ledger.state.on_hold
        )

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
        group = await self._read(scope)
        if group is None:
            return False
        listed: Listing[ListedRepository] = Listing()
        if group.repositories is None:
            try:
                listed = await self._lists.repositories(scope.key)
            except GitHubError as error:
                self._report_unread(scope, error)
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
                workflows=group.workflows,
                repositories=finding.repositories[:NAMED_AT_MOST],
                count=len(finding.repositories),
                is_complete=listed.whole,
            )
        self._report(scope, {finding.excess for finding in found}, is_complete=listed.whole)
        return True

    async def _read(self, scope: Scope) -> RunnerGroup | None:
        """Read one runner group, for the ledger, too. Return None if it could not be read."""
        try:
            group = await self._github.runner_group(scope.key, scope.runner_group)
        except GitHubError as error:
            self._report_unread(scope, error)
            return None
        now = self._journal.now
        await self._journal.record(RunnerGroupRead(now, scope.key, scope.runner_group, group))
        return group

    def _report_unread(self, scope: Scope, error: GitHubError) -> None:
        _log.warning(
            "runner_group_not_read",
            scope=scope.key,
            runner_group=scope.runner_group,
            error=str(error),
        )

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
