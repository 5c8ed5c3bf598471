"""The runner on Linux."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import threading

from autoscaler.agent.host import Host
from autoscaler.agent.limits import MOST_BODY, MOST_LOG_AT_ONCE
from autoscaler.agent.runner.account import (
    runner_account,
    runner_program,
    search_path,
    with_node_driver,
)
from autoscaler.agent.runner.listener_log import Lines, LogReader, SignReader, Signs
from autoscaler.agent.runner.processes import descendants, process_name
from autoscaler.agent.runner.supervision import DEPRECATED_EXIT_VARIABLE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# The kernel spares the agent when memory runs out (the unit's OOMScoreAdjust), but not the runner.
UNSPARED = '{ echo 0 > /proc/self/oom_score_adj; } 2> /dev/null; exec "$0"'


class LinuxRunner:
    """run.sh and all processes below it, in a session of its own, as an unprivileged user."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._log = LogReader(os.path.join(host.runner_directory, "_diag"))
        self._signs = SignReader()
        self._listening = True
        self._printed = {False: Lines(), True: Lines()}
        self._process: subprocess.Popen[bytes] | None = None
        self._suspended: list[int] = []
        self._lock = threading.Lock()

    def start(self, jit_config: str, hooks: dict[str, str]) -> None:
        """Start run.sh. The JIT configuration is in its environment, because every user can read argv.

        `hooks` are the variables that name the job hooks.
        """
        identity, variables = runner_account(self._host)
        environment = {
            **os.environ,
            **variables,
            **search_path(self._host.runner_directory),
            **hooks,
            DEPRECATED_EXIT_VARIABLE: "1",
            "ACTIONS_RUNNER_INPUT_JITCONFIG": jit_config,
        }
        self._process = subprocess.Popen(  # noqa: S603 - a fixed program of the image
            ["/bin/sh", "-c", UNSPARED, runner_program(self._host)],
            cwd=self._host.runner_directory,
            # The image's `.path` replaces PATH.
            env=with_node_driver(environment, self._host.root),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            umask=0o022,
            **identity,
        )
        for pipe in self._open_pipes(self._process):
            os.set_blocking(pipe.fileno(), False)

    def read_signs(self, wait: float) -> Signs:
        """Wait at most `wait` real seconds for the exit or for output; return the signs."""
        process = self._started()
        self._drain(process, wait)
        # The last output was written before the exit, so it is read after the exit was seen.
        exited = process.poll()
        if exited is not None:
            self._drain_rest(process)
        worker = self.worker_runs()
        if worker:
            self._listening = False
        elif self._listening:
            for piece in self._log.pieces():
                self._signs.feed(piece)
        return self._signs.take(exited, worker)

    def worker_runs(self) -> bool:
        """Return whether a Runner.Worker is among the runner's descendants."""
        return any(process_name(pid) == "Runner.Worker" for pid in descendants(self._started().pid))

    def suspend(self) -> None:
        """Stop every process of the runner (SIGSTOP): it can neither take a job nor start a worker."""
        root = self._started().pid
        with self._lock:
            while True:
                fresh = [pid for pid in (root, *descendants(root)) if pid not in self._suspended]
                if not fresh:
                    return
                for pid in fresh:
                    _signal(pid, signal.SIGSTOP)
                    self._suspended.append(pid)

    def resume(self) -> None:
        """Continue the stopped processes (SIGCONT). Idempotent; may be called from another thread."""
        with self._lock:
            for pid in reversed(self._suspended):
                _signal(pid, signal.SIGCONT)
            self._suspended.clear()

    @property
    def suspended(self) -> bool:
        """Return whether the runner is still stopped."""
        return bool(self._suspended)

    def interrupt(self) -> bool:
        """Send SIGTERM to the listener, which cancels its job within 30 seconds (Runner_Unloading).

        Returns False where no listener runs: run.sh may not have started it yet. run.sh itself forwards
        signals only with RUNNER_MANUALLY_TRAP_SIG.
        """
        self.resume()
        below = descendants(self._started().pid)
        listeners = [pid for pid in below if process_name(pid) == "Runner.Listener"]
        for pid in listeners:
            _signal(pid, signal.SIGTERM)
        return bool(listeners)

    def kill(self) -> None:
        """Kill all processes below run.sh, and run.sh."""
        process = self._started()
        for pid in descendants(process.pid):
            _signal(pid, signal.SIGKILL)
        process.kill()
        _wait(process, 5.0)

    def _started(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "not started"
        return self._process

    def _drain(self, process: subprocess.Popen[bytes], wait: float) -> None:
        """Read run.sh's output: a full pipe would block it."""
        pipes = self._open_pipes(process)
        if not pipes:
            _wait(process, wait)
            return
        for pipe in select.select(pipes, [], [], wait)[0]:
            piece = pipe.read(MOST_BODY)
            if piece == b"":
                pipe.close()
            elif piece and self._listening:
                errors = pipe is process.stderr
                self._signs.feed(self._printed[errors].whole(piece), errors=errors)
        if not self._open_pipes(process):
            _wait(process, wait)

    def _drain_rest(self, process: subprocess.Popen[bytes]) -> None:
        """Read the rest of the output after the exit, up to a bound, and its incomplete lines."""
        for _ in range(MOST_LOG_AT_ONCE // MOST_BODY):
            self._drain(process, 0.0)
        if self._listening:
            for errors, lines in self._printed.items():
                self._signs.feed(lines.last(), errors=errors)

    @staticmethod
    def _open_pipes(process: subprocess.Popen[bytes]) -> list[Any]:
        return [pipe for pipe in (process.stdout, process.stderr) if pipe and not pipe.closed]


def _wait(process: subprocess.Popen[bytes], wait: float) -> None:
    try:
        process.wait(wait)
    except subprocess.TimeoutExpired:
        return


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return
