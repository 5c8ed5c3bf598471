"""Plays many seeds on several processes, and counts the results."""

import gc
import logging
import signal
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from multiprocessing import active_children, get_context
from types import FrameType

import structlog

from autoscaler.simulator.world.schedule import FaultKind
from tests.chaos.trial import Outcome, play
from tests.chaos.worlds import Worlds

_AT_ONCE = 4
"""Seeds in one task of a worker process, if all seeds are played."""

_IN_FLIGHT = 3
"""Tasks queued for each worker process, so that none waits for another one."""

_STOPS = (signal.SIGINT, signal.SIGTERM)

INTERRUPTED = 130
"""The exit status of a command after one of these signals."""


@dataclass
class Figures:
    """The counted results of all seeds so far."""

    seeds: int = 0
    events: int = 0
    jobs: int = 0
    hits: Counter[FaultKind] = field(default_factory=Counter)
    seeds_with: Counter[FaultKind] = field(default_factory=Counter)
    bad: list[Outcome] = field(default_factory=list)

    def count(self, outcome: Outcome) -> None:
        """Count the result of one seed."""
        self.seeds += 1
        self.events += outcome.events
        self.jobs += outcome.jobs
        self.hits.update(outcome.hits)
        self.seeds_with.update(kind for kind, times in outcome.hits.items() if times)
        if outcome.violations:
            self.bad.append(outcome)

    def summary(self) -> str:
        """Return a readable summary."""
        violations = sum(len(outcome.violations) for outcome in self.bad)
        lines = [
            f"{self.seeds:,} seeds, {self.jobs:,} jobs, {self.events:,} events, "
            f"{sum(self.hits.values()):,} faults, {violations} violations in {len(self.bad)} seeds"
        ]
        lines += [
            f"  {kind:20} {self.hits[kind]:9,} times in {self.seeds_with[kind]:6,} seeds"
            for kind in sorted(self.hits)
            if self.hits[kind]
        ]
        return "\n".join(lines)


def campaign(
    seeds: Sequence[int],
    figures: Figures,
    processes: int = 2,
    each: Callable[[Outcome], None] = lambda _: None,
    until_found: bool = False,
    worlds: Worlds = Worlds.EC2,
) -> None:
    """Play the seeds, count each in `figures`, and call `each` with its outcome.

    Stops at the first violation if `until_found`. After an exception such as Ctrl-C, the figures are
    those of the seeds played so far.
    """
    for outcome in _outcomes(seeds, processes, 1 if until_found else _AT_ONCE, worlds):
        figures.count(outcome)
        each(outcome)
        if until_found and figures.bad:
            break


def _outcomes(
    seeds: Sequence[int], processes: int, at_once: int, worlds: Worlds
) -> Iterator[Outcome]:
    # In their order: which seed is the first to find something is the same each time.
    others = set(active_children())
    context = get_context("spawn")
    pool = ProcessPoolExecutor(processes, mp_context=context, initializer=set_up_process)
    left = iter([seeds[n : n + at_once] for n in range(0, len(seeds), at_once)])
    waiting: deque[Future[list[Outcome]]] = deque()
    try:
        while True:
            for some in islice(left, _IN_FLIGHT * processes - len(waiting)):
                waiting.append(pool.submit(play_some, some, worlds))
            if not waiting:
                return
            yield from waiting.popleft().result()
    finally:
        # Do not wait for seeds that are being played.
        for worker in set(active_children()) - others:
            worker.kill()
        pool.shutdown(cancel_futures=True)


def play_some(seeds: Sequence[int], worlds: Worlds) -> list[Outcome]:
    """Play a few seeds in this process."""
    outcomes = [play(worlds.schedule(seed)) for seed in seeds]
    gc.collect()
    return outcomes


def set_up_process() -> None:
    """Ignore Ctrl-C, which the parent handles, and turn off logging."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    quiet()
    # A run's garbage is small, and is collected after it. The modules are none.
    gc.disable()
    gc.collect()
    gc.freeze()


def stop_by_signals() -> None:
    """Raise KeyboardInterrupt on SIGTERM and SIGINT, even if the shell ignores SIGINT.

    Only the first signal counts, so that a second one does not interrupt the cleanup.
    """
    for number in _STOPS:
        signal.signal(number, _stop)


def _stop(number: int, frame: FrameType | None) -> None:
    del number, frame
    for other in _STOPS:
        signal.signal(other, signal.SIG_IGN)
    raise KeyboardInterrupt


def quiet() -> None:
    """Log nothing below critical."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
