"""The host's program: what it does when something is missing, changed or damaged."""

import asyncio
import contextlib
import gzip
import secrets
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest_asyncio

from lab.ec2.moto import MotoProcess
from lab.terraform.front import TerraformFront
from tests.terraform.hosts import BACKUP, PROGRAM, Account, Host, metrics

FLEET_FILE = "fleet: ci-gpu\n"


@pytest_asyncio.fixture
async def account(moto: MotoProcess, tmp_path: Path) -> AsyncIterator[Account]:
    # An account of its own for each test.
    front = TerraformFront(moto.url, str(10**11 + secrets.randbelow(9 * 10**11)), lambda: ())
    await front.start()
    made = await asyncio.to_thread(Account, front.url, tmp_path, {"admin_token": "t" * 32})
    yield made
    await front.close()


@contextlib.asynccontextmanager
async def host_of(account: Account, name: str) -> AsyncIterator[Host]:
    host = await asyncio.to_thread(Host, account, name)
    await host.start()
    try:
        yield host
    finally:
        await host.close()


def write_store(host: Host, content: str) -> None:
    with closing(sqlite3.connect(host.data / "state.db")) as store:
        store.execute("CREATE TABLE IF NOT EXISTS said (text)")
        store.execute("INSERT INTO said VALUES (?)", (content,))
        store.commit()


def stored(host: Host) -> list[str]:
    with closing(sqlite3.connect(host.data / "state.db")) as store:
        return [text for (text,) in store.execute("SELECT text FROM said")]


async def test_a_first_host_gets_a_file_system_secrets_and_the_fleet_file(account: Account) -> None:
    await asyncio.to_thread(account.put_fleet_file, FLEET_FILE)
    async with host_of(account, "first") as host:
        printed = await asyncio.to_thread(host.succeed, "prepare")
        assert "making a file system" in printed
        assert "there is no backup" in printed
        assert (host.run / "fleet.yaml").read_text() == FLEET_FILE
        secret = host.run / "secrets" / "admin-token"
        assert (secret.read_text(), secret.stat().st_mode & 0o777) == ("t" * 32, 0o400)
        assert (host.run / "tls" / "server.pem").read_text().startswith("-----BEGIN CERTIFICATE")
        assert (host.run / "tls" / "server.key").stat().st_mode & 0o777 == 0o400


async def test_a_new_host_waits_while_another_one_runs_with_the_volume(account: Account) -> None:
    await asyncio.to_thread(account.put_fleet_file, FLEET_FILE)
    async with host_of(account, "old") as old, host_of(account, "new") as new:
        await asyncio.to_thread(old.succeed, "prepare")
        write_store(old, "kept")
        process = new.process("prepare")
        assert process.stdout is not None
        # The test waits for the new host to wait.
        line = await asyncio.to_thread(process.stdout.readline)
        assert line == f"{old.instance} has the volume, and is running\n"
        assert await asyncio.to_thread(account.holders) == [old.instance]
        await asyncio.to_thread(account.lose, old.instance, False)
        printed, _ = await asyncio.to_thread(process.communicate)
        assert process.returncode == 0, printed
        assert "making a file system" not in printed
        assert await asyncio.to_thread(account.holders) == [new.instance]
        assert stored(new) == ["kept"]


async def test_the_newest_backup_replaces_a_lost_volume(account: Account) -> None:
    await asyncio.to_thread(account.put_fleet_file, FLEET_FILE)
    async with host_of(account, "old") as old, host_of(account, "new") as new:
        await asyncio.to_thread(old.succeed, "prepare")
        for text in ("first", "second"):
            write_store(old, text)
            assert "backed up" in await asyncio.to_thread(old.succeed, "backup")
        write_store(old, "after the backup")
        await asyncio.to_thread(account.lose, old.instance, True)
        printed = await asyncio.to_thread(new.succeed, "prepare")
        assert "is lost: the store is on the root disk" in printed
        assert stored(new) == ["first", "second"]
        counted = await asyncio.to_thread(metrics, account.url)
        assert {one["MetricName"] for one in counted} == {"Backups"}


async def test_a_damaged_backup_is_not_used(account: Account) -> None:
    await asyncio.to_thread(account.put_fleet_file, FLEET_FILE)
    broken = gzip.compress(b"SQLite format 3\0" + b"\1" * 4096)
    await asyncio.to_thread(
        lambda: account.s3.put_object(Bucket=account.bucket, Key=BACKUP, Body=broken)
    )
    async with host_of(account, "first") as host:
        status, printed = await asyncio.to_thread(host.command, "prepare")
        assert status == 1, printed
        assert not (host.data / "state.db").exists()


async def test_a_volume_is_taken_from_an_instance_that_stopped(account: Account) -> None:
    """Also: the last fleet.yaml serves while the bucket has none."""
    await asyncio.to_thread(account.put_fleet_file, FLEET_FILE)
    async with host_of(account, "old") as old, host_of(account, "new") as new:
        await asyncio.to_thread(old.succeed, "prepare")
        await asyncio.to_thread(account.stop, old.instance)
        await asyncio.to_thread(
            lambda: account.s3.delete_object(Bucket=account.bucket, Key="fleet.yaml")
        )
        printed = await asyncio.to_thread(new.succeed, "prepare")
        assert f"detaching the volume from {old.instance} (stopped)" in printed
        assert await asyncio.to_thread(account.holders) == [new.instance]
        assert (new.run / "fleet.yaml").read_text() == FLEET_FILE


async def test_a_changed_fleet_file_restarts_the_controller_only_if_check_accepts_it(
    account: Account,
) -> None:
    await asyncio.to_thread(account.put_fleet_file, FLEET_FILE)
    async with host_of(account, "first") as host:
        await asyncio.to_thread(host.succeed, "prepare")
        before = host.calls.read_text()
        assert await asyncio.to_thread(host.succeed, "update") == ""
        await asyncio.to_thread(account.put_fleet_file, "flet: typo\n")
        printed = await asyncio.to_thread(host.succeed, "update")
        assert "`check` refuses the new fleet.yaml" in printed
        assert (host.run / "fleet.yaml").read_text() == FLEET_FILE
        assert host.calls.read_text() == before
        await asyncio.to_thread(account.put_fleet_file, FLEET_FILE + "limits: {machines: 1}\n")
        printed = await asyncio.to_thread(host.succeed, "update")
        assert "restarting the controller" in printed
        assert host.calls.read_text() == before + "restarted\n"


def test_a_wrong_word_prints_what_there_is(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, PROGRAM, "fix"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, "host.py prepare" in done.stderr) == (2, True)
