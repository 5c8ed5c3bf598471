"""What launches refer to: the account, subnets by zone, images, launch templates.

Found or made when first needed and remembered: subnets and images for five minutes, templates
until EC2 says that one is gone. It launches nothing.
"""

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from autoscaler.controller.ports.clock import Clock
from autoscaler.controller.ports.provider import ProviderError
from autoscaler.model.identifiers import Instant, Seconds, SkuName
from autoscaler.providers.ec2.channel import Api
from autoscaler.providers.ec2.offerings import roomiest_subnets
from autoscaler.providers.ec2.requests import (
    machine_tags,
    newest_image,
    template_data,
    template_name,
)
from autoscaler.providers.ec2.rows import ImageRow, SubnetRow
from autoscaler.providers.ec2.settings import Ec2Settings, Ec2Sku
from autoscaler.providers.ec2.tags import tag_list

FRESH_FOR: Seconds = 300.0
"""How long subnets and images are remembered."""

_TEMPLATE_EXISTS = "InvalidLaunchTemplateName.AlreadyExistsException"


class Resources:
    """Looks things up through `api`. Every method that asks raises ProviderError, OutcomeUnknownError."""

    def __init__(self, settings: Ec2Settings, api: Api, clock: Clock) -> None:
        self._settings = settings
        self._api = api
        self._clock = clock
        self._account = settings.account
        self._subnets: tuple[Instant, Mapping[str, str]] | None = None
        self._images: dict[SkuName, tuple[Instant, ImageRow]] = {}
        self._templates: dict[str, str] = {}
        self._template_images: dict[str, str] = {}
        # One lock a SKU: a slow lookup for one never holds up another.
        self._locks: defaultdict[SkuName, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def account(self) -> str:
        """The account's id, from the settings or from STS."""
        if self._account is None:
            self._account = await self._api.call("GetCallerIdentity", {})
        return self._account

    async def subnets(self) -> Mapping[str, str]:
        """Zone to the configured subnet with most free addresses there, sorted by zone."""
        known = self._subnets
        if known is not None and self._fresh(known[0]):
            return known[1]
        rows = await self._api.call("DescribeSubnets", {"ids": list(self._settings.subnets)})
        found = roomiest_subnets(SubnetRow(*row) for row in rows)
        self._subnets = (self._clock.now(), found)
        return found

    @property
    def zones(self) -> tuple[str, ...]:
        """The zones as last read; none before."""
        return () if self._subnets is None else tuple(self._subnets[1])

    async def template(self, sku: Ec2Sku) -> str:
        """The id of the launch template for the SKU's newest image, made if need be."""
        async with self._locks[sku.name]:
            image = await self._image(sku)
            data = template_data(self._settings, sku, image)
            name = template_name(self._settings.fleet, data)
            if name not in self._templates:
                self._templates[name] = await self._make_template(sku, name, data)
                self._template_images[self._templates[name]] = image.id
            return self._templates[name]

    def image_of(self, template: str) -> str:
        """The image that a template of this process launches; empty if it is an earlier one's."""
        return self._template_images.get(template, "")

    def forget(self) -> None:
        """Look images, templates and subnets up again: EC2 said that one is gone."""
        self._subnets = self._subnets and (float("-inf"), self._subnets[1])
        self._images.clear()
        self._templates.clear()

    async def _image(self, sku: Ec2Sku) -> ImageRow:
        known = self._images.get(sku.name)
        if known is not None and self._fresh(known[0]):
            return known[1]
        images: list[ImageRow] = []
        page: str | None = None
        while True:
            rows, page = await self._api.call(
                "DescribeImages",
                {"name": sku.image_name, "owner": sku.image_owner, "page": page},
            )
            images += [ImageRow(*row) for row in rows]
            if not page:
                break
        newest = newest_image(sku, images)
        self._images[sku.name] = (self._clock.now(), newest)
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
            # The name is the hash of the content, so an earlier one is the same.
            made = await self._api.call("DescribeLaunchTemplates", {"name": name})
        return made

    def _fresh(self, at: Instant) -> bool:
        return self._clock.now() - at < FRESH_FOR
