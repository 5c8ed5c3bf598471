"""Deletes unused launch templates, and volumes without an instance.

Selects resources by their tags: the fleet, and this installation's id or one of its former ids. A
failed deletion does not stop the others. Does not terminate machines.
"""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

import structlog

from autoscaler.controller.ports.clock import Clock
from autoscaler.controller.ports.provider import OutcomeUnknownError, ProviderError
from autoscaler.model.identifiers import Instant, Seconds
from autoscaler.model.machines.failures import FailureClass
from autoscaler.providers.ec2.launching.requests import template_of
from autoscaler.providers.ec2.launching.templates import Resources
from autoscaler.providers.ec2.settings import Ec2Settings
from autoscaler.providers.ec2.tags import FLEET, INSTALLATION
from autoscaler.providers.ec2.worker.channel import Api, pages
from autoscaler.providers.ec2.worker.rows import TemplateRow

TEMPLATE_KEPT_FOR: Seconds = 3600.0
"""A launch template that was created or used this recently may be in a request in flight. A new process
does not know which ones the earlier process used, so it deletes none for this long."""

ORPHANED_AFTER: Seconds = 1800.0
"""EC2 deletes a volume some time after its instance. After this time without one, it is an orphan."""

MOST_AT_ONCE = 100
"""Deletions of each kind in one run. They share EC2's rate limits with the account's other users."""

_NOT_NEEDED = frozenset(
    {
        "InvalidLaunchTemplateId.NotFound",
        "InvalidLaunchTemplateId.NotFoundException",
        "InvalidVolume.NotFound",
        "VolumeInUse",
    }
)
"""Codes for a resource that was already deleted, or a volume that is in use again."""

_Due = Mapping[str, Callable[[], Awaitable[bool]]]
"""The deletions by id; each returns whether it was still necessary."""

_Problem = ProviderError | OutcomeUnknownError

_log = structlog.get_logger(__name__)


class UnusedResources:
    """Deletes unused resources. Remembers orphaned volumes and failed deletions between calls."""

    def __init__(self, settings: Ec2Settings, api: Api, clock: Clock, resources: Resources) -> None:
        self.use(settings)
        self._api = api
        self._clock = clock
        self._resources = resources
        self._began = clock.now()
        self._orphans: dict[str, Instant] = {}
        self._kept: defaultdict[str, set[str]] = defaultdict(set)

    def use(self, settings: Ec2Settings) -> None:
        """Use the installation ids of these settings from now on."""
        self._owner = {FLEET: (settings.fleet,), INSTALLATION: settings.installations.all}

    async def delete_unused(self, requests: Sequence[str]) -> tuple[str, ...]:
        """Delete unused resources; return their ids.

        `requests` are the launch requests that may still be sent. The next call tries deletions that
        failed last. Raises the first ProviderError or OutcomeUnknownError, after all deletions.
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
            _log.info("resources_partly_deleted", ids=deleted)
        raise problems[0]

    async def _templates(self, requests: Sequence[str]) -> _Due:
        oldest = self._clock.now() - TEMPLATE_KEPT_FOR
        if self._began > oldest:
            return {}
        rows = [TemplateRow(*row) for row in await self._listed("DescribeLaunchTemplates")]
        needed = {template_of(request) for request in requests}
        needed |= {r.id for r in rows if self._resources.needs_template(r.id, TEMPLATE_KEPT_FOR)}
        return {
            row.id: partial(self._resources.delete_template, row, TEMPLATE_KEPT_FOR)
            for row in rows
            if row.created < oldest and row.id not in needed
        }

    async def _volumes(self) -> _Due:
        now = self._clock.now()
        available = [str(row[0]) for row in await self._listed("DescribeVolumes")]
        self._orphans = {one: self._orphans.get(one, now) for one in available}
        due = [one for one, since in self._orphans.items() if now - since >= ORPHANED_AFTER]
        return {one: partial(self._delete_volume, one) for one in due}

    async def _delete_volume(self, one: str) -> bool:
        await self._api.call("DeleteVolume", {"id": one})
        return True

    async def _listed(self, operation: str) -> list[list[Any]]:
        listed = pages(self._api, operation, {"tags": self._owner})
        return [row async for page in listed for row in page]

    async def _delete(self, kind: str, due: _Due, deleted: list[str]) -> list[_Problem]:
        """Delete what is due and add it to `deleted`; return the errors."""
        problems: list[_Problem] = []
        kept = self._kept[kind] = self._kept[kind] & due.keys()
        for one in sorted(due, key=kept.__contains__)[:MOST_AT_ONCE]:
            try:
                if await due[one]():
                    deleted.append(one)
            except OutcomeUnknownError as problem:
                kept.add(one)
                return [*problems, problem]  # the next deletions may time out too
            except ProviderError as problem:
                if problem.code in _NOT_NEEDED:
                    continue
                problems.append(problem)
                if problem.failure is FailureClass.THROTTLED:
                    return problems
                if one not in kept:
                    _log.warning("deletion_failed", id=one, error=str(problem))
                kept.add(one)
        return problems
