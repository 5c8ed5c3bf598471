"""What only the store on a PostgreSQL server has: sessions, a lease, and a server that fails."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import boto3
import psycopg
import pytest

from autoscaler.controller.ports.replicas import (
    LEASE_LENGTH,
    LEASE_MARGIN,
    Replica,
    StoreUnavailableError,
)
from autoscaler.controller.ports.store import Delivery, StoreError
from autoscaler.store.postgresql.address import Address
from autoscaler.store.postgresql.alone import open_alone
from autoscaler.store.postgresql.database import PostgresqlDatabase
from autoscaler.store.postgresql.errors import explained
from autoscaler.store.postgresql.inspection import inspect
from autoscaler.store.postgresql.lease import Held
from autoscaler.store.postgresql.session import Session
from autoscaler.store.postgresql.store import PostgresqlStore
from tests.command_line import run
from tests.patience import PATIENCE
from tests.store.opened import REPLICA, open_leading, take
from tests.store.postgresql_server import END_SESSIONS, PostgresqlServer, change
from tests.store.records import delivery, job
from tests.store.served import Served


@pytest.fixture
def url(server: PostgresqlServer) -> str:
    return server.database()


@pytest.fixture
async def store(url: str) -> AsyncIterator[PostgresqlStore]:
    opened = await open_leading(url)
    yield opened
    await opened.close()


OTHER = Replica("host 2, process 2", "https://host-2:8443")


async def test_one_replica_leads_and_the_others_see_which(url: str, store: PostgresqlStore) -> None:
    other = await PostgresqlStore.open(url)
    seen = await take(other, OTHER)
    assert (seen.holder, seen.mine, seen.expired) == (REPLICA, False, False)
    assert len(seen.secret) >= 32
    assert 13.0 < store.leads_for() <= LEASE_LENGTH - LEASE_MARGIN
    assert other.leads_for() < 0
    assert await other.accept(delivery("a")), "any replica stores deliveries"
    assert [one.id for one in await store.unapplied(10)] == ["a"]
    await other.close()
    assert store.leads_for() > 0
    await store.renew()


async def test_a_command_is_refused_while_a_replica_leads(url: str, store: PostgresqlStore) -> None:
    opening = asyncio.create_task(asyncio.to_thread(open_alone, url))
    async with asyncio.timeout(PATIENCE):
        while not opening.done():
            await store.record_heartbeat(1.0)
            await asyncio.sleep(0.1)
    with pytest.raises(StoreError, match=r"in use by another process \(host 1, process 1\)"):
        await opening


async def test_a_replica_that_lost_its_lease_writes_nothing(
    url: str, store: PostgresqlStore
) -> None:
    change(url, "UPDATE lease SET expires = 0")
    successor = await open_leading(url, OTHER)
    assert store.leads_for() > 0, "only its own clock and its next transaction show it"
    with pytest.raises(StoreError, match="another process took over the store"):
        await store.accept(delivery("a"))
    assert store.leads_for() < 0
    with pytest.raises(StoreError, match="another process may have taken over the store"):
        await store.commit([job(1)], [])
    state = await successor.load(0.0)
    assert (state.unapplied, state.jobs) == ((), ())
    await store.close()
    assert await successor.accept(delivery("a")), "the loser's close does not release the lease"
    await successor.close()


async def test_a_lease_of_the_same_epoch_after_a_failover_is_not_ones_own(
    url: str, store: PostgresqlStore
) -> None:
    """The server that took over had not got the last transaction, and another replica took the lease."""
    change(url, "UPDATE lease SET holder = 'host 2', token = 'another'")
    with pytest.raises(StoreError, match="another process took over the store"):
        await store.renew()


async def test_a_leader_ends_once_the_server_lacks_its_last_transaction(
    url: str, store: PostgresqlStore
) -> None:
    """A server that takes over may lack it, and the leader's memory is then ahead of what is stored."""
    before = (await take(store)).expires
    await store.renew()
    change(url, f"UPDATE lease SET expires = {before!r}")
    with pytest.raises(StoreError, match="lost the last transactions"):
        await store.accept(delivery("a"))
    assert store.leads_for() < 0.0


class OvertakenDatabase(PostgresqlDatabase):
    """Another replica takes the lease between `seek` and its first renewal."""

    def _begin(self) -> Held | None:
        if self._held is not None:
            change(self._address.url, "UPDATE lease SET token = 'another', epoch = epoch + 1")
        return super()._begin()


