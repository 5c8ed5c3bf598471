"""Which image a call launches, where a SKU has one on trial for a share of its launches.

Pure, and drawn from the call's id alone: asked again, the same call takes the same image, and a
further call, which has an id of its own, is drawn anew.
"""

import hashlib
from dataclasses import replace

from autoscaler.model.identifiers import CallId
from autoscaler.providers.ec2.settings import Ec2Sku


def sku_for(sku: Ec2Sku, call: CallId) -> Ec2Sku:
    """The SKU with the image of this call: the canary's in `percent` of a hundred calls."""
    canary = sku.canary
    if canary is None or _drawn(call) >= canary.percent:
        return sku
    return replace(sku, image_name=canary.image_name, image_owner=canary.image_owner, canary=None)


def _drawn(call: CallId) -> float:
    """From 0 to below 100, spread evenly over ids."""
    return int.from_bytes(hashlib.sha256(call.encode()).digest()[:4], "big") * 100 / 2**32
