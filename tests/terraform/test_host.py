"""The host's program: what it does when something is missing, changed or damaged."""

import asyncio
import contextlib
import gzip
import os
import runpy
import secrets
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from autoscaler.controller.ports.store import Delivery
from autoscaler.store.sqlite.store import SqliteStore
from lab.ec2.moto import MotoProcess
from lab.terraform.front import TerraformFront
from tests.config.fleet_file import MINIMAL
from tests.terraform.hosts import BACKUP, PROGRAM, Account, Host, metrics

FLEET_FILE = MINIMAL.replace("state.db", "../data/state.db")
TUNE, BLKID, MAKE_FILE_SYSTEM = (
    shutil.which(name, path="/usr/sbin:/sbin:/usr/bin") or name
    for name in ("tune2fs", "blkid", "mkfs.ext4")
)


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


async def write_store(host: Host, content: str) -> None:
    """Store a delivery, as the host's controller does."""
    store = await SqliteStore.open(host.data / "state.db")
    await store.accept(Delivery(content, "workflow_job", 1.0, content.encode()))
    await store.close()


async def stored(host: Host) -> list[str]:
    store = await SqliteStore.open(host.data / "state.db")
    found = [delivery.id for delivery in (await store.load(0.0)).unapplied]
    await store.close()
    return found


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


async def first_line(process: subprocess.Popen[str]) -> str:
    """Return the first line that a host prints: the reason to wait."""
    assert process.stdout is not None
    return await asyncio.to_thread(process.stdout.readline)


async def finished(process: subprocess.Popen[str]) -> str:
    """Return what a host that succeeds prints after its first line."""
    printed, _ = await asyncio.to_thread(process.communicate)
    assert process.returncode == 0, printed
    return printed


async def test_a_new_host_waits_while_another_one_runs(account: Account) -> None:
    await asyncio.to_thread(account.put_fleet_file, FLEET_FILE)
    async with host_of(account, "old") as old:
        await asyncio.to_thread(old.succeed, "prepare")
        await write_store(old, "kept")
        async with host_of(account, "new") as new:
            process = new.process("prepare")
            # The test waits for the new host to wait.
            line = await first_line(process)
            assert line == f"waiting for the end of the other host: {old.instance} is running\n"
            assert await asyncio.to_thread(account.holders) == [old.instance]
            await asyncio.to_thread(account.lose, old.instance, False)
            assert "making a file system" not in await finished(process)
            assert await asyncio.to_thread(account.holders) == [new.instance]
            assert await stored(new) == ["kept"]


async def test_a_host_with_a_new_volume_gets_the_last_backup_of_the_old_host(
    account: Account,
) -> None:
    """The volume does not keep two hosts apart if Terraform has replaced it."""
    await asyncio.to_thread(account.put_fleet_file, FLEET_FILE)
    async with host_of(account, "old") as old:
        await asyncio.to_thread(old.succeed, "prepare")
        await asyncio.to_thread(account.create_volume)
        async with host_of(account, "new") as new:
            process = new.process("prepare")
            assert f"{old.instance} is running" in await first_line(process)
            await write_store(old, "written meanwhile")
            await asyncio.to_thread(old.succeed, "backup")
            await asyncio.to_thread(account.lose, old.instance, False)
            assert "restored the store" in await finished(process)
            assert await stored(new) == ["written meanwhile"]


async def test_a_host_waits_for_a_volume_that_another_instance_has(account: Account) -> None:
    await asyncio.to_thread(account.put_fleet_file, FLEET_FILE)
    other = await asyncio.to_thread(account.launch, {"Name": "rescue"})
    await asyncio.to_thread(account.attach, other)
    async with host_of(account, "new") as new:
        process = new.process("prepare")
        assert await first_line(process) == f"{other} has the volume, and is running\n"
        assert await asyncio.to_thread(account.holders) == [other]
        await asyncio.to_thread(account.lose, other, False)
        await finished(process)
        assert await asyncio.to_thread(account.holders) == [new.instance]


def test_a_host_that_hangs_while_it_shuts_down_is_waited_for_three_minutes() -> None:
    """moto terminates at once, so this calls the decision alone."""
    wait = runpy.run_path(str(PROGRAM))["hosts_to_wait_for"]
    since: dict[str, float] = {}
    assert wait({"i-2": "running", "i-1": "shutting-down"}, since, 0.0) == (
        "i-1 is shutting-down, i-2 is running"
    )
    assert wait({"i-2": "shutting-down", "i-1": "shutting-down"}, since, 100.0) == (
        "i-1 is shutting-down, i-2 is shutting-down"
    )
    assert wait({"i-2": "shutting-down", "i-1": "shutting-down"}, since, 180.0) == (
        "i-2 is shutting-down"
    )
    assert wait({"i-2": "shutting-down"}, since, 280.0) == ""


