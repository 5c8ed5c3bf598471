"""Tests whose other program is killed while they wait for it. test_killed_programs.py runs them."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import psutil
import pytest

from autoscaler.providers.ec2.worker.channel import WorkerChannel
from lab.ec2.moto import MotoClient, MotoProcess
from lab.kubernetes.admin import Administrator
from lab.kubernetes.cluster import Cluster
from tests.console.browser import browser


@asynccontextmanager
async def killed_meanwhile(pid: int) -> AsyncIterator[None]:
    """Stop a process while a request is sent to it, and then kill it."""
    os.kill(pid, signal.SIGSTOP)
    asyncio.get_running_loop().call_later(0.2, os.kill, pid, signal.SIGKILL)
    yield


@pytest.fixture(scope="module")
def moto() -> Iterator[MotoProcess]:
    process = MotoProcess()
    process.start()
    yield process
    process.close()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("cluster"))
    try:
        made.start()
        yield made
    finally:
        made.close()


def child_with(words: str) -> int:
    """Return the first process below this one whose command has these words, but for the shell of a guard."""
    for one in psutil.Process().children(recursive=True):
        # None is the command of a process that has ended.
        command = " ".join(one.as_dict(["cmdline"])["cmdline"] or ())
        if words in command and "guard.sh" not in command:
            return one.pid
    raise AssertionError(f"no process has {words!r} in its command")


async def test_worker(moto: MotoProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "lab")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "lab")
    channel = WorkerChannel("us-east-1", moto.url)
    await channel.start()
    assert channel.pid is not None
    try:
        async with killed_meanwhile(channel.pid):
            await channel.call("DescribeInstances", {})
    finally:
        await channel.close()


async def test_chromium() -> None:
    async with browser() as started:
        page = await started.new_page()
        async with killed_meanwhile(child_with("--remote-debugging-pipe")):
            await page.goto("about:blank")


async def test_moto(moto: MotoProcess) -> None:
    client = MotoClient(moto.url, "123456789012", "us-east-1")
    try:
        async with killed_meanwhile(child_with("lab.ec2.moto_process")):
            await client.ask("DescribeInstances")
    finally:
        await client.close()


async def test_api_server(cluster: Cluster) -> None:
    administrator = Administrator(cluster)
    try:
        async with killed_meanwhile(child_with("kube-apiserver --")):
            await administrator.request("GET", "/api/v1/nodes")
    finally:
        await administrator.close()


@pytest.mark.wait_limit(seconds=1, reason="the test exceeds it")
async def test_program_of_the_tests() -> None:
    """Its reader waits for a line that another process with the same pipe keeps from ending."""
    script = "sleep 1000 & echo last words; exec sleep 1000"
    process = await asyncio.create_subprocess_exec(
        *("sh", "-c", script), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    await process.stdout.readline()
    async with killed_meanwhile(process.pid):
        await process.stdout.readline()
