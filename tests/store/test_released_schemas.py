"""Pins the schema of each migration, because files of a released version are in use."""

import hashlib
import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pytest

from autoscaler.model.changes import HistoryRow
from autoscaler.model.identifiers import JobId
from autoscaler.model.jobs.job import Admission, Job, JobState
from autoscaler.model.machines.machine import Machine
from autoscaler.store.codec import CorruptRecordError, decode, encode
from autoscaler.store.database import Connection
from autoscaler.store.migrations import MIGRATIONS
from autoscaler.store.schema import migrate
from autoscaler.store.sqlite.connection import SqliteConnection
from autoscaler.store.statements import read_rows_of
from tests.store.records import machine
from tests.store.test_store_migrations import shape

SCHEMA_DIGESTS = {
    "0001": "5bcc64340c433b83",
    "0002": "5bcc64340c433b83",
    "0003": "88fa04294456b723",
    "0004": "88fa04294456b723",
    "0005": "9ab5a586034758ba",
    "0006": "d80bbe0c10219bf5",
    "0007": "3ed0230067bc4207",
    "0008": "2a8a187be6ddc250",
}
"""Digests of all columns, keys and indexes after each migration, by version."""


def test_each_migration_is_pinned() -> None:
    assert set(SCHEMA_DIGESTS) == set(MIGRATIONS)


@pytest.fixture
def connection() -> Iterator[Connection]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as driver:
        yield SqliteConnection(driver)


@pytest.mark.parametrize("version", SCHEMA_DIGESTS)
def test_a_migration_creates_the_same_schema_as_when_it_was_released(
    version: str, connection: Connection
) -> None:
    migrate(connection, version)
    made = sorted(shape(connection).items())
    assert hashlib.sha256(repr(made).encode()).hexdigest()[:16] == SCHEMA_DIGESTS[version], made


def test_a_job_of_the_first_release_is_read_again_with_its_run_unknown(
    connection: Connection,
) -> None:
    """A store of 0.1.0 has `from_fork` in the record of a job, and no `origin`."""
    job = Job(JobId(7), "acme/widgets", ("gpu",), None, JobState.QUEUED, 100.0, 100.0, run_id=9)
    first = json.loads(encode(replace(job, name="a,b")))
    del first["origin"]
    first |= {"from_fork": False, "admission": "head_repository_unknown"}
    migrate(connection, "0001")
    insert = "INSERT INTO jobs (id, state, record) VALUES (7, 'queued', :record)"
    connection.write(insert, record=json.dumps(first, separators=(",", ":")))
    with pytest.raises(CorruptRecordError, match="admission"):
        decode(Job, record_of(connection, "jobs"))
    migrate(connection, "0002")
    found = decode(Job, record_of(connection, "jobs"))
    assert found == replace(job, name="a,b", admission=Admission.UNREAD)


def test_a_row_of_history_of_an_earlier_release_has_no_reason_code(connection: Connection) -> None:
    migrate(connection, "0002")
    connection.write(
        "INSERT INTO history (at, kind, record, event, detail) VALUES (1.0, 'job', '7', 'queued', 'read')"
    )
    migrate(connection, "0003")
    assert read_rows_of(connection, "job", "7", 10, 0.5) == ()
    assert read_rows_of(connection, "job", "7", 10, 2.0) == (
        HistoryRow(1.0, "job", "7", "queued", "read", ""),
    )


def test_a_machine_of_an_earlier_release_is_read_again_without_a_host(
    connection: Connection,
) -> None:
    """Its reason may have any text, also that of a record."""
    made = replace(machine("m1"), reason='"placement":{"host":"x"}')
    before = json.loads(encode(made))
    del before["placement"]["host"]
    migrate(connection, "0003")
    insert = "INSERT INTO machines (id, state, launch_request, record) VALUES ('m1', 'ready', 'c0', :record)"
    connection.write(insert, record=json.dumps(before, separators=(",", ":")))
    migrate(connection, "0004")
    assert decode(Machine, record_of(connection, "machines")) == made
    assert made.placement.host == ""


def test_a_hold_of_an_earlier_release_has_no_error_of_a_provider(connection: Connection) -> None:
    migrate(connection, "0004")
    connection.write(
        "INSERT INTO cooldowns (key, until, failures, reason, failure, image) "
        "VALUES ('option:gpu/0', 90.5, 4, 'AuthFailure: no', 'configuration', '')"
    )
    migrate(connection, "0005")
    assert connection.read("SELECT error FROM cooldowns") == [("",)]


def record_of(connection: Connection, table: str) -> str:
    """The record of the only row."""
    ((record,),) = connection.read(f"SELECT record FROM {table}")
    return str(record)
