"""Starts one program of the cluster, and ends exactly that program."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

from lab.ending import end

GUARD = Path(__file__).with_name("guard.sh")


class ProgramFailedError(Exception):
    """A program ended by itself. The message has the end of its output."""


class RunningProgram:
    """One program with its output in a file. It also ends when this process ends."""

    def __init__(self, command: Sequence[str], log: Path) -> None:
        self._command = list(command)
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the program."""
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(  # noqa: S603
                ["/bin/sh", str(GUARD), *self._command],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                # Ctrl-C is for the parent, which ends this program afterwards.
                start_new_session=True,
            )

    def check(self) -> None:
        """Raise ProgramFailedError if the program has ended."""
        if self._process is not None and self._process.poll() is not None:
            tail = self._log.read_text(errors="replace")[-2000:]
            raise ProgramFailedError(f"{self._command[0]} ended:\n{tail}")

    def kill(self) -> None:
        """End the program at once, and wait until it has ended. Idempotent."""
        process, self._process = self._process, None
        if process is not None:
            end(process)
