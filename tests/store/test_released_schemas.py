"""Files of every release are in use: what a migration did to them cannot be changed later."""

import hashlib

import pytest
from alembic import command
from sqlalchemy import NullPool, create_engine

from autoscaler.store.schema import _config
from tests.store.test_store_migrations import shape

MADE_BY_VERSION = {
    "0001": "724b6b72b7d80be8",
    "0002": "4120c929ec4d5b43",
    "0003": "312b656c98edbb0b",
    "0004": "bb179e8f5e0e8222",
    "0005": "89844e94c49ff719",
    "0006": "d7ecfdf300dea093",
    "0007": "f5c9f08293898ef8",
    "0008": "daa2612f4bbb40d5",
}
"""Digests of all columns, keys and indexes after each migration."""


@pytest.mark.parametrize("version", MADE_BY_VERSION)
def test_a_migration_makes_what_it_always_made(version: str) -> None:
    engine = create_engine("sqlite://", poolclass=NullPool)
    with engine.begin() as connection:
        command.upgrade(_config(connection), version)
        made = sorted(shape(connection).items())
    engine.dispose()
    assert hashlib.sha256(repr(made).encode()).hexdigest()[:16] == MADE_BY_VERSION[version], made
