"""A command that waits says for what, on a terminal and beside its output."""

import json
import os
import pty
import signal
import socket
import subprocess
import sys
import threading
from io import StringIO
from pathlib import Path

import pytest

from autoscaler.operator_commands.waiting import interruptible, waiting_for
from tests.patience import PATIENCE

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}"


@pytest.mark.systems
def test_a_request_without_an_answer_is_named_after_a_second_beside_the_json(
    tmp_path: Path,
) -> None:
    token = tmp_path / "token"
    token.write_text(f"alice operate {'t' * 40}\n")
    token.chmod(0o600)
    ours, its = pty.openpty()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(PATIENCE)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        arguments = ["pause", "gpu", "--json", "--url", url, "--token-file", str(token)]
        process = subprocess.Popen(
            [sys.executable, "-m", "autoscaler.cli", *arguments],
            stdout=subprocess.PIPE,
            stderr=its,
            cwd=tmp_path,
        )
        os.close(its)
        connection, _ = listener.accept()
        with connection, os.fdopen(ours, "rb", buffering=0) as terminal:
            # The answer comes only after the line, however slow this host is.
            said = b""
            while not said.endswith(b"\n"):
                said += terminal.read(1000)
            connection.recv(65_536)
            connection.sendall(ANSWER)
            out, _ = process.communicate(timeout=PATIENCE)
    assert said.decode() == f"waiting for {url}, at most 60 s ...\r\n"
    assert (process.returncode, json.loads(out)) == (0, {})


@pytest.mark.systems
@pytest.mark.parametrize(
    "command", [["status"], ["jobs"], ["explain", "gpu"], ["history", "1"]], ids=" ".join
)
def test_ctrl_c_ends_a_request_without_an_answer_without_a_word(
    command: list[str], tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text(f"alice read {'t' * 40}\n")
    token.chmod(0o600)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(PATIENCE)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        arguments = [*command, "--url", url, "--token-file", str(token)]
        process = subprocess.Popen(
            [sys.executable, "-m", "autoscaler.cli", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=tmp_path,
        )
        connection, _ = listener.accept()
        with connection:
            connection.recv(65_536)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out, err) == (130, b"", b"")


WAITS_IN_THE_C_LIBRARY = """
import ctypes
from autoscaler.operator_commands.waiting import interruptible
library, mutex = ctypes.CDLL(None), (ctypes.c_long * 8)()
library.pthread_mutex_lock(mutex)
print("waits", flush=True)
interruptible(lambda: library.pthread_mutex_lock(mutex))
"""
"""POSIX: no signal interrupts pthread_mutex_lock. A look-up of a name is not interrupted either."""


@pytest.mark.systems
def test_ctrl_c_ends_a_wait_in_the_c_library() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", WAITS_IN_THE_C_LIBRARY],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"waits\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == -signal.SIGINT
    finally:
        process.kill()
        process.communicate()


def test_an_answer_or_an_error_comes_back_from_the_other_thread() -> None:
    assert interruptible(lambda: 3) == 3
    with pytest.raises(ZeroDivisionError):
        interruptible(lambda: 1 // 0)


def test_nothing_is_printed_where_nobody_watches(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(StringIO):
        def isatty(self) -> bool:
            return True

    before = set(threading.enumerate())
    monkeypatch.setattr(sys, "stderr", StringIO())
    with waiting_for("a reason"):
        assert set(threading.enumerate()) == before
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with waiting_for("a reason"):
        (timer,) = set(threading.enumerate()) - before
    timer.join(PATIENCE)
    assert terminal.getvalue() == ""  # it went on before the second was over
