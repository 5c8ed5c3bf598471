"""The texts of the store's errors."""

import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import zstandard

from autoscaler.controller.ports.store import Cooldown, Delivery, HistoryRow, Record, StoreError
from autoscaler.model.identifiers import (
    InstallationId,
    Installations,
    JobId,
    LaunchRequestId,
    MachineId,
    ProviderName,
    RunnerName,
)
from autoscaler.model.jobs.job import JobState
from autoscaler.model.prices_and_quotas import Reading, ReadingKind
from autoscaler.store.batch import Batch, Decision
from autoscaler.store.bodies import compress, decompress
from autoscaler.store.readings import _row
from autoscaler.store.rows import arrival, cooldown_row, history_row, record_row
from autoscaler.store.sqlite.file import SqliteFile, _prepare
from autoscaler.store.sqlite.store import SqliteStore
from autoscaler.store.tables import COOLDOWNS
from tests.store.records import call, job, machine, rerun, runner

EAST = ProviderName("us-east-1")
NEVER = float("nan")
DELIVERY = Delivery("a", "workflow_job", 1.0, b"{}")
HISTORY = HistoryRow(1.0, "job", "1", "queued")
CHARACTERS = "has characters that cannot be stored"


@pytest.mark.parametrize(
    ("record", "words"),
    [
        (replace(job(1), id=JobId(-1)), "job id is not a 64-bit number"),
        (replace(job(1), id=JobId(2**63)), "job id is not a 64-bit number"),
        (replace(rerun(1), job=JobId(-1)), "job id is not a 64-bit number"),
        (replace(call("c"), id=LaunchRequestId("\0")), f"launch request id {CHARACTERS}"),
        (replace(machine("m"), id=MachineId("\0")), f"machine id {CHARACTERS}"),
        (
            replace(machine("m"), launch_request=LaunchRequestId("\0")),
            f"machine's launch request {CHARACTERS}",
        ),
        (replace(runner("r"), name=RunnerName("\0")), f"runner name {CHARACTERS}"),
        (replace(runner("r"), machine=MachineId("\0")), f"runner's machine {CHARACTERS}"),
    ],
)
def test_a_record_that_cannot_be_stored_is_named(record: Record, words: str) -> None:
    with pytest.raises(StoreError) as refused:
        record_row(record)
    assert str(refused.value) == words


@pytest.mark.parametrize("record", [job(1), call("c"), machine("m"), runner("r"), rerun(1)])
def test_a_row_has_exactly_the_columns_of_its_table(record: Record) -> None:
    """SQLite also accepts names in another case. Other databases do not."""
    table, row = record_row(record)
    assert tuple(row) == table.columns


def test_the_row_of_a_cooldown_has_exactly_the_columns_of_its_table() -> None:
    row = cooldown_row(Cooldown("k", 1.0, 1, ""))
    assert tuple(row) == COOLDOWNS.columns


def test_a_completed_job_without_its_time_ended_when_it_was_last_read() -> None:
    """Its row would stay for ever without a time."""
    ended = replace(job(1, JobState.COMPLETED), completed_at=None, updated_at=70.0)
    assert record_row(ended)[1]["ended_at"] == 70.0


def test_the_largest_numbers_of_jobs_can_be_stored() -> None:
    for number in (0, 2**63 - 1):
        assert record_row(job(number))[1]["id"] == number


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: arrival(replace(DELIVERY, id="\0")), f"delivery id {CHARACTERS}"),
        (lambda: arrival(replace(DELIVERY, event="\ud800")), f"delivery event {CHARACTERS}"),
        (
            lambda: arrival(replace(DELIVERY, received_at=NEVER)),
            "the time of delivery is not finite: nan",
        ),
        (lambda: history_row(replace(HISTORY, at=NEVER)), "the time of history is not finite: nan"),
        (lambda: history_row(replace(HISTORY, kind="\0")), f"history kind {CHARACTERS}"),
        (lambda: history_row(replace(HISTORY, record="\0")), f"history record {CHARACTERS}"),
        (lambda: cooldown_row(Cooldown("\0", 1.0, 1, "")), f"cooldown key {CHARACTERS}"),
        (
            lambda: cooldown_row(Cooldown("k", NEVER, 1, "")),
            "the time of cooldown is not finite: nan",
        ),
        (
            lambda: _row(EAST, ReadingKind.QUOTA, Reading("L-1", 1.0, NEVER)),
            "the time of reading is not finite: nan",
        ),
        (
            lambda: _row(EAST, ReadingKind.QUOTA, Reading("\0", 1.0, 1.0)),
            f"name of a reading {CHARACTERS}",
        ),
        (
            lambda: _row(ProviderName("\0"), ReadingKind.QUOTA, Reading("L-1", 1.0, 1.0)),
            f"provider {CHARACTERS}",
        ),
        (
            lambda: _row(EAST, ReadingKind.QUOTA, Reading("L-1", NEVER, 1.0)),
            "the quota of L-1 is not a number",
        ),
        (
            lambda: Batch().add(Decision(installations=Installations(InstallationId("\0"), ()))),
            f"installation {CHARACTERS}",
        ),
    ],
)
def test_a_value_that_cannot_be_stored_is_named(make: Callable[[], object], words: str) -> None:
    with pytest.raises(StoreError) as refused:
        make()
    assert str(refused.value) == words


async def test_a_heartbeat_that_cannot_be_stored_is_named(store: SqliteStore) -> None:
    with pytest.raises(StoreError, match="the time of heartbeat is not finite: nan"):
        await store.record_heartbeat(NEVER)
    with pytest.raises(StoreError, match="the time of arrived_until is not finite: nan"):
        await store.record_heartbeat(1.0, NEVER)


def test_an_error_without_advice_is_reported_with_the_words_of_sqlite(path: Path) -> None:
    file = SqliteFile(path)
    with pytest.raises(StoreError) as refused:
        file.transaction(
            lambda c: c.read("SELECT missing FROM meta WHERE key = :key", key="hunter2")
        )
    file.close()
    assert str(refused.value) == f"{path}: no such column: missing"


async def test_the_last_to_close_the_file_leaves_no_journal(path: Path) -> None:
    store = await SqliteStore.open(path)
    await store.accept(DELIVERY)
    await store.close()
    assert {file.name for file in path.parent.iterdir()} == {path.name, f"{path.name}.lock"}


def test_a_file_that_is_a_folder_is_named_with_what_to_do(path: Path) -> None:
    path.mkdir()
    with pytest.raises(StoreError) as refused:
        SqliteFile(path)
    assert str(refused.value) == (
        f"{path}: cannot be opened: Is a directory; it must be a file that this user owns "
        "and may write to"
    )


def test_a_file_without_a_write_ahead_log_is_refused() -> None:
    connection = sqlite3.connect(":memory:")
    words = r"this file system does not support a write-ahead log \(journal mode memory\): put the store"
    with pytest.raises(sqlite3.OperationalError, match=words):
        _prepare(connection)
    connection.close()


@pytest.mark.parametrize(
    ("stored", "words"),
    [
        (b"\0", "error when determining content size"),
        (compress(b"{}")[:-1], "decompress"),
        (
            zstandard.ZstdCompressor().compress(bytes(2 * 2**20 + 1)),
            "the frame states no length up to 2097152 bytes",
        ),
    ],
)
def test_a_damaged_body_is_named(stored: bytes, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        decompress(stored)
