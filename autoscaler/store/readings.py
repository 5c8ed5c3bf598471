"""What providers said last, as rows, both ways, on one open transaction."""

import math
from collections.abc import Sequence

from sqlalchemy import Connection, delete, insert, select

from autoscaler.controller.ports.store import StoreError
from autoscaler.model.identifiers import ProviderName
from autoscaler.model.readings import Reading, ReadingKind
from autoscaler.store.rows import Row, moment, name
from autoscaler.store.tables import readings


def reading_rows(provider: ProviderName, kind: ReadingKind, kept: Sequence[Reading]) -> list[Row]:
    """Return the rows of a provider's readings. Raises StoreError for one that cannot be stored."""
    return [_row(provider, kind, reading) for reading in kept]


def replace_readings(
    connection: Connection, provider: ProviderName, kind: ReadingKind, rows: list[Row]
) -> None:
    """Put these rows in the place of all of the provider and kind."""
    old = (readings.c.provider == provider) & (readings.c.kind == kind.value)
    connection.execute(delete(readings).where(old))
    if rows:
        connection.execute(insert(readings), rows)


def read_readings(
    connection: Connection, provider: ProviderName, kind: ReadingKind
) -> tuple[Reading, ...]:
    """Return the readings of a provider and kind, by name.

    A row whose numbers do not make sense is left out: the provider will be asked again, and no
    reading is worth a controller that does not start.
    """
    wanted = (readings.c.provider == provider) & (readings.c.kind == kind.value)
    rows = connection.execute(select(readings).where(wanted)).mappings()
    found = (_reading(dict(row)) for row in rows)
    return tuple(sorted(one for one in found if one is not None))


def _row(provider: ProviderName, kind: ReadingKind, reading: Reading) -> Row:
    if not math.isfinite(reading.value):
        raise StoreError(f"the {kind.value} of {reading.name} is no number")
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
