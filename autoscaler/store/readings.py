"""The queries about providers' latest readings: prices, quotas, and sums of foreign machines."""

import math
from collections.abc import Sequence

from sqlalchemy import Connection, delete, select

from autoscaler.controller.ports.store import StoreError
from autoscaler.model.identifiers import ProviderName
from autoscaler.model.prices_and_quotas import Reading, ReadingKind
from autoscaler.store.rows import Row, moment, name
from autoscaler.store.sqlite_bulk import insert
from autoscaler.store.tables import readings


def reading_rows(provider: ProviderName, kind: ReadingKind, kept: Sequence[Reading]) -> list[Row]:
    """Return the rows of a provider's readings.

    Raises: StoreError if a reading cannot be stored.
    """
    return [_row(provider, kind, reading) for reading in kept]


def replace_readings(
    connection: Connection, provider: ProviderName, kind: ReadingKind, rows: list[Row]
) -> None:
    """Replace all rows of the provider and kind with these rows."""
    old = (readings.c.provider == provider) & (readings.c.kind == kind.value)
    connection.execute(delete(readings).where(old))
    if rows:
        insert(connection, readings, rows)


def read_readings(
    connection: Connection, provider: ProviderName, kind: ReadingKind
) -> tuple[Reading, ...]:
    """Return the readings of a provider and kind, by name.

    Skips damaged rows: the controller reads them from the provider again, and can start without them.
    """
    wanted = (readings.c.provider == provider) & (readings.c.kind == kind.value)
    rows = connection.execute(select(readings).where(wanted)).mappings()
    found = (_reading(dict(row)) for row in rows)
    return tuple(sorted(one for one in found if one is not None))


def _row(provider: ProviderName, kind: ReadingKind, reading: Reading) -> Row:
    if not math.isfinite(reading.value):
        raise StoreError(f"the {kind.value} of {reading.name} is not a number")
    return {
        "provider": name(provider, "provider"),
        "kind": kind.value,
        "name": name(reading.name, "name of a reading"),
        "value": reading.value,
        "read_at": moment(reading.read_at, "reading"),
    }


def _reading(row: Row) -> Reading | None:
    try:
        value, read_at = float(str(row["value"])), float(str(row["read_at"]))
    except ValueError:
        return None
    if not (0.0 <= value < math.inf and math.isfinite(read_at)):
        return None
    return Reading(str(row["name"]), value, read_at)
