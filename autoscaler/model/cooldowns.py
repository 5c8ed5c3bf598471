"""A hold on something that failed, and the keys that name what can be held back."""

from collections.abc import Mapping
from dataclasses import dataclass

from autoscaler.model.catalogue import CapacityType
from autoscaler.model.identifiers import Instant, ProviderName, SkuName


@dataclass(frozen=True, slots=True)
class Cooldown:
    """Held until when, after how many failures in a row, and why. No strikes: lifted."""

    key: str
    until: Instant
    strikes: int
    reason: str


def offering_key(offering: str) -> str:
    """The cooldown of one offering (`Offering.key`)."""
    return f"offering:{offering}"


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


def rung_key(sku: SkuName, rung: int) -> str:
    """The cooldown of one step of one SKU's ladder."""
    return f"rung:{sku}/{rung}"


def mint_key(scope: str) -> str:
    """The cooldown of every registration in one scope (`Scope.key`)."""
    return f"mint:{scope}"


def held(cooldowns: Mapping[str, Cooldown], key: str, now: Instant) -> Cooldown | None:
    """The cooldown in force on a key, if there is one."""
    known = cooldowns.get(key)
    return known if known is not None and known.until > now else None
