"""The queries about providers' latest readings: prices, quotas, and sums of foreign machines."""

import math
from collections.abc import Sequence

from autoscaler.controller.ports.store import StoreError
from autoscaler.model.identifiers import ProviderName
from autoscaler.model.prices_and_quotas import Reading, ReadingKind
from autoscaler.store.database import Connection
from autoscaler.store.rows import Row, moment, name
from autoscaler.store.tables import READINGS


def reading_rows(provider: ProviderName, kind: ReadingKind, kept: Sequence[Reading]) -> list[Row]:
    """Return the rows of a provider's readings.

    Raises: StoreError if a reading cannot be stored.
    """
    return [_row(provider, kind, reading) for reading in kept]


def replace_readings(
    connection: Connection, provider: ProviderName, kind: ReadingKind, rows: list[Row]
) -> None:
    """Replace all rows of the provider and kind with these rows."""
    connection.write(
        "DELETE FROM readings WHERE provider = :provider AND kind = :kind",
        provider=provider,
        kind=kind.value,
    )
    if rows:
        connection.insert(READINGS, rows)


def read_readings(
    connection: Connection, provider: ProviderName, kind: ReadingKind
) -> tuple[Reading, ...]:
    """Return the readings of a provider and kind, by name.

    Skips damaged rows: the controller reads them from the provider again, and can start without them.
    """
    rows = connection.read(
        "SELECT name, value, read_at FROM readings WHERE provider = :provider AND kind = :kind",
        provider=provider,
        kind=kind.value,
    )
    found = (_reading(*row) for row in rows)
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


def _reading(reading: str, value: object, read_at: object) -> Reading | None:
    try:
        amount, at = float(str(value)), float(str(read_at))
    except ValueError:
        return None
    if not (0.0 <= amount < math.inf and math.isfinite(at)):
        return None
    return Reading(reading, amount, at)
