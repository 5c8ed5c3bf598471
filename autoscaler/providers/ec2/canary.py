"""Chooses the image of a launch request, for SKUs with a canary image. Pure.

The choice depends only on the request's id, so a repeated request uses the same image.
"""

import hashlib
from dataclasses import replace

from autoscaler.model.identifiers import LaunchRequestId
from autoscaler.providers.ec2.settings import CanaryImage, Ec2Sku


def sku_for(sku: Ec2Sku, request: LaunchRequestId) -> Ec2Sku:
    """Return the SKU with the image of this request: the canary image in `percent` of all requests."""
    canary = sku.canary
    if canary is None or _drawn(request) >= canary.percent:
        return sku
    return _with_canary_image(sku, canary)


def with_canary(sku: Ec2Sku) -> tuple[Ec2Sku, ...]:
    """Return the SKU, and the SKU with its canary image if it has one."""
    canary = sku.canary
    if canary is None:
        return (sku,)
    return sku, _with_canary_image(sku, canary)


def _with_canary_image(sku: Ec2Sku, canary: CanaryImage) -> Ec2Sku:
    return replace(sku, image_name=canary.image_name, image_owner=canary.image_owner, canary=None)


def _drawn(request: LaunchRequestId) -> float:
    """Return a number from 0 to below 100, evenly distributed over ids."""
    return int.from_bytes(hashlib.sha256(request.encode()).digest()[:4], "big") * 100 / 2**32
