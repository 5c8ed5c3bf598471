"""Reads and caches what launches need: account, subnets, zones, images, launch templates.

Subnets and images are cached for five minutes, launch templates until EC2 reports that one does not
exist, and the instance types of zones until `read_offered_types` is called again.
"""

import asyncio
import hashlib
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from weakref import WeakValueDictionary

import structlog

from autoscaler.controller.ports.clock import Clock
from autoscaler.controller.ports.provider import ProviderError
from autoscaler.model.identifiers import Instant, LaunchRequestId, Seconds, SkuName
from autoscaler.model.machines.failures import FailureClass
from autoscaler.providers.ec2.launching.offerings import OfferedTypes, subnets_with_most_addresses
from autoscaler.providers.ec2.launching.requests import (
    machine_tags,
    newest_image,
    template_data,
    template_name,
)
from autoscaler.providers.ec2.settings import Ec2Settings, Ec2Sku, NamedImage
from autoscaler.providers.ec2.tags import tag_list
from autoscaler.providers.ec2.worker.channel import Api, pages
from autoscaler.providers.ec2.worker.rows import ImageRow, SubnetRow, TemplateRow

FRESH_FOR: Seconds = 300.0
"""How long subnets and images are cached."""

_TEMPLATE_EXISTS = "InvalidLaunchTemplateName.AlreadyExistsException"

_log = structlog.get_logger(__name__)

_Source = tuple[SkuName, str, str]
"""A SKU and the name and owner of its image, or of its canary's."""


def _source(sku: Ec2Sku) -> _Source:
    return sku.name, sku.image.name, sku.image.owner


MOST_NAMES = 1_000
"""Maximum number of images whose names are remembered, the ones found last."""


