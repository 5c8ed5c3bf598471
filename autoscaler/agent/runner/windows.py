"""The runner on Windows."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

from autoscaler.agent.host import Host
from autoscaler.agent.limits import MOST_PROCESSES
from autoscaler.agent.runner.listener_log import LogReader, SignReader, Signs
from autoscaler.agent.runner.supervision import DEPRECATED_EXIT_VARIABLE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

if sys.platform == "win32":
    import ctypes
    import ctypes.wintypes as wt

    class _Entry(ctypes.Structure):
        """PROCESSENTRY32W (tlhelp32.h)."""

        _fields_ = (
            ("size", wt.DWORD),
            ("usage", wt.DWORD),
            ("pid", wt.DWORD),
            ("heap", ctypes.c_size_t),
            ("module", wt.DWORD),
            ("threads", wt.DWORD),
            ("parent", wt.DWORD),
            ("priority", wt.LONG),
            ("flags", wt.DWORD),
            ("name", wt.WCHAR * 260),
        )

    def _processes() -> dict[int, str]:
        """Return the name of every process's program by process id."""
        kernel = ctypes.windll.kernel32
        kernel.CreateToolhelp32Snapshot.restype = wt.HANDLE
        snapshot = wt.HANDLE(kernel.CreateToolhelp32Snapshot(0x2, 0))
        found: dict[int, str] = {}
        entry = _Entry(size=ctypes.sizeof(_Entry))
        more = kernel.Process32FirstW(snapshot, ctypes.byref(entry))
        while more and len(found) < MOST_PROCESSES:
            found[entry.pid] = entry.name
            more = kernel.Process32NextW(snapshot, ctypes.byref(entry))
        kernel.CloseHandle(snapshot)
        return found

    def _with_process(pid: int, access: int, action: Callable[[Any], object]) -> None:
        kernel = ctypes.windll.kernel32
        kernel.OpenProcess.restype = wt.HANDLE
        handle = kernel.OpenProcess(access, False, pid)
        if handle:
            action(wt.HANDLE(handle))
            kernel.CloseHandle(wt.HANDLE(handle))

    TASK_TIMEOUT = 60.0
    """Real seconds for Task Scheduler to accept the request: it does not wait for the task."""

    TASK_BEGINS = 120.0
    """Seconds for the task to show a listener."""

    LISTENER_RESTARTS = 15.0
    """Seconds for run.cmd to start its listener again, which takes it 5 (run-helper.cmd.template)."""

    class WindowsRunner:
        """run.cmd, started by a scheduled task that the image registered for its runner account.

        The task's action is `powershell -File C:\\ProgramData\\runner-agent\\handover\\launch.ps1`.
        The image creates that folder: the runner's account may change it, other users may not read it.
        """

        PROGRAMS = ("Runner.Listener.exe", "Runner.Worker.exe")

        def __init__(self, host: Host) -> None:
            self._host = host
            self._log = LogReader(os.path.join(host.runner_directory, "_diag"))
            self._signs = SignReader()
            self._listening = True
            self._suspended: list[int] = []
            # The timer of a release resumes the listener from a thread of its own.
            self._lock = threading.Lock()
            self._begun = False
            self._missing = 0.0

        def start(self, jit_config: str, hooks: dict[str, str]) -> None:
            """Pass the JIT configuration in a file that the launcher reads and deletes.

            `hooks` are the variables that name the job hooks.
            """
            folder = "C:\\ProgramData\\runner-agent\\handover"
            with open(os.path.join(folder, "jit"), "w", encoding="ascii") as file:
                file.write(jit_config)
            named = "".join(f"$env:{name} = '{path}'\n" for name, path in hooks.items())
            launcher = (
                f"$f = '{folder}\\jit'\n"
                "$env:ACTIONS_RUNNER_INPUT_JITCONFIG = (Get-Content -Raw $f).Trim()\n"
                f"$env:{DEPRECATED_EXIT_VARIABLE} = '1'\n{named}"
                "Remove-Item -Force $f\n"
                f"Set-Location '{self._host.runner_directory}'\n"
                "& .\\run.cmd\n"
            )
            with open(os.path.join(folder, "launch.ps1"), "w", encoding="ascii") as file:
                file.write(launcher)
            subprocess.run(  # noqa: S603 - the name comes from the host file
                ["schtasks", "/run", "/tn", self._host.runner_task],  # noqa: S607
                check=True,
                stdin=subprocess.DEVNULL,
                timeout=TASK_TIMEOUT,
            )

        def read_signs(self, wait: float) -> Signs:
            """Sleep `wait` real seconds, then look. The exit status of a task's program is not known."""
            time.sleep(wait)
            names = _processes().values()
            worker = self.PROGRAMS[1] in names
            self._listening = self._listening and not worker
            if self._listening:
                for piece in self._log.pieces():
                    self._signs.feed(piece)
            return self._signs.take(self._exit(self.PROGRAMS[0] in names or worker, wait), worker)

        def _exit(self, alive: bool, wait: float) -> int | None:
            """run.cmd restarts its listener within seconds, and the task takes a while to begin."""
            self._begun = self._begun or alive
            self._missing = 0.0 if alive else self._missing + wait * self._host.time_scale
            limit = LISTENER_RESTARTS if self._begun else TASK_BEGINS
            return 0 if self._missing > limit else None

        def worker_runs(self) -> bool:
            """Return whether a worker is among the machine's processes."""
            return self.PROGRAMS[1] in _processes().values()

        def suspend(self) -> None:
            """Suspend the listener (PROCESS_SUSPEND_RESUME)."""
            with self._lock:
                for pid, name in _processes().items():
                    if name == self.PROGRAMS[0]:
                        _with_process(pid, 0x800, ctypes.windll.ntdll.NtSuspendProcess)
                        self._suspended.append(pid)

        def resume(self) -> None:
            """Continue the suspended listener. Idempotent; may be called from another thread."""
            with self._lock:
                for pid in self._suspended:
                    _with_process(pid, 0x800, ctypes.windll.ntdll.NtResumeProcess)
                self._suspended.clear()

        @property
        def suspended(self) -> bool:
            """Return whether the listener is still suspended."""
            return bool(self._suspended)

        def interrupt(self) -> bool:
            """Return True: Windows itself signals the shutdown to every process."""
            return True

        def kill(self) -> None:
            """Kill the listener and the worker (PROCESS_TERMINATE)."""
            for pid, name in _processes().items():
                if name in self.PROGRAMS:
                    _with_process(pid, 0x1, lambda h: ctypes.windll.kernel32.TerminateProcess(h, 1))
