"""Reports until when GitHub gives jobs to the runner version of each SKU's machines.

Reads GitHub's list of releases at the start and every hour. The list has the date of each release, so nothing
needs to be stored. While the list was never read, or no machine of a SKU has reported a version, the time is
unknown, and is not reported.
"""

from collections import defaultdict

import structlog

from autoscaler.controller.journal import Journal
from autoscaler.controller.ports.clock import Clock
from autoscaler.controller.ports.github import GitHubError
from autoscaler.controller.ports.github_lists import GitHubLists
from autoscaler.controller.ports.telemetry import RunnerVersionTelemetry
from autoscaler.model.events import Event, HealthChecksReported
from autoscaler.model.identifiers import Instant, Seconds, SkuName
from autoscaler.model.machines import Machine
from autoscaler.model.runner_releases import (
    IN_USE_FOR,
    RunnerRelease,
    Version,
    deadline,
    parse_version,
    version_in_use,
    version_text,
)

EVERY: Seconds = 3600.0

_log = structlog.get_logger(__name__)


class RunnerReleaseWatch:
    """Listens to the machines' health checks, and reads the releases in `run`."""

    def __init__(
        self,
        journal: Journal,
        lists: GitHubLists,
        telemetry: RunnerVersionTelemetry,
        clock: Clock,
    ) -> None:
        self._journal = journal
        self._lists = lists
        self._telemetry = telemetry
        self._clock = clock
        self._releases: tuple[RunnerRelease, ...] = ()
        self._reported: defaultdict[SkuName, dict[Version, Instant]] = defaultdict(dict)
        self._logged = ""
        journal.on_event(self._on_event)

    async def run(self) -> None:
        """Run until cancelled. A failed read is repeated an hour later: the deadline is days away."""
        for machine in self._journal.ledger.state.machines.values():
            self._note(machine, machine.progress.ready_at)
        while True:
            await self._read()
            for sku in tuple(self._reported):
                self._report(sku)
            await self._clock.sleep(EVERY)

    def _on_event(self, event: Event) -> None:
        if not isinstance(event, HealthChecksReported) or not event.passed:
            return
        machine = self._journal.ledger.state.machines.get(event.machine)
        if machine is not None:
            self._note(machine, event.at)
            self._report(machine.sku)

    def _note(self, machine: Machine, at: Instant | None) -> None:
        """Take note of the version that a machine reported, and forget versions that are out of use."""
        version = parse_version(machine.progress.runner_version)
        if version is None or at is None:
            return
        reported = self._reported[machine.sku]
        reported[version] = max(at, reported.get(version, at))
        since = max(reported.values()) - IN_USE_FOR
        self._reported[machine.sku] = {one: at for one, at in reported.items() if at >= since}

    async def _read(self) -> None:
        """Read the releases with the Apps of the first scope that can. A failure keeps the last ones."""
        problem = "no scope is configured"
        for scope in dict.fromkeys(one.key for one in self._journal.ledger.state.catalogue.scopes):
            try:
                listing = await self._lists.runner_releases(scope)
            except GitHubError as error:
                problem = str(error)
                continue
            if listing.items:
                self._releases, self._logged = tuple(listing.items), ""
                return
            problem = "GitHub lists no release"
        if problem != self._logged:  # an Enterprise Server answers 404 every hour
            self._logged = problem
            _log.warning("runner_releases_not_read", error=problem)

    def _report(self, sku: SkuName) -> None:
        """Report the deadline of one SKU; none for a SKU that left the configuration."""
        version = version_in_use(self._reported[sku])
        if sku not in self._journal.ledger.state.catalogue.skus:
            del self._reported[sku]
            version = None
        if version is None:
            self._telemetry.runner_deadline(sku, "", None)
        else:
            ends = deadline(version, self._releases)
            self._telemetry.runner_deadline(sku, version_text(version), ends)
