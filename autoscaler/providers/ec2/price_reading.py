"""Reads a region's prices for the instance types of the configuration, through an `Api`."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

from autoscaler.controller.ports.provider import ProviderError
from autoscaler.model.catalogue import CapacityType, OperatingSystem
from autoscaler.model.failures import FailureClass
from autoscaler.model.identifiers import Instant
from autoscaler.model.prices import Price
from autoscaler.providers.ec2.channel import Api
from autoscaler.providers.ec2.rows import PriceRow, SpotPriceRow

Wanted = tuple[str, OperatingSystem]
"""An instance type and the system that it runs."""

MAX_PAGES = 200
"""Pages of one list. EC2 has answered with the same token for ever (aws/aws-sdk-java-v2#927)."""

MAX_DOLLARS = 10_000.0
"""Dollars an hour above which a price is a mistake: the largest machines cost some hundreds."""

TYPES_AT_ONCE = 100
"""Instance types in one request for spot prices."""

PRODUCTS: Mapping[OperatingSystem, tuple[str, ...]] = {
    OperatingSystem.LINUX: ("Linux/UNIX", "Linux/UNIX (Amazon VPC)"),
    OperatingSystem.WINDOWS: ("Windows", "Windows (Amazon VPC)"),
}
"""Product descriptions of spot prices (EC2 API Reference, DescribeSpotPriceHistory)."""

_SYSTEMS = {name: os for os, names in PRODUCTS.items() for name in names}


async def read_on_demand(
    api: Api, region: str, wanted: Iterable[Wanted], now: Instant
) -> tuple[Price, ...]:
    """What each of these costs on demand; what is not listed is left out.

    Raises ProviderError, OutcomeUnknownError.
    """
    found: list[Price] = []
    for name, os in sorted(wanted):
        arguments = {"region": region, "instance_type": name, "os": os.value}
        rows = [PriceRow(*row) for row in await _pages(api, "GetProducts", arguments)]
        dollars = [
            row.dollars
            for row in rows
            if (row.instance_type, row.os) == (name, os.value) and row.dollars <= MAX_DOLLARS
        ]
        if dollars:
            # One is expected; of several the dearest, so that a limit stays one.
            found.append(Price(CapacityType.ON_DEMAND, name, os, "", max(dollars), now))
    return tuple(found)


async def read_spot(api: Api, wanted: Iterable[Wanted], now: Instant) -> tuple[Price, ...]:
    """What each of these costs as spot in every zone that has it.

    Raises ProviderError, OutcomeUnknownError.
    """
    asked = set(wanted)
    names = sorted({name for name, _ in asked})
    products = [one for os in sorted({os for _, os in asked}) for one in PRODUCTS[os]]
    newest: dict[tuple[str, OperatingSystem, str], tuple[Instant, float]] = {}
    for start in range(0, len(names), TYPES_AT_ONCE):
        some = names[start : start + TYPES_AT_ONCE]
        arguments = {"instance_types": some, "products": products, "at": now}
        for raw in await _pages(api, "DescribeSpotPriceHistory", arguments):
            row = SpotPriceRow(*raw)
            os, dollars = _SYSTEMS.get(row.product), _dollars(row.dollars)
            # EC2 was seen to list what was not asked for (mcohen01/amazonica#97).
            if os is None or dollars is None or (row.instance_type, os) not in asked:
                continue
            key, price = (row.instance_type, os, row.zone), (row.since, dollars)
            newest[key] = max(newest.get(key, price), price)
    return tuple(
        Price(CapacityType.SPOT, name, os, zone, dollars, now)
        for (name, os, zone), (_, dollars) in sorted(newest.items())
    )


def _dollars(text: str) -> float | None:
    try:
        dollars = float(text)
    except ValueError:
        return None
    return dollars if math.isfinite(dollars) and 0 < dollars <= MAX_DOLLARS else None


async def _pages(api: Api, operation: str, arguments: Mapping[str, Any]) -> list[Any]:
    rows: list[Any] = []
    page: str | None = None
    for _ in range(MAX_PAGES):
        found, following = await api.call(operation, {**arguments, "page": page})
        rows += found
        if not following:
            return rows
        if following == page:
            break
        page = following
    raise ProviderError(
        FailureClass.UNKNOWN, "EndlessPages", f"{operation} does not come to an end"
    )
