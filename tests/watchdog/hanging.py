"""Tests that hang or leave processes. test_watchdog.py runs them in another pytest process."""

import asyncio
import subprocess
import sys
import threading
import time
from asyncio.subprocess import PIPE
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.wait_limit(seconds=0.5, reason="these tests exceed it")

SAYING = "print('said', flush=True); import time; time.sleep(1000)"
SLEEPER = [sys.executable, "-Sc", SAYING]
STUBBORN = [
    *(sys.executable, "-Sc"),
    f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {SAYING}",
]


async def test_executor() -> None:
    """As a test that awaits `asyncio.to_thread(process.communicate)` and another one that fails."""
    process = subprocess.Popen(SLEEPER, stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # noqa: ASYNC220
    reading = asyncio.create_task(asyncio.to_thread(process.communicate))
    await asyncio.sleep(0.1)
    assert reading.done()


@pytest.fixture
def slow() -> Iterator[None]:
    """A fixture that does not end."""
    yield
    time.sleep(1000)


def test_slow_fixture(slow: None) -> None:
    pass


async def test_event() -> None:
    await asyncio.Event().wait()


def test_stubborn() -> None:
    with subprocess.Popen(STUBBORN, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.terminate()
        process.wait()


async def test_asyncio_process() -> None:
    process = await asyncio.create_subprocess_exec(*SLEEPER, stdout=PIPE)
    await process.communicate()


def test_log_file(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w") as log:
        subprocess.run(SLEEPER, stdout=log, check=True)


def test_program_that_ended() -> None:
    with subprocess.Popen(SLEEPER, stdout=subprocess.PIPE) as process:
        process.kill()
        process.wait()
        threading.Event().wait()


def test_left_child() -> None:
    subprocess.Popen(SLEEPER, stdout=subprocess.DEVNULL)


def test_left_orphan() -> None:
    subprocess.run(["sh", "-c", "sleep 1000 &"], check=True)


@pytest.fixture(scope="module")
def shared() -> subprocess.Popen[bytes]:
    """A process of several tests, which the last one's teardown does not end."""
    return subprocess.Popen(SLEEPER)


def test_shared(shared: subprocess.Popen[bytes]) -> None:
    time.sleep(1000)


def test_shared_again(shared: subprocess.Popen[bytes]) -> None:
    """A test that hangs ends its own processes only."""
    assert shared.poll() is None


@pytest.fixture(scope="module")
def late() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes that a test starts and the end of the file ends."""
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for process in started:
        process.kill()
        process.wait()


def test_late(late: list[subprocess.Popen[bytes]]) -> None:
    late.append(subprocess.Popen(SLEEPER))


def test_late_again(late: list[subprocess.Popen[bytes]]) -> None:
    assert late[0].poll() is None


@pytest.mark.wait_limit(seconds=1000, reason="it takes longer than the other tests' limit")
def test_marked() -> None:
    time.sleep(0.8)
