"""Reads the messages of the runner's listener: its log files, and its output."""

from __future__ import annotations

import collections
import os
import stat

from autoscaler.agent.limits import (
    MOST_ERROR,
    MOST_LINE,
    MOST_LOG_AT_ONCE,
    MOST_LOG_FILES,
    MOST_WORD,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

# What actions/runner writes to its log or terminal (src/Runner.Listener, 2.336.0): Runner.cs,
# MessageListener.cs, BrokerMessageListener.cs, JobDispatcher.cs.
MESSAGE_SIGNS = (
    b"Acknowledging runner request",
    b"' received from session '",
    b"Received job message",
    b"Running job: ",
)
FINISHED_SIGNS = (b" completed with result: ",)
REFUSED_SIGNS = (
    b"registration has been deleted from the server",
    b"OAuth token has been revoked",
)
# The broker's message for `RunnerVersionTooOld` (BrokerHttpClient.cs; actions/runner#3381, #4613).
DEPRECATED_SIGNS = (b"is deprecated and cannot receive messages",)
# Runner.cs, BrokerMessageListener.cs: whatever the listener retried has succeeded.
CONNECTED_SIGNS = (b"Listening for Jobs", b"Runner reconnected.")
ERROR_SIGN = b"WRITE ERROR: "
"""Terminal.cs writes this to the log before every line that it writes to standard error."""

Signs = collections.namedtuple(
    "Signs",
    ("exited", "worker", "message", "finished", "refused", "deprecated", "error"),
    defaults=(False, ""),
)
"""An observation of the runner: its exit status or None, and the signs since the last one.

`error` is the listener's last error line before any job.
"""


def readable(line: bytes) -> str:
    """Return a program's error line: printable, shortened, without long words that may be secrets.

    A JIT configuration is a word of thousands of characters.
    """
    text = line[:MOST_LINE].decode("utf-8", "replace")
    words = "".join(char if char.isprintable() else " " for char in text).split()
    return " ".join(word if len(word) <= MOST_WORD else "[...]" for word in words)[:MOST_ERROR]


class Lines:
    """Splits a stream into lines, so that each phrase is seen completely and once."""

    def __init__(self) -> None:
        self._rest = b""

    def whole(self, piece: bytes) -> bytes:
        """Return the lines that this piece completes; long lines are cut."""
        first, end, more = piece.partition(b"\n")
        rest = (self._rest + first)[:MOST_LINE]
        if not end:
            self._rest = rest
            return b""
        lines, last, more = more.rpartition(b"\n")
        self._rest = more[:MOST_LINE]
        return rest + end + lines + last

    def last(self) -> bytes:
        """Return the last, incomplete line."""
        rest, self._rest = self._rest, b""
        return rest


class LogReader:
    """Reads what the listener has added to its log files since the agent started it.

    The files belong to the runner's user. So they are read without following links, without blocking,
    and in bounded pieces, and only fixed phrases count.
    """

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._offsets: dict[str, int] = {}
        self._lines: dict[str, Lines] = {}
        for name, size in self._files():
            self._offsets[name] = size

    def pieces(self) -> Iterator[bytes]:
        """Return the new complete lines of every file."""
        for name, _size in self._files():
            piece = self._read(name)
            if piece:
                yield self._lines.setdefault(name, Lines()).whole(piece)

    def _files(self) -> list[tuple[str, int]]:
        found: list[tuple[str, int]] = []
        try:
            with os.scandir(self._directory) as entries:
                for entry in entries:
                    if entry.name.startswith("Runner_") and entry.is_file(follow_symlinks=False):
                        found.append((entry.name, entry.stat(follow_symlinks=False).st_size))
                    if len(found) >= MOST_LOG_FILES:
                        break
        except OSError:
            return found
        return found

    def _read(self, name: str) -> bytes:
        offset = self._offsets.get(name, 0)
        flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
        try:
            descriptor = os.open(os.path.join(self._directory, name), flags)
        except OSError:
            return b""
        with os.fdopen(descriptor, "rb", buffering=0) as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return b""
            file.seek(offset)
            piece = file.read(MOST_LOG_AT_ONCE) or b""
        self._offsets[name] = offset + len(piece)
        return piece


class SignReader:
    """Finds signs in the listener's messages, until a worker was seen: a job's output never counts."""

    def __init__(self) -> None:
        self._message = self._finished = self._refused = self._deprecated = False
        self._job = False
        self._error = ""

    def feed(self, text: bytes, *, errors: bool = False) -> None:
        """Find the phrases in complete lines: one sign per line, because a job's name may contain others.

        `errors`: the lines are from standard error. No line is kept after the first sign of a job.
        """
        for line in text.splitlines():
            if any(sign in line for sign in MESSAGE_SIGNS):
                self._message = self._job = True
            elif any(sign in line for sign in FINISHED_SIGNS):
                self._finished = self._job = True
            else:
                self._refused = self._refused or any(sign in line for sign in REFUSED_SIGNS)
                self._deprecated = self._deprecated or any(
                    sign in line for sign in DEPRECATED_SIGNS
                )
                self._keep_error(line, errors)

    def take(self, exited: int | None, worker: bool) -> Signs:
        """Return the signs since the last call."""
        seen = (self._message, self._finished, self._refused, self._deprecated)
        self._message = self._finished = self._refused = self._deprecated = False
        return Signs(exited, worker, *seen, self._error)

    def _keep_error(self, line: bytes, errors: bool) -> None:
        if any(sign in line for sign in CONNECTED_SIGNS):
            self._error = ""
        _, found, logged = line.partition(ERROR_SIGN)
        if (errors or found) and not self._job:
            self._error = readable(logged if found else line) or self._error
