"""Reads a region's prices for the instance types of the configuration, through an `Api`."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

from autoscaler.controller.ports.capabilities import PriceAnswer
from autoscaler.controller.ports.provider import OutcomeUnknownError, ProviderError
from autoscaler.model.catalogue import CapacityType, OperatingSystem
from autoscaler.model.identifiers import Instant
from autoscaler.model.prices_and_quotas import Price
from autoscaler.providers.ec2.worker.channel import Api, pages
from autoscaler.providers.ec2.worker.rows import PriceRow, SpotPriceRow

Wanted = tuple[str, OperatingSystem]
"""An instance type and its operating system."""

MAX_DOLLARS = 10_000.0
"""Dollars an hour. A higher price is an error: the largest machines cost some hundreds."""

FAILURES_IN_A_ROW = 3
"""Failed lists after which the reading stops, because AWS will probably not answer the others."""

MAX_PAGES = 200
"""Pages of one list of prices. All its rows are in memory together."""

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
) -> PriceAnswer:
    """Return the on-demand price of each of these that AWS lists."""
    asked = set(wanted)
    rows, problem = await _lists(
        api,
        "GetProducts",
        [{"region": region, "instance_type": name, "os": os.value} for name, os in sorted(asked)],
    )
    found: dict[Wanted, float] = {}
    for raw in rows:
        row = PriceRow(*raw)
        if row.os not in set(OperatingSystem):
            continue
        key = row.instance_type, OperatingSystem(row.os)
        if key in asked and row.dollars <= MAX_DOLLARS:
            # AWS should list one price. Of several, the highest is used, so that limits are kept.
            found[key] = max(found.get(key, 0.0), row.dollars)
    prices = [
        Price(CapacityType.ON_DEMAND, name, os, "", dollars, now)
        for (name, os), dollars in sorted(found.items())
    ]
    return PriceAnswer(tuple(prices), problem)


async def read_spot(api: Api, wanted: Iterable[Wanted], now: Instant) -> PriceAnswer:
    """Return the spot price of each of these in every zone that has it."""
    asked = set(wanted)
    names = sorted({name for name, _ in asked})
    products = [one for os in sorted({os for _, os in asked}) for one in PRODUCTS[os]]
    rows, problem = await _lists(
        api,
        "DescribeSpotPriceHistory",
        [
            {"instance_types": names[at : at + TYPES_AT_ONCE], "products": products, "at": now}
            for at in range(0, len(names), TYPES_AT_ONCE)
        ],
    )
    newest: dict[tuple[str, OperatingSystem, str], tuple[Instant, float]] = {}
    for raw in rows:
        row = SpotPriceRow(*raw)
        os, dollars = _SYSTEMS.get(row.product), _dollars(row.dollars)
        # EC2 may list prices that were not requested (mcohen01/amazonica#97).
        if os is None or dollars is None or (row.instance_type, os) not in asked:
            continue
        key, price = (row.instance_type, os, row.zone), (row.since, dollars)
        newest[key] = max(newest.get(key, price), price)
    prices = [
        Price(CapacityType.SPOT, name, os, zone, dollars, now)
        for (name, os, zone), (_, dollars) in sorted(newest.items())
    ]
    return PriceAnswer(tuple(prices), problem)


def _dollars(text: str) -> float | None:
    try:
        dollars = float(text)
    except ValueError:
        return None
    return dollars if math.isfinite(dollars) and 0 < dollars <= MAX_DOLLARS else None


async def _lists(
    api: Api, operation: str, requests: Iterable[Mapping[str, Any]]
) -> tuple[list[Any], ProviderError | OutcomeUnknownError | None]:
    """Return the rows of all complete lists, and the first error of the others.

    Leaves out an incomplete list, because its highest or newest price may be missing.
    """
    rows: list[Any] = []
    first: ProviderError | OutcomeUnknownError | None = None
    failed = 0
    for arguments in requests:
        try:
            listed = pages(api, operation, arguments, MAX_PAGES)
            rows += [row async for page in listed for row in page]
            failed = 0
        except (ProviderError, OutcomeUnknownError) as error:
            first, failed = first or error, failed + 1
            if failed == FAILURES_IN_A_ROW:
                break
    return rows, first