def test_a_replica_that_lost_the_lease_before_it_led_still_follows(url: str) -> None:
    database = OvertakenDatabase(Address.parse(url))
    with pytest.raises(StoreError, match="another process took over the store"):
        database.seek(REPLICA, take_on=database.seek(REPLICA, take_on=None).server)
    assert not database.seek(REPLICA, take_on=None).mine
    assert database.transaction(lambda connection: connection.read("SELECT 1")) == [(1,)]
    database.close()


async def test_a_closed_store_is_free_at_once_and_the_epoch_grows(url: str) -> None:
    epochs = []
    for _ in range(3):
        store = await open_leading(url)
        seen = await take(store)
        assert seen.mine
        epochs.append(seen.epoch)
        await store.close()
    assert epochs == sorted(set(epochs))
    assert epochs[0] > 1_700_000_000, "it grows also after a restore: it is at least the time"


async def test_a_free_lease_is_not_taken_on_a_server_that_has_just_started() -> None:
    server = PostgresqlServer()
    try:
        url = server.database()
        await (await open_leading(url)).close()
        store = await PostgresqlStore.open(url)
        before = await store.seek(REPLICA, take_on=None)
        assert before.given_up
        server.kill()
        server.start()
        with pytest.raises(StoreUnavailableError):
            await store.seek(REPLICA, take_on=before.server)
        again = await store.seek(REPLICA, take_on=before.server)
        assert (again.expired, again.given_up, again.mine) == (True, False, False)
        assert again.server > before.server
        assert (await take(store)).mine
        await store.close()
    finally:
        server.close()


async def test_a_leader_that_stood_still_renews_nothing_and_gives_nothing_up(url: str) -> None:
    """The server may have taken over, and may not know which replica leads by now."""
    store = await open_leading(url)
    store._database._lease_time.renewed(-LEASE_LENGTH)  # as if the host had been suspended
    with pytest.raises(StoreError, match="the lease was not renewed in time"):
        await store.renew()
    await store.close()
    other = await PostgresqlStore.open(url)
    seen = await other.seek(OTHER, take_on=None)
    assert (seen.expired, seen.given_up) == (False, False)
    await other.close()


async def test_a_lease_is_given_up_also_after_a_commit_whose_outcome_is_unknown(url: str) -> None:
    store = await open_leading(url)
    store._database._driver.close()  # as such a COMMIT does
    await store.close()
    other = await PostgresqlStore.open(url)
    assert (await other.seek(OTHER, take_on=None)).given_up
    await other.close()


async def test_a_server_that_stands_still_does_not_hold_up_its_caller() -> None:
    server = PostgresqlServer()
    try:
        address = Address.parse(server.database())
        store = await PostgresqlStore.open_with(lambda: PostgresqlDatabase(address, limit=0.5))
        server.suspend()
        async with asyncio.timeout(PATIENCE):
            with pytest.raises(StoreUnavailableError, match=r"the server did not answer in 0\.5 s"):
                await store.seek(REPLICA, take_on=None)
        server.resume()
        assert (await take(store)).mine
        await store.close()
    finally:
        server.resume()
        server.close()


async def test_a_transaction_is_repeated_after_its_session_was_ended(
    url: str, store: PostgresqlStore
) -> None:
    assert await store.accept(delivery("a"))
    change(url, END_SESSIONS)
    assert await store.accept(delivery("b"))
    assert not await store.accept(delivery("a"))


@dataclass(frozen=True)
class CountedAddress(Address):
    """Counts the sessions that were begun."""

    begun: list[None] = field(default_factory=list)

    def connect(self) -> Session:
        self.begun.append(None)
        return super().connect()


def test_while_the_server_is_gone_transactions_do_not_wait_one_after_the_other() -> None:
    server = PostgresqlServer()
    try:
        address = CountedAddress(server.database(), "a database", None)
        database = PostgresqlDatabase(address, repeats=0.5)

        def attempts() -> int:
            before = len(address.begun)
            with pytest.raises(StoreUnavailableError):
                database.renew()
            return len(address.begun) - before

        server.kill()
        assert attempts() > 1, "it is repeated, such as while the server restarts"
        assert attempts() == 1
        server.start()
        database.renew()
        server.kill()
        assert attempts() > 1
        database.close()
    finally:
        server.close()


