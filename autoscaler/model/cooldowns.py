"""Cooldowns of what failed, and the keys that name what can be on hold."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from autoscaler.model.catalogue import CapacityType, LaunchOption, Offering, Sku
from autoscaler.model.identifiers import Instant, ProviderName, SkuName
from autoscaler.model.machines.failures import FailureClass

IN_A_ROW = 3
"""The circuit breaker opens after this many failures in a row. Then one probe at a time is launched."""


class RateLimit(StrEnum):
    """GitHub's rate limits, as the `error` of a hold (docs.github.com, "Rate limits for the REST API")."""

    PRIMARY = "primary_rate_limit"
    SECONDARY = "secondary_rate_limit"


@dataclass(frozen=True, slots=True)
class Cooldown:
    """Puts `key` on hold until `until`, after `failures` of one class in a row.

    The hold is over if `failures` is 0. `image` is the image that GitHub refused, or of the machine that could
    not start, if this is the reason. `error` is the code of the provider's error, such as
    InsufficientInstanceCapacity, or a `RateLimit` of GitHub. It is empty if neither refused anything.
    """

    key: str
    until: Instant
    failures: int
    reason: str
    failure: FailureClass = FailureClass.UNKNOWN
    image: str = ""
    error: str = ""


def offering_key(offering: str) -> str:
    """Return the key of one offering (`Offering.key`)."""
    return f"offering:{offering}"


def sku_offering_key(sku: SkuName, offering: str) -> str:
    """Return the key of one offering for one SKU, whose image or template does not work with it."""
    return f"offering:{offering}/{sku}"


def quota_key(quota: str) -> str:
    """Return the key of all offerings under one quota (`Offering.quota_key`)."""
    return f"quota:{quota}"


def zone_key(provider: ProviderName, zone: str) -> str:
    """Return the key of all offerings in one zone."""
    return f"zone:{provider}/{zone}"


def capacity_type_key(provider: ProviderName, capacity_type: CapacityType) -> str:
    """Return the key of all offerings of one capacity type."""
    return f"capacity_type:{provider}/{capacity_type}"


def throttle_key(provider: ProviderName) -> str:
    """Return the key of all launch requests to one provider."""
    return f"throttle:{provider}"


def launch_option_key(sku: SkuName, option: int) -> str:
    """Return the key of one launch option of a SKU."""
    return f"option:{sku}/{option}"


def launch_keys(sku: SkuName, option: int, offering: Offering) -> tuple[str, ...]:
    """Return the keys that put an offering of a launch option on hold, in the planner's order."""
    return (
        throttle_key(offering.provider),
        launch_option_key(sku, option),
        capacity_type_key(offering.provider, offering.capacity_type),
        zone_key(offering.provider, offering.zone),
        offering_key(offering.key),
        sku_offering_key(sku, offering.key),
        quota_key(offering.quota_key),
    )


def boots_key(sku: SkuName) -> str:
    """Return the key that counts a SKU's machines in a row that did not become ready."""
    return f"boots:{sku}"


def exits_key(sku: SkuName) -> str:
    """Return the key that counts a SKU's runners in a row that exited at once without a job."""
    return f"exits:{sku}"


def host_key(sku: SkuName, provider: ProviderName, host: str) -> str:
    """Return the key of one host, which the machines of a SKU avoid."""
    return f"{_HOST}{sku}/{provider}/{host}"


def suspect_host_key(sku: SkuName, provider: ProviderName) -> str:
    """Return the key that stores the last host that failed since a machine became ready. It holds nothing."""
    return f"suspect_host:{sku}/{provider}"


@dataclass(frozen=True, slots=True)
class AvoidedHost:
    """A host that the machines of a SKU avoid, and why (`row`)."""

    sku: SkuName
    provider: ProviderName
    host: str
    row: Cooldown


def avoided_hosts(cooldowns: Mapping[str, Cooldown], now: Instant) -> Iterator[AvoidedHost]:
    """Yield the hosts that are avoided now. O(cooldowns)."""
    for key, row in cooldowns.items():
        if key.startswith(_HOST) and row.failures and row.until > now:
            # The names of providers and hosts have no slash.
            sku, provider, host = key.removeprefix(_HOST).rsplit("/", 2)
            yield AvoidedHost(SkuName(sku), ProviderName(provider), host, row)


_HOST = "host:"


def refused_image_key(sku: SkuName) -> str:
    """Return the key that stores the SKU's image that GitHub refused last. It puts nothing on hold."""
    return f"refused_image:{sku}"


def registration_key(scope: str) -> str:
    """Return the key of all registrations in one scope (`Scope.key`)."""
    return f"register:{scope}"


def open_circuit(cooldowns: Mapping[str, Cooldown], key: str) -> Cooldown | None:
    """Return the cooldown of a key whose circuit breaker is open, or None if it is closed."""
    known = cooldowns.get(key)
    return known if known is not None and known.failures >= IN_A_ROW else None


def open_options(
    cooldowns: Mapping[str, Cooldown], sku: Sku
) -> Iterator[tuple[LaunchOption, Cooldown]]:
    """Yield the launch options of a SKU whose circuit breaker is open, each with its cooldown."""
    for index, option in enumerate(sku.launch_options):
        if (row := open_circuit(cooldowns, launch_option_key(sku.name, index))) is not None:
            yield option, row


def active_cooldown(cooldowns: Mapping[str, Cooldown], key: str, now: Instant) -> Cooldown | None:
    """Return the cooldown that puts a key on hold now, or None."""
    known = cooldowns.get(key)
    return known if known is not None and known.until > now else None
