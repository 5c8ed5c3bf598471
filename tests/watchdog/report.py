"""Describes what a test waits for: its threads, tasks and processes."""

import asyncio
import contextlib
import gc
import linecache
import os
import sys
import sysconfig
import threading
import traceback
from collections.abc import Collection, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from tests.watchdog.children import command, is_running, popen_objects, tree

_LINES = 20
"""The most lines of an output or of a stack."""
_LIBRARIES = sysconfig.get_path("purelib")
_OTHERS = (
    sysconfig.get_path("stdlib"),
    _LIBRARIES,
    "<",
    str(Path(__file__).with_name("plugin.py")),
)
_RUNNERS = ("<frozen", *(f"{_LIBRARIES}/{one}" for one in ("pluggy", "pytest", "_pytest")))

Stack = list[tuple[FrameType, int]]
"""Frames with the line that each runs, the innermost last."""


def write_report(what: str, seconds: float, roots: Collection[int]) -> str:
    """Return what waits where, and the processes that the test started: `roots` and those below them."""
    stacks = [*_threads(), *_tasks()]
    parts = [f"{what} waited for more than {seconds:g} s, at:"]
    parts += [f"  {name}: {_place(stack)}" for name, stack in stacks]
    parts += _processes(roots, [frame for _, stack in stacks for frame, _ in stack])
    for name, stack in stacks:
        parts.append(f"The stack of {name}:")
        shown = [one for one in stack if not one[0].f_code.co_filename.startswith(_RUNNERS)]
        parts += [f"  {_line(*one)}" for one in shown[-_LINES:]]
    return "\n".join(parts)


def _threads() -> Iterator[tuple[str, Stack]]:
    """Yield the stack of each thread, except for idle ones of an executor."""
    names = {one.ident: one.name for one in threading.enumerate()}
    for ident, frame in sys._current_frames().items():
        if ident != threading.get_ident() and frame.f_code.co_name != "_worker":
            name = names.get(ident, str(ident))
            yield f"thread {name}", list(traceback.walk_stack(frame))[::-1]


def _tasks() -> Iterator[tuple[str, Stack]]:
    """Yield what each task awaits. `Task.get_stack` returns the outermost frame only."""
    for one in gc.get_objects():
        if issubclass(type(one), asyncio.Task) and not one.done():
            stack: Stack = []
            awaited: Any = one.get_coro()
            while awaited is not None:
                frame = _attribute(awaited, "frame")
                if frame is not None:
                    stack.append((frame, frame.f_lineno))
                awaited = _attribute(awaited, "await", "yieldfrom")
            if stack:
                yield f"task {one.get_name()}", stack


def _attribute(awaited: Any, *names: str) -> Any:
    """Return an attribute of a coroutine, a generator or an asynchronous generator."""
    every = (
        getattr(awaited, f"{kind}_{name}", None) for kind in ("cr", "gi", "ag") for name in names
    )
    return next((one for one in every if one is not None), None)


def _place(stack: Stack) -> str:
    """Return the innermost line of the tests or the product, and the function in which it waits."""
    own = [one for one in stack if not one[0].f_code.co_filename.startswith(_OTHERS)]
    if not own:
        return _line(*stack[-1])
    called = "" if own[-1] is stack[-1] else f" [in {stack[-1][0].f_code.co_qualname}]"
    return _line(*own[-1]) + called


def _line(frame: FrameType, number: int) -> str:
    code = frame.f_code
    text = linecache.getline(code.co_filename, number).strip()
    return f"{code.co_filename}:{number} in {code.co_name}: {text}"


def _processes(roots: Collection[int], frames: list[FrameType]) -> Iterator[str]:
    known = {one.pid: one for one in popen_objects()}
    running = tree(roots)
    for pid in sorted({one.pid for one in running}):
        yield f"Process {pid} was running, and is killed now: {command(pid)}"
        yield from _indented(
            _written(pid) + (_received(known[pid], frames) if pid in known else b"")
        )
    for pid, one in known.items():
        if not is_running(pid):
            yield _ended(one)
            yield from _indented(_received(one, frames))


def ended_processes() -> dict[int, str]:
    """Describe the processes that this process started and that ended with an error or by a signal."""
    ended = (one for one in popen_objects() if not is_running(one.pid))
    return {one.pid: _ended(one) for one in ended if _status(one) not in (0, None)}


def _ended(process: Any) -> str:
    return f"Process {process.pid} had ended with status {_status(process)}: {_words(process.args)}"


def _status(process: Any) -> int | None:
    """Return the exit status, and let the owner of the process still take it."""
    if process.returncode is None:
        with contextlib.suppress(ChildProcessError):
            found = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if found is not None:
                return found.si_status if found.si_code == os.CLD_EXITED else -found.si_status
    return None if process.returncode is None else int(process.returncode)


def _words(arguments: Any) -> str:
    return " ".join(map(str, arguments)) if isinstance(arguments, (list, tuple)) else str(arguments)


def _indented(output: bytes) -> list[str]:
    return [f"    {line}" for line in output.decode(errors="replace").splitlines()[-_LINES:]]


def _written(pid: int) -> bytes:
    """Return the end of the files that are the stdout and the stderr of a process."""
    found = {}
    for number in (1, 2):
        try:
            path = Path(f"/proc/{pid}/fd/{number}").readlink()
            if path.is_file():
                found[path] = path.read_bytes()[-4000:]
        except OSError:  # It has ended, or its file was deleted.
            continue
    return b"\n".join(found.values())


def _received(process: Any, frames: list[FrameType]) -> bytes:
    """Return what the test has read of a process and has not returned yet.

    `communicate` keeps it in private variables, which may be missing in another version of Python.
    """
    pieces = [
        piece for stream in getattr(process, "_fileobj2output", {}).values() for piece in stream
    ]
    for one in gc.get_objects():
        if issubclass(type(one), asyncio.subprocess.Process) and one.pid == process.pid:
            for stream in (one.stdout, one.stderr):
                for frame in frames:
                    if stream is not None and frame.f_locals.get("self") is stream:
                        pieces += frame.f_locals.get("blocks", [])
                pieces.append(bytes(getattr(stream, "_buffer", b"")))
    return b"".join(pieces)
