"""A program and everything that it starts, which can be ended together."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

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
