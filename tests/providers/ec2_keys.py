"""Builds the settings of an EC2 provider in tests, from keys as in fleet.yaml."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

from autoscaler.config.settings.sku import Image
from autoscaler.model.catalogue import CapacityType
from autoscaler.model.identifiers import SkuName
from autoscaler.providers.ec2.configuration import Ec2OptionKeys, Ec2SkuKeys
from autoscaler.providers.ec2.settings import Ec2Settings, Ec2Sku, NamedImage

T = TypeVar("T", Ec2Settings, Ec2Sku)


def option_of(
    *instance_types: str,
    capacity: tuple[CapacityType, ...] = (CapacityType.ON_DEMAND,),
    **keys: Any,
) -> Ec2OptionKeys:
    return Ec2OptionKeys(provider="east", instance_types=instance_types, capacity=capacity, **keys)


def sku_of(
    name: SkuName,
    image: NamedImage,
    user_data: str,
    options: Mapping[int, Ec2OptionKeys],
    **keys: Any,
) -> Ec2Sku:
    written = Image(name=image.name, owner=image.owner, canary=image.canary)
    known = Ec2SkuKeys(on=tuple(options.values()), image=written, **keys)
    return Ec2Sku(name, known, image, user_data, options)


def with_keys(settings: T, **keys: Any) -> T:
    """Return the settings of a provider or a SKU with other keys, which are not validated."""
    if isinstance(settings, Ec2Settings):
        return replace(settings, section=settings.section.model_copy(update=keys))
    return replace(settings, keys=settings.keys.model_copy(update=keys))