async def test_what_was_acknowledged_survives_a_crash_of_the_server() -> None:
    server = PostgresqlServer()
    try:
        await _crash_under_load(server)
    finally:
        server.close()


async def _crash_under_load(server: PostgresqlServer) -> None:
    url, acknowledged, enough = server.database(), set[str](), asyncio.Event()
    store = await open_leading(url)

    async def deliver(caller: int) -> None:
        number = 0
        while len(acknowledged) < 400:
            one = delivery(f"{caller}-{number}")
            assert await store.accept(one)
            acknowledged.add(one.id)
            number += 1
            if len(acknowledged) == 200:
                enough.set()

    async with asyncio.timeout(PATIENCE):
        callers = asyncio.gather(*(deliver(number) for number in range(8)), return_exceptions=True)
        await enough.wait()
        server.kill()
        server.start()
        # A caller goes on, unless its delivery was being committed or the start took long.
        for ended in await callers:
            assert ended is None or isinstance(ended, StoreError), ended
    await store.close()
    again = await open_leading(url)
    kept = {one.id for one in (await again.load(0.0)).unapplied}
    await again.close()
    assert len(acknowledged) >= 200
    assert acknowledged <= kept


async def test_a_server_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        StoreError, match=r"^postgresql://localhost/x: connection .+ failed: No such file"
    ):
        await PostgresqlStore.open_with(
            lambda: database_without_patience(f"postgresql://u@localhost/x?host={tmp_path}")
        )


def database_without_patience(url: str) -> PostgresqlDatabase:
    return PostgresqlDatabase(Address.parse(url), patience=0.0)


async def test_a_missing_database_is_named_without_waiting(server: PostgresqlServer) -> None:
    words = r'create the user or the database, or correct its name: .+"missing" does not exist'
    with pytest.raises(StoreError, match=words):
        await PostgresqlStore.open(server.url("missing"))


async def test_a_database_of_another_program_is_refused(url: str) -> None:
    change(url, "CREATE TABLE cats (name TEXT)")
    with pytest.raises(StoreError, match="contains tables of another program"):
        await open_leading(url)


async def test_a_database_of_a_newer_version_is_refused(url: str) -> None:
    await (await open_leading(url)).close()
    change(url, "UPDATE meta SET value = '9999' WHERE key LIKE 'schema%'")
    with pytest.raises(StoreError, match=r"newer version of this program \(schema 9999"):
        await open_leading(url)


async def test_the_timeouts_hold_in_each_transaction(store: PostgresqlStore) -> None:
    """They are the transaction's own: PgBouncer gives each transaction another session."""
    shown = (
        "SELECT current_setting('statement_timeout'), current_setting('lock_timeout'), "
        "current_setting('idle_in_transaction_session_timeout'), current_setting('synchronous_commit')"
    )
    for _ in range(2):
        found = await store._transact(lambda c: c.read(shown))
        assert found == [("10s", "10s", "10s", "on")]


async def test_no_statement_is_prepared_on_the_server(store: PostgresqlStore) -> None:
    for number in range(20):
        await store.accept(delivery(str(number)))
    assert await store._transact(lambda c: c.read("SELECT * FROM pg_prepared_statements")) == []


async def test_errors_do_not_show_the_data_to_be_written(url: str, store: PostgresqlStore) -> None:
    change(url, "ALTER TABLE inbox ADD CONSTRAINT never CHECK (id <> 'hunter2')")
    with pytest.raises(StoreError) as refused:
        await store.accept(Delivery("hunter2", "workflow_job", 1.0, b"{}"))
    shown, error = "", refused.value
    cause: BaseException | None = error
    while cause is not None:
        shown, cause = shown + str(cause), cause.__cause__
    assert "violates check constraint" in shown
    assert "hunter2" not in shown
    assert await store.accept(delivery("a"))


def test_the_password_is_read_again_for_each_session(tmp_path: Path) -> None:
    file = tmp_path / "password"
    address = Address.parse(
        f"postgresql://u@db.example:5433/x?password_file={file}&sslmode=require"
    )
    assert address.title == "postgresql://db.example:5433/x"
    with pytest.raises(StoreError, match=f"password_file {file} cannot be read: No such file"):
        address.connect()
    for password in ("first", "second"):
        file.write_text(password + "\n")
        assert address.parameters()["password"] == password
    assert "password_file" not in address.parameters()
    assert address.parameters()["sslmode"] == "require"


