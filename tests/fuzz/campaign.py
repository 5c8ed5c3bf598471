"""Runs many chunks of one target on several processes and prints its progress.

A process that dies is a finding too; the campaign prints the chunks that it was running.
"""

import json
import logging
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path

import structlog

from tests.fuzz.target import CHUNK, Finding, Target, Tried, try_chunk
from tests.fuzz.targets import TARGETS

PRINT_EVERY = 5.0
"""Seconds between lines of progress."""

_IN_FLIGHT = 3
"""Chunks queued per process, so that no process waits for another."""

_targets: dict[str, Target] = {}


def try_in_process(name: str, seed: int, chunk: int) -> Tried:
    """Run one chunk, in a process that reuses its targets."""
    if name not in _targets:
        _targets[name] = TARGETS[name]()
    return try_chunk(_targets[name], seed, chunk)


@dataclass
class Campaign:
    """Tries the target `name` `count` times from `seed`, and writes findings to `folder`."""

    name: str
    seed: int
    count: int
    folder: Path
    processes: int = 2
    show: Callable[[str], None] = print
    work: Callable[[str, int, int], Tried] = try_in_process
    done: int = 0
    saved: list[Path] = field(default_factory=list)
    died: bool = False

    def run(self) -> bool:
        """Run, and return True if nothing was found. Prints a summary even after an error."""
        began, shown_at = time.monotonic(), 0.0
        try:
            for tried in self._chunks():
                self.done += tried.count
                for finding in tried.findings:
                    self._save(finding, tried.chunk)
                if time.monotonic() - shown_at >= PRINT_EVERY:
                    shown_at = time.monotonic()
                    self.show(self._progress(shown_at - began))
        finally:
            self.show(self._summary(time.monotonic() - began))
        return not self.saved and not self.died

    def _chunks(self) -> Iterator[Tried]:
        pool = ProcessPoolExecutor(
            self.processes, mp_context=get_context("spawn"), initializer=set_up_process
        )
        waiting: dict[Future[Tried], int] = {}
        chunk = given = 0
        try:
            while self.done < self.count:
                while given < self.count and len(waiting) < _IN_FLIGHT * self.processes:
                    future = pool.submit(self.work, self.name, self.seed, chunk)
                    waiting[future] = chunk
                    chunk, given = chunk + 1, given + CHUNK
                for future in wait(waiting, return_when=FIRST_COMPLETED).done:
                    yield future.result()
                    del waiting[future]
        except BrokenProcessPool:
            self.died = True
            for lost in waiting.values():
                self.show(f"a process died in or near: {self._reproducer()} --chunk {lost}")
        finally:
            pool.shutdown(cancel_futures=True)

    def _save(self, finding: Finding, chunk: int) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"{self.name}-{self.seed}-{chunk}-{len(self.saved)}.json"
        path.write_text(json.dumps(finding.input))
        self.saved.append(path)
        self.show(f"FOUND in {self.name}: {finding.why[:1000]}")
        self.show(f"  again: .venv/bin/python -m tests.fuzz {self.name} --input {path}")

    def _reproducer(self) -> str:
        return f".venv/bin/python -m tests.fuzz {self.name} --seed {self.seed}"

    def _progress(self, spent: float) -> str:
        rate = self.done / spent
        left = max(0, self.count - self.done) / rate if rate else 0.0
        return (
            f"{self.name}: {self.done:,} of {self.count:,}, {rate:,.0f}/s, "
            f"{left:,.0f} s left, {len(self.saved)} found"
        )

    def _summary(self, spent: float) -> str:
        rate = self.done / spent if spent else 0.0
        return (
            f"{self.name}: {self.done:,} tried in {spent:,.0f} s ({rate:,.0f}/s), "
            f"{len(self.saved)} found, seed {self.seed}"
        )


def set_up_process() -> None:
    """Leave Ctrl-C to the parent process, and do not log refusals."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    quiet()


def quiet() -> None:
    """Log nothing below critical."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
