"""Pins the schema of each migration, because files of a released version are in use."""

import hashlib
import json
from dataclasses import replace

import pytest
from alembic import command
from sqlalchemy import Connection, NullPool, create_engine

from autoscaler.model.changes import HistoryRow
from autoscaler.model.identifiers import JobId
from autoscaler.model.jobs.job import Admission, Job, JobState
from autoscaler.model.machines.machine import Machine
from autoscaler.store.codec import CorruptRecordError, decode, encode
from autoscaler.store.schema import _config
from autoscaler.store.statements import read_rows_of
from tests.store.records import machine
from tests.store.test_store_migrations import shape

SCHEMA_DIGESTS = {
    "0001": "09f8e3b184fbc7b8",
    "0002": "09f8e3b184fbc7b8",
    "0003": "afabc3061f9c3254",
    "0004": "afabc3061f9c3254",
    "0005": "f448397131c9007d",
    "0006": "8a53252be18d4d8f",
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


def test_a_job_of_the_first_release_is_read_again_with_its_run_unknown() -> None:
    """A store of 0.1.0 has `from_fork` in the record of a job, and no `origin`."""
    job = Job(JobId(7), "acme/widgets", ("gpu",), None, JobState.QUEUED, 100.0, 100.0, run_id=9)
    first = json.loads(encode(replace(job, name="a,b")))
    del first["origin"]
    first |= {"from_fork": False, "admission": "head_repository_unknown"}
    engine = create_engine("sqlite://", poolclass=NullPool)
    with engine.begin() as connection:
        command.upgrade(_config(connection), "0001")
        insert = "INSERT INTO jobs (id, state, record) VALUES (7, 'queued', ?)"
        connection.exec_driver_sql(insert, (json.dumps(first, separators=(",", ":")),))
        with pytest.raises(CorruptRecordError, match="admission"):
            decode(Job, record_of(connection))
        command.upgrade(_config(connection), "0002")
        found = decode(Job, record_of(connection))
    engine.dispose()
    assert found == replace(job, name="a,b", admission=Admission.UNREAD)


def test_a_row_of_history_of_an_earlier_release_has_no_reason_code() -> None:
    engine = create_engine("sqlite://", poolclass=NullPool)
    with engine.begin() as connection:
        command.upgrade(_config(connection), "0002")
        connection.exec_driver_sql(
            "INSERT INTO history (at, kind, record, event, detail) VALUES (1.0, 'job', '7', 'queued', 'read')"
        )
        command.upgrade(_config(connection), "0003")
        found = read_rows_of(connection, "job", "7", 10, 2.0)
        assert read_rows_of(connection, "job", "7", 10, 0.5) == ()
    engine.dispose()
    assert found == (HistoryRow(1.0, "job", "7", "queued", "read", ""),)


def test_a_machine_of_an_earlier_release_is_read_again_without_a_host() -> None:
    """Its reason may have any text, also that of a record."""
    made = replace(machine("m1"), reason='"placement":{"host":"x"}')
    before = json.loads(encode(made))
    del before["placement"]["host"]
    engine = create_engine("sqlite://", poolclass=NullPool)
    with engine.begin() as connection:
        command.upgrade(_config(connection), "0003")
        insert = "INSERT INTO machines (id, state, launch_request, record) VALUES ('m1', 'ready', 'c0', ?)"
        connection.exec_driver_sql(insert, (json.dumps(before, separators=(",", ":")),))
        command.upgrade(_config(connection), "0004")
        found = str(connection.exec_driver_sql("SELECT record FROM machines").scalar_one())
    engine.dispose()
    assert decode(Machine, found) == made
    assert made.placement.host == ""


def test_a_hold_of_an_earlier_release_has_no_error_of_a_provider() -> None:
    engine = create_engine("sqlite://", poolclass=NullPool)
    with engine.begin() as connection:
        command.upgrade(_config(connection), "0004")
        connection.exec_driver_sql(
            "INSERT INTO cooldowns (key, until, failures, reason, failure, image) "
            "VALUES ('option:gpu/0', 90.5, 4, 'AuthFailure: no', 'configuration', '')"
        )
        command.upgrade(_config(connection), "0005")
        found = connection.exec_driver_sql("SELECT error FROM cooldowns").scalar_one()
    engine.dispose()
    assert found == ""


def record_of(connection: Connection) -> str:
    """The record of the only job."""
    return str(connection.exec_driver_sql("SELECT record FROM jobs").scalar_one())
