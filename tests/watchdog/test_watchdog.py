"""Tests that hang or leave processes, in pytest processes of their own with a short limit."""

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.patience import PATIENCE
from tests.watchdog.clock import LEAST_SHARE, counted, share_of

ROOT = Path(__file__).parents[2]


def run(folder: Path, file: Path, *options: str) -> tuple[int, str]:
    """Run a file of tests. Return the exit status and what pytest printed. No process may be left."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c"]
    command += [str(ROOT / "pyproject.toml"), "-p", "tests.watchdog.plugin", "-o", "wait_grace=2"]
    done = subprocess.run(
        [*command, f"--basetemp={folder / 'tmp'}", *options, str(file)],
        cwd=ROOT,
        env={**os.environ, "WATCHED_IN": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=PATIENCE,
        text=True,
        check=False,
    )
    assert [one for one in psutil.process_iter() if _place(one) == str(folder)] == []
    return done.returncode, done.stdout


def _place(process: psutil.Process) -> str | None:
    try:
        return process.environ().get("WATCHED_IN")
    except psutil.Error:
        return None


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What a run of hanging.py printed."""
    status, printed = run(
        tmp_path_factory.mktemp("hanging"), Path(__file__).with_name("hanging.py")
    )
    assert status == 1, printed
    return printed


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("test_executor [teardown]", ["in communicate: stdout, stderr", "    said"]),
        ("test_slow_fixture [teardown]", ["in slow: time.sleep(1000)"]),
        ("test_event [call]", ["in test_event: await asyncio.Event().wait() [in Event.wait]"]),
        ("test_stubborn [call]", ["in test_stubborn: process.wait()", "killed now: ", "SIG_IGN"]),
        (
            "test_asyncio_process [call]",
            ["await process.communicate()", "killed now: ", "    said"],
        ),
        ("test_log_file [call]", ["in test_log_file: subprocess.run(", "    said"]),
        (
            "test_program_that_ended [call]",
            ["threading.Event().wait()", "had ended with status -9: "],
        ),
        ("test_shared [call]", ["in test_shared: time.sleep(1000)"]),
    ],
)
def test_a_test_that_waits_too_long_fails_and_says_for_what(
    printed: str, name: str, expected: list[str]
) -> None:
    _, found, after = printed.partition(f"hanging.py::{name} waited for more than 0.5 s, at:\n")
    report = after.partition("\n____")[0]
    assert found, printed
    assert [one for one in expected if one not in report] == [], report


@pytest.mark.parametrize(
    ("name", "left"),
    [
        ("test_left_child", "time.sleep(1000)"),
        ("test_left_orphan", "sleep 1000"),
        # The last test of the file: its teardown ends the fixture.
        ("test_marked", "time.sleep(1000)"),
    ],
)
def test_a_test_that_leaves_a_process_fails_and_the_process_ends(
    printed: str, name: str, left: str
) -> None:
    _, found, after = printed.partition(
        f"hanging.py::{name} left processes, which are killed now:\n"
    )
    assert found, printed
    assert left in after.splitlines()[0]


def test_other_tests_of_the_file_pass(printed: str) -> None:
    """Also one with a process that it shares with a test that hung, and one with a longer limit."""
    assert "8 failed, 6 passed, 5 errors in " in printed


def test_a_thread_that_outlives_the_session_ends_the_process(tmp_path: Path) -> None:
    file = tmp_path / "test_it.py"
    file.write_text(
        "import threading\ndef test_it():\n"
        "    threading.Thread(target=threading.Event().wait, name='lost').start()\n"
    )
    status, printed = run(tmp_path, file, "-o", "wait_limit=4")
    assert "the end of the session waited for more than 4 s" in printed
    assert "thread lost: " in printed
    assert (status, "1 passed" in printed) == (3, True)


REAPED = """
import subprocess, sys, threading, time
from tests.watchdog.children import children
callers = []
sys.addaudithook(
    lambda event, _: callers.append(threading.current_thread().name)
    if event == "gc.get_objects" else None
)
def test_it():
    subprocess.run(["sh", "-c", "sleep 0.1 &"], check=True)
    while children():
        time.sleep(0.01)
    assert callers == []
"""


def test_an_orphan_is_reaped_without_a_look_at_all_objects(tmp_path: Path) -> None:
    """Such a look from a thread makes a `tuple()` that another thread computes fail."""
    file = tmp_path / "test_it.py"
    file.write_text(REAPED)
    status, printed = run(tmp_path, file)
    assert status == 0, printed


WITHSTANDS = """
import time, pytest
@pytest.mark.wait_limit(seconds=0.2)
def test_it():
    while True:
        try:
            time.sleep(1000)
        except BaseException:
            pass
"""


def test_a_test_that_withstands_the_interruption_ends_the_process(tmp_path: Path) -> None:
    file = tmp_path / "test_it.py"
    file.write_text(WITHSTANDS)
    status, printed = run(tmp_path, file)
    assert "test_it [call] waited for more than 0.2 s" in printed
    assert "in test_it: time.sleep(1000)" in printed
    assert status == 3


def test_it_also_ends_if_its_output_has_no_reader(tmp_path: Path) -> None:
    file = tmp_path / "test_it.py"
    file.write_text(
        WITHSTANDS.replace(
            "    while", f"    open({str(tmp_path / 'on')!r}, 'w').close()\n    while"
        )
    )
    options = ["-q", "-p", "tests.watchdog.plugin", "-o", "wait_grace=1", str(file)]
    command = [sys.executable, "-m", "pytest", "-c", str(ROOT / "pyproject.toml"), *options]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        assert process.stdout is not None
        while not (tmp_path / "on").exists():
            time.sleep(0.01)
        process.stdout.close()
        assert process.wait(PATIENCE) == 3


def test_an_orphan_that_ended_does_not_stay_a_zombie() -> None:
    script = "sleep 0.01 & echo $!"
    printed = subprocess.run(["sh", "-c", script], stdout=subprocess.PIPE, check=True).stdout
    while psutil.pid_exists(int(printed)):
        time.sleep(0.01)


def test_a_busy_host_gives_a_test_more_time() -> None:
    assert [share_of(one, processors=2) for one in (0, 1, 2, 4)] == [1, 1, 1, 0.5]
    assert share_of(1000, processors=2) == LEAST_SHARE
    assert counted(0.3, tick=0.25, share=1.0) == 0.25
    assert counted(600.0, tick=0.25, share=0.5) == 0.125
