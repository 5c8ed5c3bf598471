"""Collects what launches leave behind: launch templates and volumes that nothing uses any more.

Only what carries this installation's own tags is looked at, and only what nobody can still need is
deleted. It never ends a machine, and never touches what another installation made.
"""

from collections.abc import Sequence
from typing import Any

from autoscaler.controller.ports.clock import Clock
from autoscaler.controller.ports.provider import ProviderError
from autoscaler.model.identifiers import Instant, Seconds
from autoscaler.providers.ec2.channel import Api
from autoscaler.providers.ec2.requests import template_of
from autoscaler.providers.ec2.resources import Resources
from autoscaler.providers.ec2.rows import TemplateRow
from autoscaler.providers.ec2.settings import Ec2Settings
from autoscaler.providers.ec2.tags import FLEET, INSTALLATION

TEMPLATE_KEPT_FOR: Seconds = 3600.0
"""A template this young, or handed out this recently, may be on its way into a call."""

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


class Collector:
    """Remembers when each orphan was first seen. One at a time."""

    def __init__(self, settings: Ec2Settings, api: Api, clock: Clock, resources: Resources) -> None:
        self._owner = {FLEET: settings.fleet, INSTALLATION: settings.installation}
        self._api = api
        self._clock = clock
        self._resources = resources
        self._orphans: dict[str, Instant] = {}

    async def collect(self, requests: Sequence[str]) -> tuple[str, ...]:
        """Delete what is left over; the ids of what was deleted.

        `requests` are those that may still be sent. Raises ProviderError, OutcomeUnknownError.
        """
        return (*await self._templates(requests), *await self._volumes())

    async def _templates(self, requests: Sequence[str]) -> list[str]:
        found = await self._pages("DescribeLaunchTemplates")
        rows = [TemplateRow(*row) for row in found]
        needed = {template_of(request) for request in requests}
        needed |= self._resources.templates_since(self._clock.now() - TEMPLATE_KEPT_FOR)
        oldest = self._clock.now() - TEMPLATE_KEPT_FOR
        unused = [row.id for row in rows if row.created < oldest and row.id not in needed]
        deleted = []
        for one in unused[:MOST_AT_ONCE]:
            self._resources.forget_template(one)
            if await self._delete("DeleteLaunchTemplate", one):
                deleted.append(one)
        return deleted

    async def _volumes(self) -> list[str]:
        now = self._clock.now()
        available = [str(row[0]) for row in await self._pages("DescribeVolumes")]
        self._orphans = {one: self._orphans.get(one, now) for one in available}
        due = [one for one, since in self._orphans.items() if now - since >= ORPHANED_AFTER]
        return [one for one in due[:MOST_AT_ONCE] if await self._delete("DeleteVolume", one)]

    async def _pages(self, operation: str) -> list[list[Any]]:
        rows: list[list[Any]] = []
        page: str | None = None
        while True:
            found, page = await self._api.call(operation, {"tags": self._owner, "page": page})
            rows += found
            if not page:
                return rows

    async def _delete(self, operation: str, one: str) -> bool:
        try:
            await self._api.call(operation, {"id": one})
        except ProviderError as error:
            if error.code in _NO_MATTER:
                return False
            raise
        return True
