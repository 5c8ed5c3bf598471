"""Runs programs of the image, with bounds on their time and output."""

from __future__ import annotations

import collections
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time

from autoscaler.agent.limits import MOST_OUTPUT
from autoscaler.agent.runner.listener_log import readable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import IO, Any

KILLED = 1.0
"""Seconds to wait for a killed program."""

MOST_AT_ONCE = 64 * 1024
"""Bytes: what a pipe of Linux holds (pipe(7))."""

Output = collections.namedtuple("Output", ("status", "text"))


class NotInstalled(Exception):  # noqa: N818 - as `TryAgain`
    """The image does not have the program."""


class NoUsableAnswer(Exception):  # noqa: N818
    """A program gave no usable answer; the text says why."""


if sys.platform == "win32":

    class JobObject:
        """The processes of a program that was just started, as one of Windows' job objects."""

        def __init__(self, process: subprocess.Popen[bytes]) -> None:
            import ctypes  # only Windows needs it

            self._kernel = ctypes.windll.kernel32
            self._kernel.CreateJobObjectW.restype = ctypes.c_void_p
            self._job = ctypes.c_void_p(self._kernel.CreateJobObjectW(None, None))
            handle = ctypes.c_void_p(int(process._handle))  # noqa: SLF001 - as subprocess has it
            self._kernel.AssignProcessToJobObject(self._job, handle)

        def end(self) -> None:
            """End all of them at once, also those whose parent has ended."""
            self._kernel.TerminateJobObject(self._job, 1)

        def close(self) -> None:
            """Forget them. They go on."""
            self._kernel.CloseHandle(self._job)

    ProcessGroup = JobObject
else:

    class PosixGroup:
        """The processes of a program that was started with `start_new_session`."""

        def __init__(self, process: subprocess.Popen[bytes]) -> None:
            self._process = process

        def end(self) -> None:
            """Kill all of them. One that waits for a broken device does not end (state D of ps(1))."""
            try:
                os.killpg(self._process.pid, signal.SIGKILL)
            except ProcessLookupError:
                return

        def close(self) -> None:
            """Do nothing: the kernel keeps the group."""

    ProcessGroup = PosixGroup


def start_group(
    argv: Sequence[str], stdout: IO[bytes] | int, **how: Any
) -> tuple[subprocess.Popen[bytes], Any]:
    """Start a program that writes to `stdout`; return it, and it with everything that it starts.

    `how`: as for Popen. Raises NotInstalled, NoUsableAnswer.
    """
    try:
        process = subprocess.Popen(  # noqa: S603 - a fixed program of the image
            argv,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            **how,
        )
    except FileNotFoundError:
        raise NotInstalled(f"{argv[0]} is not installed") from None
    except OSError as error:
        raise NoUsableAnswer(f"{argv[0]} does not start: {error.strerror}") from error
    return process, ProcessGroup(process)


def end_group(process: subprocess.Popen[bytes], group: Any) -> None:
    """End a program and everything that it started. One that waits for a broken device may stay."""
    group.end()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(KILLED)


def run_program(argv: Sequence[str], timeout: float, **how: Any) -> Output:
    """Return the exit status of a program and what it wrote: the last `MOST_OUTPUT` bytes.

    `timeout`: real seconds; `how`: as for Popen. Raises NotInstalled, and NoUsableAnswer after `timeout`, also
    if only a child of the program still writes. It then ends all of them.
    """
    process, group = start_group(argv, subprocess.PIPE, **how)
    try:
        answer = _answer(process, timeout)
        if answer is None:
            end_group(process, group)
            raise NoUsableAnswer(f"{argv[0]} did not answer in time")
        return answer
    finally:
        group.close()


def _answer(process: subprocess.Popen[bytes], timeout: float) -> Output | None:
    """Return a program's answer, or None if it or another writer of its output is there after the time-out."""
    written = bytearray()
    # A thread, because pipes of Windows cannot be polled. It ends with the last writer.
    reader = threading.Thread(target=_keep_last, args=(process.stdout, written), daemon=True)
    reader.start()
    end = time.monotonic() + timeout
    reader.join(timeout)
    if reader.is_alive():
        return None
    try:
        status = process.wait(max(0.0, end - time.monotonic()))
    except subprocess.TimeoutExpired:
        return None
    return Output(status, written.decode("utf-8", "replace"))


def _keep_last(pipe: IO[bytes], written: bytearray) -> None:
    """Read a pipe to its end, and keep its last bytes."""
    with pipe:
        while piece := os.read(pipe.fileno(), MOST_AT_ONCE):
            written += piece
            del written[:-MOST_OUTPUT]


def last_line(text: str) -> str:
    """Return the last line that is not empty, without control characters."""
    lines = [line for line in text.splitlines() if line.strip()]
    return readable(lines[-1].encode()) if lines else "no output"
