"""A migration as the next version may have it."""

from autoscaler.store.tables import TABLES

NEXT_SCHEMA = "9999"

STATEMENTS = (
    *(f"ALTER TABLE {table.name} ADD COLUMN next TEXT DEFAULT '' NOT NULL" for table in TABLES),
    "CREATE TABLE next (name TEXT NOT NULL)",
)
