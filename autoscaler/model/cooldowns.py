"""A hold on something that failed, and the keys that name what can be held back."""

from collections.abc import Mapping
from dataclasses import dataclass

from autoscaler.model.catalogue import CapacityType
from autoscaler.model.failures import FailureClass
from autoscaler.model.identifiers import Instant, ProviderName, SkuName

IN_A_ROW = 3
"""One bad machine says nothing: from the third in a row on, only a probe at a time is launched."""


@dataclass(frozen=True, slots=True)
class Cooldown:
    """Held until when, after how many failures of one class in a row, and why.

    No strikes: lifted. `image` is the image that GitHub refused, if that is the reason.
    """

    key: str
    until: Instant
    failures: int
    reason: str
    failure: FailureClass = FailureClass.UNKNOWN
    image: str = ""


def offering_key(offering: str) -> str:
    """The cooldown of one offering (`Offering.key`)."""
    return f"offering:{offering}"


def sku_offering_key(sku: SkuName, offering: str) -> str:
    """The cooldown of one offering for one SKU: its image or template does not go with it."""
    return f"offering:{offering}/{sku}"


def quota_key(quota: str) -> str:
    """The cooldown of everything under one quota (`Offering.quota_key`)."""
    return f"quota:{quota}"


def zone_key(provider: ProviderName, zone: str) -> str:
    """The cooldown of everything in one zone of a provider."""
    return f"zone:{provider}/{zone}"


def capacity_type_key(provider: ProviderName, capacity_type: CapacityType) -> str:
    """The cooldown of everything of one capacity type at a provider."""
    return f"capacity_type:{provider}/{capacity_type}"


def throttle_key(provider: ProviderName) -> str:
    """The cooldown of every launch at one provider."""
    return f"throttle:{provider}"


def launch_option_key(sku: SkuName, option: int) -> str:
    """The cooldown of one step of one SKU's launch_options."""
    return f"option:{sku}/{option}"


def boots_key(sku: SkuName) -> str:
    """The row of a SKU's machines that did not become ready; one that parks ends it."""
    return f"boots:{sku}"


def exits_key(sku: SkuName) -> str:
    """The row of a SKU's runners that left at once without a job; one that gets a job ends it."""
    return f"exits:{sku}"


def refused_image_key(sku: SkuName) -> str:
    """The key that remembers the image of a SKU that GitHub refused last; it holds nothing back."""
    return f"refused_image:{sku}"


def registration_key(scope: str) -> str:
    """The cooldown of every registration in one scope (`Scope.key`)."""
    return f"register:{scope}"


def open_circuit(cooldowns: Mapping[str, Cooldown], key: str) -> Cooldown | None:
    """The row of failures under a key, if it is so long that only a probe at a time is launched."""
    known = cooldowns.get(key)
    return known if known is not None and known.failures >= IN_A_ROW else None


def active_cooldown(cooldowns: Mapping[str, Cooldown], key: str, now: Instant) -> Cooldown | None:
    """The cooldown in force on a key, if there is one."""
    known = cooldowns.get(key)
    return known if known is not None and known.until > now else None
