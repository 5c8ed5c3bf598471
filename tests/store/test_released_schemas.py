"""Pins the schema of each migration, because files of a released version are in use."""

import hashlib

import pytest
from alembic import command
from sqlalchemy import NullPool, create_engine

from autoscaler.store.schema import _config
from tests.store.test_store_migrations import shape

SCHEMA_DIGESTS = {
    "0001": "09f8e3b184fbc7b8",
}
"""Digests of all columns, keys and indexes after each migration, by version."""


@pytest.mark.parametrize("version", SCHEMA_DIGESTS)
def test_a_migration_creates_the_same_schema_as_when_it_was_released(version: str) -> None:
    engine = create_engine("sqlite://", poolclass=NullPool)
    with engine.begin() as connection:
        command.upgrade(_config(connection), version)
        made = sorted(shape(connection).items())
    engine.dispose()
    assert hashlib.sha256(repr(made).encode()).hexdigest()[:16] == SCHEMA_DIGESTS[version], made