def mounted(
    folder: Path, monkeypatch: pytest.MonkeyPatch, blkid: str, content: bytes = b""
) -> list[str]:
    """Mount a volume with this content, and return the calls of the programs that change it.

    `blkid` is the text of a shell script.
    """
    programs, calls = folder / "bin", folder / "calls"
    programs.mkdir()
    calls.write_text("")
    recorded = f'echo "${{0##*/}} $*" >> {calls}'
    texts = {"blkid": blkid, **dict.fromkeys(("mkfs.ext4", "mount", "resize2fs"), recorded)}
    for name, text in texts.items():
        (programs / name).write_text(f"#!/bin/sh\n{text}\n")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    device = folder / "nvme-Amazon_Elastic_Block_Store_vol0a"
    device.write_bytes(content)
    runpy.run_path(str(PROGRAM))["mount"]({"devices": str(folder)}, "vol-0a", folder / "data")
    return [call.partition(" ")[0] for call in calls.read_text().splitlines()]


@pytest.mark.parametrize("end", ["exit 0", "exit 1", "exit 4", "exit 8", "exit 127", "kill -9 $$"])
def test_only_a_volume_without_any_signature_gets_a_file_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    """A file system that blkid could not recognize is the controller's store."""
    assert mounted(tmp_path, monkeypatch, end) == ["mount", "resize2fs"]


def test_a_volume_without_a_signature_gets_a_file_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert mounted(tmp_path, monkeypatch, "exit 2") == ["mkfs.ext4", "mount", "resize2fs"]


def test_a_volume_with_contradictory_signatures_is_not_formatted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without `-p`, the real blkid ends with 2 here, as for an empty volume."""
    disk = tmp_path / "disk"
    disk.write_bytes(bytes(16 * 1024 * 1024))
    subprocess.run([MAKE_FILE_SYSTEM, "-q", disk], check=True)
    content = bytearray(disk.read_bytes())
    content[0x10040:0x10048] = b"_BHRfS_M"  # Btrfs, in the superblock's place
    real = f'exec {BLKID} "$@"'
    assert mounted(tmp_path, monkeypatch, real, bytes(content)) == ["mount", "resize2fs"]


async def test_the_newest_backup_replaces_a_lost_volume(account: Account) -> None:
    await asyncio.to_thread(account.put_fleet_file, FLEET_FILE)
    async with host_of(account, "old") as old:
        await asyncio.to_thread(old.succeed, "prepare")
        for text in ("first", "second"):
            await write_store(old, text)
            assert "backed up" in await asyncio.to_thread(old.succeed, "backup")
        await write_store(old, "after the backup")
        await asyncio.to_thread(account.lose, old.instance, True)
        async with host_of(account, "new") as new:
            printed = await asyncio.to_thread(new.succeed, "prepare")
            assert "is lost: the store is on the root disk" in printed
            assert await stored(new) == ["first", "second"]
            counted = await asyncio.to_thread(metrics, account.url)
            assert {one["MetricName"] for one in counted} == {"Backups"}


async def test_the_file_system_grows_with_its_volume(account: Account) -> None:
    await asyncio.to_thread(account.put_fleet_file, FLEET_FILE)
    async with host_of(account, "old") as old:
        await asyncio.to_thread(old.succeed, "prepare")
        await asyncio.to_thread(account.lose, old.instance, False)
    (disk,) = account.devices.iterdir()
    with disk.open("r+b") as file:
        file.truncate(32 * 1024 * 1024)
    async with host_of(account, "new") as new:
        printed = await asyncio.to_thread(new.succeed, "prepare")
        assert "keeps its size" not in printed
    superblock = await asyncio.to_thread(
        subprocess.check_output, [TUNE, "-l", str(disk)], text=True
    )
    found = dict(line.split(":", 1) for line in superblock.splitlines() if ":" in line)
    assert int(found["Block count"]) * int(found["Block size"]) == 32 * 1024 * 1024


async def test_a_damaged_backup_is_not_used(account: Account) -> None:
    await asyncio.to_thread(account.put_fleet_file, FLEET_FILE)
    broken = gzip.compress(b"SQLite format 3\0" + b"\1" * 4096)
    await asyncio.to_thread(
        lambda: account.s3.put_object(Bucket=account.bucket, Key=BACKUP, Body=broken)
    )
    async with host_of(account, "first") as host:
        status, printed = await asyncio.to_thread(host.command, "prepare")
        assert (status, "restored.db: the file is not a SQLite database" in printed) == (1, True), (
            printed
        )
        assert {one.name for one in host.data.iterdir()} <= {"fleet.yaml", "state.db.lock"}


async def test_a_volume_is_taken_from_an_instance_that_stopped(account: Account) -> None:
    """Also: the last fleet.yaml serves while the bucket has none."""
    await asyncio.to_thread(account.put_fleet_file, FLEET_FILE)
    async with host_of(account, "old") as old:
        await asyncio.to_thread(old.succeed, "prepare")
        await asyncio.to_thread(account.stop, old.instance)
        await asyncio.to_thread(
            lambda: account.s3.delete_object(Bucket=account.bucket, Key="fleet.yaml")
        )
        async with host_of(account, "new") as new:
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