class Resources:
    """Caches resources. Methods that call `api` raise ProviderError, OutcomeUnknownError."""

    def __init__(self, settings: Ec2Settings, api: Api, clock: Clock) -> None:
        self._settings = settings
        self._api = api
        self._clock = clock
        self._account = settings.section.account
        self._subnets: tuple[Instant, Mapping[str, str]] | None = None
        self.offered_types: OfferedTypes = {}
        """The instance types that each zone sells, as last read; empty if not known."""
        self._images: dict[_Source, tuple[Instant, ImageRow]] = {}
        self._image_names: dict[str, str] = {}
        self._templates: dict[str, str] = {}
        self._template_images: dict[str, str] = {}
        self._current: dict[tuple[_Source, int], str] = {}
        self._handed_out: dict[str, Instant] = {}
        self._full: dict[str, Instant] = {}
        # One lock for each SKU, so that a slow request for one does not delay the others.
        self._locks: defaultdict[SkuName, asyncio.Lock] = defaultdict(asyncio.Lock)
        # One lock for each template name while the template is created, found or deleted.
        self._names: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def use(self, settings: Ec2Settings) -> None:
        """Create launch templates with the tags of these settings from now on."""
        self._settings = settings

    def keep_only(self, settings: Ec2Settings) -> None:
        """Forget which launch templates SKUs that are not in these settings use. They may be deleted."""
        images = {_source(one) for sku in settings.skus.values() for one in with_canary(sku)}
        options = {name: sku.options for name, sku in settings.skus.items()}
        self._current = {
            (source, option): template
            for (source, option), template in self._current.items()
            if source in images and option in options[source[0]]
        }

    async def account(self) -> str:
        """Return the account's id, from the settings or from STS."""
        if self._account is None:
            self._account = await self._api.call("GetCallerIdentity", {})
        return self._account

    async def subnets(self) -> Mapping[str, str]:
        """Return by zone the configured subnet with the most free addresses."""
        known = self._subnets
        if known is not None and self._fresh(known[0]):
            return known[1]
        rows = await self._api.call(
            "DescribeSubnets", {"ids": list(self._settings.section.subnets)}
        )
        self._full = {one: at for one, at in self._full.items() if self._fresh(at)}
        found = subnets_with_most_addresses((SubnetRow(*row) for row in rows), self._full)
        self._subnets = (self._clock.now(), found)
        return found

    @property
    def zones(self) -> tuple[str, ...]:
        """The zones of the subnets as last read; empty before."""
        return () if self._subnets is None else tuple(self._subnets[1])

    async def read_offered_types(self) -> None:
        """Read which instance types the zones offer.

        Without the permission, every zone counts as offering every type. EC2 then refuses launches.
        """
        zones, found = list(await self.subnets()), dict[str, set[str]]()
        listed = pages(self._api, "DescribeInstanceTypeOfferings", {"zones": zones})
        try:
            async for page in listed:
                for instance_type, zone in page:
                    found.setdefault(zone, set()).add(instance_type)
        except ProviderError as error:
            if error.failure is not FailureClass.CONFIGURATION:
                raise
            name = self._settings.name
            _log.warning("instance_type_offerings_not_read", provider=name, error=str(error))
            found = {}
        self.offered_types = found

    async def template(self, sku: Ec2Sku, option: int = 0) -> str:
        """Return the id of the launch template for the SKU's newest image; creates it if needed.

        `option` is the position of the launch option. Options that differ in nothing of the template
        share it.
        """
        async with self._locks[sku.name]:
            image = await self._image(sku)
            data = template_data(self._settings, sku, image, sku.options.get(option))
            name = template_name(self._settings.fleet, data)
            if name not in self._templates:
                async with self._name(name):
                    self._templates[name] = await self._make_template(sku, name, data)
                self._template_images[self._templates[name]] = image.id
            template = self._templates[name]
            self._current[_source(sku), option] = template
            self._handed_out[template] = self._clock.now()
            return template

    async def image(self, sku: Ec2Sku, *, anew: bool = False) -> str:
        """Return the id of the SKU's newest image; `anew` ignores the cache."""
        async with self._locks[sku.name]:
            if anew:
                self._images.pop(_source(sku), None)
            return (await self._image(sku)).id

    async def delete_template(self, template: TemplateRow, unused_for: Seconds) -> bool:
        """Delete a launch template that no SKU uses. Return True if it was deleted.

        Checks the use again right before. A launch that needs it afterwards creates it again.
        """
        async with self._name(template.name):
            if self.needs_template(template.id, unused_for):
                return False
            self.forget_template(template.id)
            await self._api.call("DeleteLaunchTemplate", {"id": template.id})
        return True

    def needs_template(self, template: str, unused_for: Seconds) -> bool:
        """Return whether a SKU uses this launch template now, or used it within this time."""
        oldest = self._clock.now() - unused_for
        self._handed_out = {one: at for one, at in self._handed_out.items() if at >= oldest}
        return template in self._handed_out or template in self._current.values()

    def _name(self, name: str) -> asyncio.Lock:
        return self._names.setdefault(name, asyncio.Lock())

    def note_full(self, subnet: str) -> None:
        """Prefer another subnet of the zone for a while, because this one has no free addresses."""
        self._full[subnet] = self._clock.now()
        self._subnets = self._subnets and (float("-inf"), self._subnets[1])

    def image_name(self, image: str) -> str:
        """Return the name of an image that was the newest of a SKU since the start; empty for another."""
        return self._image_names.get(image, "")

    def image_of(self, template: str) -> str:
        """Return the image of a template that this process created; empty for other templates."""
        return self._template_images.get(template, "")

    def forget_template(self, template: str) -> None:
        """Create a launch template again before its next use, because EC2 does not find it.

        It was deleted, or it is so new that EC2 does not show it yet (EC2 Developer Guide, "Eventual
        consistency"). Then its creation fails, because the name exists.
        """
        known = self._templates.items()
        self._templates = {name: one for name, one in known if one != template}

    def invalidate(self) -> None:
        """Drop the cached images, templates and subnets, because EC2 reported that one is missing."""
        self._subnets = self._subnets and (float("-inf"), self._subnets[1])
        self._images.clear()
        self._templates.clear()

    async def _image(self, sku: Ec2Sku) -> ImageRow:
        known = self._images.get(_source(sku))
        if known is not None and self._fresh(known[0]):
            return known[1]
        wanted = {"name": sku.image.name, "owner": sku.image.owner}
        listed = pages(self._api, "DescribeImages", wanted)
        newest = newest_image(sku, [ImageRow(*row) async for page in listed for row in page])
        self._images[_source(sku)] = (self._clock.now(), newest)
        self._image_names[newest.id] = newest.name
        if len(self._image_names) > MOST_NAMES:
            del self._image_names[next(iter(self._image_names))]
        return newest

    async def _make_template(self, sku: Ec2Sku, name: str, data: Mapping[str, Any]) -> str:
        tags = tag_list(machine_tags(self._settings, sku))
        try:
            made: str = await self._api.call(
                "CreateLaunchTemplate", {"name": name, "data": data, "tags": tags}
            )
        except ProviderError as error:
            if error.code != _TEMPLATE_EXISTS:
                raise
            # The name contains the hash of the data, so the existing template has the same data.
            rows, _ = await self._api.call("DescribeLaunchTemplates", {"name": name})
            if not rows:
                text = f"EC2 does not show the launch template {name} yet"
                raise ProviderError(FailureClass.UNKNOWN, error.code, text) from None
            made = TemplateRow(*rows[0]).id
        return made

    def _fresh(self, at: Instant) -> bool:
        return self._clock.now() - at < FRESH_FOR


def sku_for(sku: Ec2Sku, request: LaunchRequestId) -> Ec2Sku:
    """Return the SKU with the image of this request: the canary image in `percent` of all requests.

    The choice depends only on the request's id, so a repeated request uses the same image.
    """
    canary = sku.image.canary
    use_canary = canary is not None and _drawn(request) < canary.percent
    return with_canary(sku)[-1] if use_canary else sku


def with_canary(sku: Ec2Sku) -> tuple[Ec2Sku, ...]:
    """Return the SKU, and the SKU with its canary image if it has one."""
    canary = sku.image.canary
    if canary is None:
        return (sku,)
    return sku, replace(sku, image=NamedImage(canary.name, canary.owner))


def _drawn(request: LaunchRequestId) -> float:
    """Return a number from 0 to below 100, evenly distributed over ids."""
    return int.from_bytes(hashlib.sha256(request.encode()).digest()[:4], "big") * 100 / 2**32
