"""Prices as rows, both ways, on one open transaction."""

import math
from collections.abc import Mapping, Sequence

from sqlalchemy import Connection, delete, insert, select

from autoscaler.controller.ports.store import StoreError
from autoscaler.model.catalogue import CapacityType, OperatingSystem
from autoscaler.model.identifiers import ProviderName
from autoscaler.model.prices import Price
from autoscaler.store.rows import Row, moment, name
from autoscaler.store.tables import prices


def price_rows(provider: ProviderName, kept: Sequence[Price]) -> list[Row]:
    """Rows of a provider's prices. Raises StoreError for one that cannot be stored."""
    return [_row(provider, price) for price in kept]


def replace_prices(
    connection: Connection, provider: ProviderName, capacity_type: CapacityType, rows: list[Row]
) -> None:
    """Put these rows in the place of all of the provider and capacity type."""
    old = (prices.c.provider == provider) & (prices.c.capacity_type == capacity_type.value)
    connection.execute(delete(prices).where(old))
    if rows:
        connection.execute(insert(prices), rows)


def read_prices(connection: Connection) -> Mapping[ProviderName, tuple[Price, ...]]:
    """All prices by provider.

    A row that does not make sense is left out: the provider will be asked again, and no price
    is worth a controller that does not start.
    """
    found: dict[ProviderName, list[Price]] = {}
    for row in connection.execute(select(prices)).mappings():
        price = _price(dict(row))
        if price is not None:
            found.setdefault(ProviderName(str(row["provider"])), []).append(price)
    return {provider: tuple(sorted(known)) for provider, known in found.items()}


def _row(provider: ProviderName, price: Price) -> Row:
    if not math.isfinite(price.dollars_per_hour):
        raise StoreError(f"the price of {price.instance_type} is no number")
    return {
        "provider": name(provider, "provider"),
        "capacity_type": price.capacity_type.value,
        "instance_type": name(price.instance_type, "instance type"),
        "os": price.os.value,
        "zone": name(price.zone, "zone"),
        "dollars_per_hour": price.dollars_per_hour,
        "read_at": moment(price.read_at, "price"),
    }


def _price(row: Row) -> Price | None:
    try:
        price = Price(
            CapacityType(str(row["capacity_type"])),
            str(row["instance_type"]),
            OperatingSystem(str(row["os"])),
            str(row["zone"]),
            float(str(row["dollars_per_hour"])),
            float(str(row["read_at"])),
        )
    except ValueError:
        return None
    return price if price.dollars_per_hour > 0 and math.isfinite(price.read_at) else None
