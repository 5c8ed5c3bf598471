"""Chooses the image of a call, for SKUs with a canary image for a share of their launches.

Pure. The choice depends only on the call's id, so a repeated call uses the same image.
"""

import hashlib
from dataclasses import replace

from autoscaler.model.identifiers import LaunchRequestId
from autoscaler.providers.ec2.settings import Ec2Sku


def sku_for(sku: Ec2Sku, call: LaunchRequestId) -> Ec2Sku:
    """Return the SKU with the image of this call: the canary image in `percent` of all calls."""
    canary = sku.canary
    if canary is None or _drawn(call) >= canary.percent:
        return sku
    return replace(sku, image_name=canary.image_name, image_owner=canary.image_owner, canary=None)


def _drawn(call: LaunchRequestId) -> float:
    """From 0 to below 100, spread evenly over ids."""
    return int.from_bytes(hashlib.sha256(call.encode()).digest()[:4], "big") * 100 / 2**32