def test_an_iam_identity_signs_in_with_the_password_that_boto3_makes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "example")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "token")
    address = Address.parse("postgresql://ctl@db.example/x?iam_region=eu-west-1")
    rds = boto3.client("rds", region_name="eu-west-1")
    assert any(  # both have the second in which they were made
        address.parameters()["password"]
        == rds.generate_db_auth_token("db.example", 5432, "ctl", "eu-west-1")
        for _ in range(20)
    )
    assert address.parameters()["sslmode"] == "require"
    assert "iam_region" not in address.parameters()


def test_two_ways_to_sign_in_are_refused() -> None:
    with pytest.raises(StoreError, match="password_file and iam_region: keep one of them"):
        Address.parse("postgresql://u@db/x?iam_region=eu-west-1&password_file=/run/password")


@pytest.mark.parametrize(
    "url", ["postgresql://u@/x?iam_region=r", "postgresql://u@/x?host=/run&iam_region=r"]
)
def test_signing_in_with_iam_needs_a_host(url: str) -> None:
    with pytest.raises(StoreError, match="iam_region, but no host of Amazon RDS"):
        Address.parse(url)


def test_a_url_that_libpq_does_not_know_is_refused_without_showing_it() -> None:
    with pytest.raises(StoreError, match="not the URL of a PostgreSQL database") as refused:
        Address.parse("postgresql://u:hunter2@db/x?sslmod=hunter2")
    assert "hunter2" not in f"{refused.value} {refused.value.__cause__}"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            psycopg.OperationalError("FATAL: password authentication failed"),
            "check the user, the pass",
        ),
        (psycopg.OperationalError("root certificate file /x does not exist"), "check sslmode"),
        (psycopg.errors.DiskFull(), "the server's disk is full"),
        (psycopg.errors.TooManyConnections(), "no free connections or memory"),
        (psycopg.errors.ReadOnlySqlTransaction(), "name the primary"),
        (psycopg.errors.InsufficientPrivilege(), "too few rights"),
        (psycopg.errors.QueryCanceled(), "a statement took too long"),
        (psycopg.errors.LockNotAvailable(), "locked the tables"),
        (psycopg.errors.AdminShutdown(), "the server stops or starts"),
    ],
)
def test_an_error_says_what_to_do(error: psycopg.Error, words: str) -> None:
    assert words in str(explained("postgresql://db/x", error))


async def test_a_controller_serves_from_a_server_and_its_commands_say_what_to_use(
    url: str, tmp_path: Path
) -> None:
    served = Served(tmp_path, tmp_path / "unused.db")
    fleet = tmp_path / "fleet.yaml"
    fleet.write_text(fleet.read_text().replace(f"sqlite:///{served.store}", url))
    for first in (1, 3):
        process = await served.start()
        await served.until_logged('"serving"')  # it leads, and keeps connections open
        assert await served.deliver(first, first + 1) == [202, 202], served.log()
        process.terminate()
        async with asyncio.timeout(PATIENCE):
            assert await process.wait() == 0, served.log()
    store = await open_leading(url)
    state = await store.load(0.0)
    await store.close()
    assert {job.id for job in state.jobs} == {1, 2, 3, 4}
    assert not served.store.exists()
    refused = await asyncio.to_thread(run, "store", "check", "-c", fleet)
    assert (refused.exit_code, "back it up with pg_dump" in refused.stderr) == (1, True)


async def test_agents_of_other_versions_are_kept_for_all_replicas(store: PostgresqlStore) -> None:
    others: tuple[bytes, ...] = ()
    for number in range(10):
        others = await store.keep_agent(f"agent {number}".encode())
    assert others == tuple(f"agent {number}".encode() for number in (8, 7, 6, 5, 4, 3, 2))
    assert (await store.keep_agent(b"agent 4"))[0] == b"agent 9"


async def test_an_inspection_names_the_leader_and_changes_nothing(
    url: str, server: PostgresqlServer
) -> None:
    before = await asyncio.to_thread(inspect, url)
    assert (before.leader, before.read_only, before.version >= 14) == (None, False, True)
    store = await open_leading(url)
    assert (await asyncio.to_thread(inspect, url)).leader == "host 1, process 1"
    await store.close()
    assert (await asyncio.to_thread(inspect, url)).leader is None
    with pytest.raises(StoreError, match="does not exist"):
        await asyncio.to_thread(inspect, server.url("missing"))
