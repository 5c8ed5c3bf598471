"""Stand-ins for docker, podman and buildah, and the commands of `autoscaler images` that start them."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.patience import PATIENCE
from tests.python_programs import first_line

MAIN = "from autoscaler.cli import main; main()"

_RECORDS = """import json, sys
json.dump(sys.argv, open({calls!r}, "w"))
sys.exit({status})
"""

_CLEANS_UP = """import os, signal, sys, time
def clean_up(number, frame):
    os.write(1, b"cleaning up\\n")
    time.sleep(1)  # longer than subprocess.run lets a program live after Ctrl-C
    os.write(1, b"cleaned up\\n")
    sys.exit(130)
signal.signal(signal.SIGINT, clean_up)
signal.signal(signal.SIGTERM, clean_up)
os.write(1, b"running\\n")
while True:
    signal.pause()
"""


def recording_engine(folder: Path, name: str, status: int) -> Path:
    """Create an engine that writes its arguments to a file, and exits with a status. Return the file."""
    calls = folder / "calls"
    _create(folder / name, _RECORDS.format(calls=str(calls), status=status))
    return calls


def slow_engine(folder: Path, name: str) -> None:
    """Create an engine that runs until a signal, and takes a second to clean up."""
    _create(folder / name, _CLEANS_UP)


def _create(program: Path, text: str) -> None:
    program.write_text(first_line() + text)
    program.chmod(0o755)


@contextmanager
def started(folder: Path, *words: str | Path) -> Iterator[subprocess.Popen[str]]:
    """Start a command of `autoscaler images` that finds the programs of a folder, in its own process group.

    Kills what is left of the group at the end.
    """
    process = subprocess.Popen(
        [sys.executable, "-c", MAIN, "images", *map(str, words)],
        env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def end_of(process: subprocess.Popen[str]) -> tuple[str, str, int]:
    """Wait for the end of a command. Return the rest of its output, its errors and its exit status."""
    output, errors = process.communicate(timeout=PATIENCE)
    return output, errors, process.returncode
