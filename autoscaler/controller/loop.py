"""The control loop: take facts in, plan, carry out; again whenever something changed.

It owns the order of start and stop. It never decides what is planned.
"""

import asyncio
from dataclasses import dataclass

import structlog

from autoscaler.controller.effects import Effects
from autoscaler.controller.executor import Executor
from autoscaler.controller.intake import Intake
from autoscaler.controller.journal import Journal
from autoscaler.controller.ports.clock import Clock
from autoscaler.controller.ports.store import StoreError
from autoscaler.controller.ports.telemetry import Telemetry
from autoscaler.controller.reconciler import Reconciler
from autoscaler.controller.signals import fleet_counts
from autoscaler.model.events import TimePassed
from autoscaler.model.identifiers import Instant, Seconds, SkuName
from autoscaler.model.plan import Plan
from autoscaler.planner.planner import plan

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Pace:
    """How changes are gathered before planning, in real seconds.

    Planning waits for `quiet` without a change, `longest` at most (as Karpenter batches its
    launches), and happens every `tick` even if nothing changed.
    """

    quiet: Seconds = 0.035
    longest: Seconds = 1.0
    tick: Seconds = 1.0


class Loop:
    """Runs until asked to stop, or until the store fails."""

    def __init__(
        self,
        journal: Journal,
        intake: Intake,
        executor: Executor,
        reconciler: Reconciler,
        effects: Effects,
        telemetry: Telemetry,
        clock: Clock,
        pacing: Clock,
        pace: Pace,
    ) -> None:
        self._journal = journal
        self._intake = intake
        self._executor = executor
        self._reconciler = reconciler
        self._effects = effects
        self._telemetry = telemetry
        self._clock = clock
        self._pacing = pacing
        self._pace = pace
        self._stopping = asyncio.Event()
        self.plan = Plan()
        self._told: set[tuple[SkuName, str]] = set()
        self.turned_at: Instant | None = None

    def stop(self) -> None:
        """Ask the loop to finish its turn and return."""
        self._stopping.set()
        self._journal.changed.set()

    async def run(self) -> None:
        """Turn until stopped, then let what is in flight finish. Raises StoreError."""
        watching = asyncio.get_running_loop().create_task(self._reconciler.run())
        watching.add_done_callback(lambda _: self.stop())
        try:
            while not self._stopping.is_set():
                await self.turn()
                await self._gather()
        finally:
            watching.cancel()
            await asyncio.wait({watching})
        if not watching.cancelled() and (error := watching.exception()) is not None:
            raise _cause(error)
        await self._intake.apply_waiting()

    async def turn(self) -> None:
        """One pass: facts in, time forward, plan, carry out. Raises StoreError."""
        began = self._pacing.now()
        self._journal.changed.clear()
        await self._intake.apply_waiting()
        self._journal.note(TimePassed(self._clock.now()))
        self.plan = plan(self._journal.fleet())
        self._tell_waiting()
        await self._executor.carry_out(self.plan)
        await self._journal.commit()
        self._telemetry.fleet(fleet_counts(self._journal.ledger.state))
        self.turned_at = self._pacing.now()
        self._telemetry.loop_pass(self.turned_at - began)

    async def drain(self, patience: Seconds) -> None:
        """Finish what is in flight, and make the last of it durable. Raises StoreError."""
        cut_off = await self._effects.drain(patience)
        if cut_off:
            _log.warning("effects_cut_off", count=cut_off)
        await self._journal.commit()

    def _tell_waiting(self) -> None:
        """Log why nothing is on its way for jobs, whenever the reasons change."""
        reasons = {
            (demand.skus[0], run.reason)
            for demand, runs in self.plan.waiting.items()
            for run in runs
            if run.blocked
        }
        for sku, reason in sorted(reasons - self._told):
            _log.warning("jobs_wait", sku=sku, reason=reason)
        self._told = reasons

    async def _gather(self) -> None:
        """Wait for a change or the next tick, then for the changes that come with it."""
        if not await self._changed_within(self._pace.tick):
            return
        until = self._pacing.now() + self._pace.longest
        while not self._stopping.is_set() and self._pacing.now() < until:
            self._journal.changed.clear()
            if not await self._changed_within(self._pace.quiet):
                return

    async def _changed_within(self, seconds: Seconds) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._journal.changed.wait()
        except TimeoutError:
            return False
        return True


def failure_of(error: BaseException) -> str:
    """One line for an operator about what ended the loop."""
    error = _cause(error)
    if isinstance(error, StoreError):
        return f"the store failed: {error}"
    return f"{type(error).__name__}: {error}"


def _cause(error: BaseException) -> BaseException:
    """The first of a group's errors: one is enough to end the loop."""
    return _cause(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error
