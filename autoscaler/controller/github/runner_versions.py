"""Reports until when GitHub gives jobs to the runner version of each SKU's machines.

Asks GitHub about each version within a minute of its first report, and every hour from then on. Nothing needs
to be stored. While GitHub has not answered, as an Enterprise Server without the route, or no machine of a SKU
has reported a version, the time is unknown, and is not reported.
"""

import re
from collections import defaultdict
from collections.abc import Mapping

import structlog

from autoscaler.controller.journal import Journal
from autoscaler.controller.ports.clock import Clock
from autoscaler.controller.ports.github import GitHubError
from autoscaler.controller.ports.github_lists import GitHubLists
from autoscaler.controller.ports.telemetry import Telemetry
from autoscaler.model.events import Event, HealthChecksReported
from autoscaler.model.identifiers import Instant, Seconds, SkuName
from autoscaler.model.machines.machine import Machine

Version = tuple[int, ...]
"""The numbers of a version, such as (2, 338, 0)."""

IN_USE_FOR: Seconds = 86_400.0
"""A version counts until one is reported over a day later: a canary may be the newest machine for hours."""

_VERSION = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9}){1,5}", re.ASCII)


def parse_version(text: str) -> Version | None:
    """Return the numbers of a version such as `2.338.0`; None if the text is no such version."""
    return tuple(map(int, text.split("."))) if _VERSION.fullmatch(text) else None


def version_text(version: Version) -> str:
    """Return a version as GitHub writes it."""
    return ".".join(map(str, version))


def version_in_use(reported: Mapping[Version, Instant]) -> Version | None:
    """Return the oldest version in use, from when machines last reported each; None if none did.

    The versions of the last day before the newest report are in use.
    """
    since = max(reported.values(), default=0.0) - IN_USE_FOR
    return min((version for version, at in reported.items() if at >= since), default=None)


EVERY: Seconds = 3600.0
"""Seconds between two requests about one version."""

LOOK: Seconds = 60.0
"""Seconds between two looks for versions that are due."""

_log = structlog.get_logger(__name__)


class RunnerVersionWatch:
    """Listens to the machines' health checks, and asks GitHub in `run`."""

    def __init__(
        self,
        journal: Journal,
        lists: GitHubLists,
        telemetry: Telemetry,
        clock: Clock,
    ) -> None:
        self._journal = journal
        self._lists = lists
        self._telemetry = telemetry
        self._clock = clock
        self._ends: dict[Version, Instant | None] = {}
        self._read_at: dict[Version, Instant] = {}
        self._reported: defaultdict[SkuName, dict[Version, Instant]] = defaultdict(dict)
        self._logged = ""
        journal.on_event(self._on_event)

    async def run(self) -> None:
        """Run until cancelled. A failed read is repeated an hour later: the end is weeks away."""
        for machine in self._journal.ledger.state.machines.values():
            self._note(machine, machine.progress.ready_at)
        while True:
            await self._read_due()
            for sku in tuple(self._reported):
                self._report(sku)
            await self._clock.sleep(LOOK)

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

    async def _read_due(self) -> None:
        """Ask GitHub about the versions in use that it was not asked about in the last hour."""
        now = self._clock.now()
        in_use = {version_in_use(reported) for reported in self._reported.values()} - {None}
        self._read_at = {one: at for one, at in self._read_at.items() if one in in_use}
        self._ends = {one: at for one, at in self._ends.items() if one in in_use}
        for version in sorted(one for one in in_use if one is not None):
            if now - self._read_at.get(version, -EVERY) >= EVERY:
                self._read_at[version] = now
                await self._read(version)

    async def _read(self, version: Version) -> None:
        """Ask with the Apps of the first scope that can. A failure keeps the last answer."""
        problem, text = "no scope is configured", version_text(version)
        for scope in dict.fromkeys(one.key for one in self._journal.ledger.state.catalogue.scopes):
            try:
                self._ends[version] = await self._lists.runner_version_end(scope, text)
            except GitHubError as error:
                problem = str(error)
                continue
            self._logged = ""
            return
        if problem != self._logged:  # an Enterprise Server without the route answers 404 every hour
            self._logged = problem
            _log.warning("runner_version_end_not_read", runner_version=text, error=problem)

    def _report(self, sku: SkuName) -> None:
        """Report the end of one SKU's version; none for a SKU that left the configuration."""
        version = version_in_use(self._reported[sku])
        if sku not in self._journal.ledger.state.catalogue.skus:
            del self._reported[sku]
            version = None
        if version is None:
            self._telemetry.runner_deadline(sku, "", None)
        else:
            ends = self._ends.get(version)
            self._telemetry.runner_deadline(sku, version_text(version), ends)
