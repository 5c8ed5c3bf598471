"""Collects what launches leave behind: launch templates and volumes that nothing uses any more.

Only what carries this installation's tags is looked at, by its id or a former one of its own, and only
what nobody can still need is deleted. What cannot be deleted holds up nothing else. It never ends a
machine, and never touches what another installation made.
"""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

import structlog

from autoscaler.controller.ports.clock import Clock
from autoscaler.controller.ports.provider import OutcomeUnknownError, ProviderError
from autoscaler.model.failures import FailureClass
from autoscaler.model.identifiers import Instant, Seconds
from autoscaler.providers.ec2.channel import Api
from autoscaler.providers.ec2.requests import template_of
from autoscaler.providers.ec2.resources import Resources
from autoscaler.providers.ec2.rows import TemplateRow
from autoscaler.providers.ec2.settings import Ec2Settings
from autoscaler.providers.ec2.tags import FLEET, INSTALLATION

TEMPLATE_KEPT_FOR: Seconds = 3600.0
"""A template this young, or handed out this recently, may be on its way into a call. A process does
not know what an earlier one handed out, so it deletes none for as long after it began."""

ORPHANED_AFTER: Seconds = 1800.0
"""A volume goes with its instance, which takes EC2 a while; available for this long, nothing takes it."""

MOST_AT_ONCE = 100
"""Deletions of a kind in one collection: they share EC2's buckets with launches of other tools."""

_NO_MATTER = frozenset(
    {
        "InvalidLaunchTemplateId.NotFound",
        "InvalidLaunchTemplateId.NotFoundException",
        "InvalidVolume.NotFound",
        "VolumeInUse",
    }
)
"""Somebody was quicker, or took the volume."""

_Due = Mapping[str, Callable[[], Awaitable[bool]]]
"""What to delete by id, and how; it says whether that was still wanted."""

_Problem = ProviderError | OutcomeUnknownError

_log = structlog.get_logger(__name__)


class Collector:
    """Remembers when each orphan was first seen, and what EC2 kept. One at a time."""

    def __init__(self, settings: Ec2Settings, api: Api, clock: Clock, resources: Resources) -> None:
        self.use(settings)
        self._api = api
        self._clock = clock
        self._resources = resources
        self._began = clock.now()
        self._orphans: dict[str, Instant] = {}
        self._kept: defaultdict[str, set[str]] = defaultdict(set)

    def use(self, settings: Ec2Settings) -> None:
        """Collect what these settings' owner left behind from now on."""
        self._owner = {FLEET: (settings.fleet,), INSTALLATION: settings.installations.all}

    async def collect(self, requests: Sequence[str]) -> tuple[str, ...]:
        """Delete what is left over; the ids of what was deleted.

        `requests` are those that may still be sent. What cannot be deleted comes last from then on,
        and its first error is raised after the rest was done. Raises ProviderError,
        OutcomeUnknownError.
        """
        deleted: list[str] = []
        problems: list[_Problem] = []
        kinds: tuple[tuple[str, Callable[[], Awaitable[_Due]]], ...] = (
            ("templates", partial(self._templates, requests)),
            ("volumes", self._volumes),
        )
        for kind, look in kinds:
            try:
                due = await look()
            except (ProviderError, OutcomeUnknownError) as problem:
                problems.append(problem)
            else:
                problems += await self._delete(kind, due, deleted)
        if not problems:
            return tuple(deleted)
        if deleted:
            _log.info("collected_in_part", ids=deleted)
        raise problems[0]

    async def _templates(self, requests: Sequence[str]) -> _Due:
        oldest = self._clock.now() - TEMPLATE_KEPT_FOR
        if self._began > oldest:
            return {}
        rows = [TemplateRow(*row) for row in await self._pages("DescribeLaunchTemplates")]
        needed = {template_of(request) for request in requests}
        needed |= {r.id for r in rows if self._resources.needs_template(r.id, TEMPLATE_KEPT_FOR)}
        return {
            row.id: partial(self._resources.delete_template, row, TEMPLATE_KEPT_FOR)
            for row in rows
            if row.created < oldest and row.id not in needed
        }

    async def _volumes(self) -> _Due:
        now = self._clock.now()
        available = [str(row[0]) for row in await self._pages("DescribeVolumes")]
        self._orphans = {one: self._orphans.get(one, now) for one in available}
        due = [one for one, since in self._orphans.items() if now - since >= ORPHANED_AFTER]
        return {one: partial(self._delete_volume, one) for one in due}

    async def _delete_volume(self, one: str) -> bool:
        await self._api.call("DeleteVolume", {"id": one})
        return True

    async def _pages(self, operation: str) -> list[list[Any]]:
        rows: list[list[Any]] = []
        page: str | None = None
        while True:
            found, page = await self._api.call(operation, {"tags": self._owner, "page": page})
            rows += found
            if not page:
                return rows

    async def _delete(self, kind: str, due: _Due, deleted: list[str]) -> list[_Problem]:
        """Delete what is due, adding to `deleted`; what went wrong."""
        problems: list[_Problem] = []
        kept = self._kept[kind] = self._kept[kind] & due.keys()
        for one in sorted(due, key=kept.__contains__)[:MOST_AT_ONCE]:
            try:
                if await due[one]():
                    deleted.append(one)
            except OutcomeUnknownError as problem:
                kept.add(one)
                return [*problems, problem]  # each further one might take as long to say nothing
            except ProviderError as problem:
                if problem.code in _NO_MATTER:
                    continue
                problems.append(problem)
                if problem.failure is FailureClass.THROTTLED:
                    return problems
                if one not in kept:
                    _log.warning("not_deleted", id=one, error=str(problem))
                kept.add(one)
        return problems
