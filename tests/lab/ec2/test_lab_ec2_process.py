"""The moto process: started and ended with the lab, and gone when its parent is killed."""

import asyncio
import os
import signal
import sys
import time
from pathlib import Path

import aiohttp
import pytest

from autoscaler.controller.system import SystemClock
from lab.ec2.moto import MotoProcess
from lab.ec2.service import LabEc2
from tests.lab.ec2.harness import FakeHost
from tests.patience import PATIENCE

ROOT = Path(__file__).parents[3]
PARENT = """
import time
from lab.ec2.moto import MotoProcess
moto = MotoProcess()
moto.start()
print(moto.url, flush=True)
time.sleep(600)
"""


async def listens(url: str) -> bool:
    host, _, port = url.removeprefix("http://").rstrip("/").partition(":")
    try:
        _, writer = await asyncio.open_connection(host, int(port))
    except (ConnectionRefusedError, ConnectionResetError):
        # Reset: it ended between the connection and the answer.
        return False
    writer.close()
    await writer.wait_closed()
    return True


async def gone(url: str) -> bool:
    deadline = time.monotonic() + PATIENCE
    while await listens(url):
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(0.02)
    return True


async def test_a_lab_without_a_shared_moto_brings_its_own() -> None:
    lab = LabEc2(FakeHost(), SystemClock())
    with pytest.raises(RuntimeError, match="not started"):
        _ = lab.endpoint_url
    await lab.start()
    url = lab.endpoint_url
    async with (
        aiohttp.ClientSession() as http,
        http.post(url, data={"Action": "DescribeInstances"}) as answer,
    ):
        assert answer.status == 200
    await lab.close()
    await lab.close()
    assert await gone(url)


async def test_moto_ends_when_its_parent_is_killed() -> None:
    parent = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", PARENT), stdout=asyncio.subprocess.PIPE, cwd=ROOT, env=os.environ
    )
    assert parent.stdout is not None
    url = (await parent.stdout.readline()).decode().strip()
    assert await listens(url)
    parent.send_signal(signal.SIGKILL)
    await parent.wait()
    assert await gone(url)


def test_stopping_moto_twice_or_before_its_start_does_nothing() -> None:
    moto = MotoProcess()
    moto.close()
    moto.close()
    assert moto.url == ""
