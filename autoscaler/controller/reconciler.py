"""The control loop: applies events, plans, and carries out the plan, whenever something changed."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import structlog

from autoscaler.controller.effects import Effects
from autoscaler.controller.executor import Executor
from autoscaler.controller.intake.deliveries import Intake
from autoscaler.controller.journal import Journal
from autoscaler.controller.ports.clock import Clock
from autoscaler.controller.ports.store import StoreError
from autoscaler.controller.ports.telemetry import Telemetry
from autoscaler.controller.reporting.fleet_counts import fleet_counts
from autoscaler.controller.reporting.wait_reasons import WaitRecorder
from autoscaler.ledger.jobs.reports import is_any_overdue
from autoscaler.model.events import TimePassed
from autoscaler.model.identifiers import Instant, Seconds, SkuName
from autoscaler.model.plan import Plan
from autoscaler.planner.planner import plan

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Pace:
    """How long changes are batched before a pass plans, in real seconds.

    After a change, a pass waits for a window of `batch_idle` seconds in which fewer than `stream_jobs`
    jobs were queued. If a window brought `burst_jobs` jobs or more, it waits for `burst_windows` such
    windows in a row, because a burst does not arrive evenly. It waits no longer than `batch_max`.
    (`batch_idle` and `batch_max` are Karpenter's names.) A pass also runs every `tick` if nothing
    changed. Planning takes at most `planning_share` of the process's time.
    """

    batch_idle: Seconds = 0.035
    stream_jobs: int = 2
    burst_jobs: int = 8
    burst_windows: int = 4
    batch_max: Seconds = 1.0
    tick: Seconds = 1.0
    planning_share: float = 0.25


LARGE_FLEET = 1000
"""From this number of jobs and machines on, other tasks run between the parts of a pass."""

REMIND_AFTER: Seconds = 60.0
"""Minimum time between two log lines of the same reason."""


class Reconciler:
    """Runs until asked to stop, or until the store fails."""

    def __init__(
        self,
        journal: Journal,
        intake: Intake,
        executor: Executor,
        run_tasks: Callable[[], Coroutine[Any, Any, None]],
        effects: Effects,
        telemetry: Telemetry,
        clock: Clock,
        pacing: Clock,
        pace: Pace,
    ) -> None:
        """`run_tasks` runs the tasks beside the loop until it is cancelled. Its end ends the loop."""
        self._journal = journal
        self._wait_recorder = WaitRecorder(journal)
        self._intake = intake
        self._executor = executor
        self._run_tasks = run_tasks
        self._effects = effects
        self._telemetry = telemetry
        self._clock = clock
        self._pacing = pacing
        self._pace = pace
        self._stopping = asyncio.Event()
        self.plan = Plan()
        self._reported: dict[tuple[SkuName, str, str], Instant] = {}
        self._due = asyncio.Event()
        self._planning_took: Seconds = 0.0
        self.turned_at: Instant | None = None

    @property
    def stopping(self) -> bool:
        """Whether `stop` was called."""
        return self._stopping.is_set()

    def stop(self) -> None:
        """Ask the loop to finish the current pass and return."""
        self._stopping.set()
        self._due.set()
        self._journal.changed.set()

    async def run(self) -> None:
        """Run passes until stopped, then apply the remaining deliveries. Raises StoreError."""
        beside = asyncio.get_running_loop().create_task(self._run_tasks())
        beside.add_done_callback(lambda _: self.stop())
        try:
            while not self._stopping.is_set():
                await self.turn()
                async with self._woken_at(self.plan.again_at):
                    await self._wait_for_batch()
        finally:
            beside.cancel()
            await asyncio.wait({beside})
            # Read even if the loop itself failed, because the store fails for both.
            error = None if beside.cancelled() else beside.exception()
        if error is not None:
            raise _cause(error)
        await self._intake.apply_waiting()

    async def turn(self) -> None:
        """Run one pass: apply events, advance the time, plan, carry out. Raises StoreError."""
        began = self._pacing.now()
        self._journal.changed.clear()
        await self._intake.apply_waiting()
        await self._advance_time()
        planned = self._pacing.now()
        self.plan = plan(self._journal.fleet())
        self._planning_took = self._pacing.now() - planned
        await self._executor.carry_out(self.plan)
        self._wait_recorder.note(self.plan.waiting)
        await self._journal.commit()
        await self._yield_to_tasks()
        self._log_waiting()
        state = self._journal.ledger.state
        self._telemetry.fleet(fleet_counts(state, self._clock.now(), self.plan.waiting))
        self.turned_at = self._pacing.now()
        self._telemetry.reconciliation(self.turned_at - began)

    async def _advance_time(self) -> None:
        """Advance the ledger's time until no expired job is left as demand for the plan."""
        now = self._clock.now()
        self._journal.note(TimePassed(now))
        while is_any_overdue(self._journal.ledger.state, now):
            await asyncio.sleep(0)
            self._journal.note(TimePassed(now))
        await self._yield_to_tasks()

    async def _yield_to_tasks(self) -> None:
        """Let other tasks run, if the fleet is so large that each part of a pass takes long.

        Never between a plan and its recording, because the plan is about an unchanged fleet.
        """
        state = self._journal.ledger.state
        if len(state.jobs) + len(state.machines) >= LARGE_FLEET:
            await asyncio.sleep(0)

    async def drain(self, patience: Seconds) -> None:
        """Wait up to `patience` seconds for effects, cancel the rest, and commit. Raises StoreError."""
        cancelled = await self._effects.drain(patience)
        if cancelled:
            _log.warning("requests_cancelled", count=cancelled)
        await self._journal.commit()

    def _log_waiting(self) -> None:
        """Log each new reason why no machine is launched for waiting jobs."""
        reasons = {
            (demand.skus[0], run.code, run.message)
            for demand, runs in self.plan.waiting.items()
            for run in runs
            if run.blocked
        }
        now = self._pacing.now()
        for sku, code, message in sorted(reasons - self._reported.keys()):
            _log.warning("jobs_wait", sku=sku, code=code, reason=message)
        recent = {key: at for key, at in self._reported.items() if now - at < REMIND_AFTER}
        self._reported = recent | dict.fromkeys(reasons, now)

    async def _wait_for_batch(self) -> None:
        """Wait for a change or the next tick, then until the batch of changes is complete (see `Pace`)."""
        if not await _set_within(self._journal.changed, self._pace.tick):
            return
        pace = self._pace
        until = self._pacing.now() + pace.batch_max
        window = max(pace.batch_idle, self._planning_took * (1.0 / pace.planning_share - 1.0))
        idle_windows, windows_needed = 0, 1
        while idle_windows < windows_needed and self._pacing.now() < until:
            began, queued_before = self._pacing.now(), self._intake.jobs_queued
            if await _set_within(self._due, window):
                return
            # Applied in small pieces, because new deliveries wait for the store behind each write.
            await self._intake.apply_waiting()
            # After the system's clock was set back, `now` does not change for a while.
            elapsed = max(self._pacing.now() - began, window)
            queued = (self._intake.jobs_queued - queued_before) * pace.batch_idle / elapsed
            idle_windows = idle_windows + 1 if queued < pace.stream_jobs else 0
            windows_needed = pace.burst_windows if queued >= pace.burst_jobs else windows_needed

    @asynccontextmanager
    async def _woken_at(self, moment: Instant | None) -> AsyncIterator[None]:
        """Wake the loop at this moment of the controller's clock, unless something wakes it earlier."""
        self._due.clear()
        if self._stopping.is_set():
            self._due.set()
        alarm = asyncio.get_running_loop().create_task(self._wake_at(moment))
        try:
            yield
        finally:
            alarm.cancel()
            await asyncio.wait({alarm})

    async def _wake_at(self, moment: Instant | None) -> None:
        if moment is not None:
            await self._clock.sleep(max(0.0, moment - self._clock.now()))
            self._due.set()
            self._journal.changed.set()


async def _set_within(event: asyncio.Event, seconds: Seconds) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True


def failure_of(error: BaseException) -> str:
    """Return one line for an operator about the error that stopped the loop."""
    error = _cause(error)
    if isinstance(error, StoreError):
        return f"the store failed: {error}"
    return f"{type(error).__name__}: {error}"


def _cause(error: BaseException) -> BaseException:
    """Return the first error of a group."""
    return _cause(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error
