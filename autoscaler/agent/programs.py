"""Runs the programs with which an image shows its accelerators."""

from __future__ import annotations

import collections
import contextlib
import subprocess

from autoscaler.agent.listener_log import readable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

KILLED = 1.0
"""Seconds to wait for a killed program."""

Output = collections.namedtuple("Output", ("status", "text"))


class NotInstalled(Exception):  # noqa: N818 - as `TryAgain`
    """The image does not have the program."""


class NoUsableAnswer(Exception):  # noqa: N818
    """A program gave no usable answer; the text says why."""


def run_program(argv: Sequence[str], timeout: float, **how: Any) -> Output:
    """Return the exit status of a program and what it wrote. `timeout`: real seconds; `how`: as for Popen.

    Raises NotInstalled, and NoUsableAnswer after `timeout`. A program that waits for a broken device cannot be
    killed (state D of ps(1)), so this function does not wait for its end, as subprocess.run would.
    """
    try:
        process = subprocess.Popen(  # noqa: S603 - a fixed program of the image
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            **how,
        )
    except FileNotFoundError:
        raise NotInstalled(f"{argv[0]} is not installed") from None
    except OSError as error:
        raise NoUsableAnswer(f"{argv[0]} does not start: {error.strerror}") from error
    try:
        written, _ = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=KILLED)
        raise NoUsableAnswer(f"{argv[0]} did not answer in time") from None
    return Output(process.returncode, written.decode("utf-8", "replace"))


def last_line(text: str) -> str:
    """Return the last line that is not empty, without control characters."""
    lines = [line for line in text.splitlines() if line.strip()]
    return readable(lines[-1].encode()) if lines else "no output"
