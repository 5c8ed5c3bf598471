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
from autoscaler.model.jobs.runner_group_excess import Excess, RunnerGroup, excesses

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
                await self._look(scope)
            await self._clock.sleep(LOOK_EVERY)

    async def _look(self, scope: Scope) -> None:
        """Read one runner group if it is due, and compare it. Read it, too, while jobs of it are on hold."""
        key, now = (scope.key, scope.runner_group), self._clock.now()
        is_due = now >= self._due.get(key, now)
        if not is_due and not self._has_jobs_on_hold(scope):
            return
        pause = EVERY
        try:
            group = await self._github.runner_group(*key)
            await self._journal.record(RunnerGroupRead(self._journal.now, *key, group))
            if is_due:
                await self._compare(scope, group)
        except GitHubError as error:
            pause = AGAIN
            _log.warning(
                "runner_group_not_read", scope=key[0], runner_group=key[1], error=str(error)
            )
        if is_due:
            self._due[key] = now + pause

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

    async def _compare(self, scope: Scope, group: RunnerGroup) -> None:
        """Compare one runner group with `access`. Raises GitHubError.

        The organization's repositories matter only for a group that admits all of them.
        """
        listed: Listing[ListedRepository] = Listing()
        if group.repositories is None:
            listed = await self._lists.repositories(scope.key)
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
