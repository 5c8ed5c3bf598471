"""Makes replicas take over from one another in the middle of a push, and measures how long none leads."""

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from lab.controller_process import ControllerProcess
from lab.replicas.controllers import Controllers, Leader, is_follower

_LOOK_EVERY = 0.1


class NoLeaderError(Exception):
    """No replica took over, or one leads that must not. The message is a sentence."""


@dataclass(frozen=True, slots=True)
class Faults:
    """What happens to the leaders. Seconds are real.

    The first is killed once this share of the jobs has started, and starts again after `down` seconds. Once it
    is ready again and `suspended_at` of the jobs have started, the leader of that moment is suspended.
    Another replica must lead within `patience`: a lease lasts 15 s, and a busy host takes long to start.
    """

    killed_at: float = 0.125
    down: float = 8.0
    suspended_at: float = 0.25
    suspended: float = 60.0
    patience: float = 120.0


@dataclass(frozen=True, slots=True)
class Takeover:
    """A change of the leader. `at` is when something happened to the earlier one, since the push.

    For `seconds`, no replica led. Both are real seconds.
    """

    at: float
    why: str
    leader: str
    seconds: float

    def __str__(self) -> str:
        return (
            f"Takeover: {self.at:.0f} s after the push, {self.why}. "
            f"{self.leader.capitalize()} leads, after {self.seconds:.1f} s without a leader."
        )


class Takeovers:
    """Carries out `Faults` while it is open, as an async context manager. Without faults it does nothing.

    `done` are the changes of the leader so far, and `problems` are sentences about what went wrong.
    """

    def __init__(
        self,
        controllers: Controllers,
        faults: Faults | None,
        started: Callable[[], float],
        report: Callable[[str], None],
    ) -> None:
        """`started` returns the share of the jobs that were started. `report` gets a line for each step."""
        self.done: list[Takeover] = []
        self.problems: list[str] = []
        self._controllers = controllers
        self._faults = faults or Faults()
        self._started = started
        self._report = report
        self._now = asyncio.get_running_loop().time
        self._began = self._now()
        self._running = None if faults is None else asyncio.create_task(self._run())

    @property
    def over(self) -> bool:
        """True once all faults are over and every replica is ready, or something went wrong."""
        return self._running is None or self._running.done()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop, whatever is under way, and resume a suspended replica."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait({self._running})

    async def _run(self) -> None:
        try:
            await self._until_started(self._faults.killed_at)
            await self._kill()
            await self._until_started(self._faults.suspended_at)
            await self._suspend()
        except (NoLeaderError, RuntimeError) as error:
            self.problems.append(str(error))

    async def _kill(self) -> None:
        leader = await self._leader()
        killed = leader.process
        await killed.kill()
        self._report(f"SIGKILL ends {killed.name}, which leads")
        again = asyncio.create_task(self._start_later(killed))
        try:
            await self._taken_over(leader, f"SIGKILL ended {killed.name}")
            await again
        finally:
            again.cancel()

    async def _start_later(self, killed: ControllerProcess) -> None:
        await asyncio.sleep(self._faults.down)
        await killed.start()
        await killed.ready()
        self._report(f"{killed.name} is there again")

    async def _suspend(self) -> None:
        leader = await self._leader()
        suspended = leader.process
        suspended.suspend()
        self._report(f"SIGSTOP suspends {suspended.name}, which leads")
        again = asyncio.create_task(self._resume_later(suspended))
        try:
            await self._taken_over(leader, f"SIGSTOP suspended {suspended.name}")
            await again
        finally:
            again.cancel()
            suspended.resume()
        await self._follows(suspended)

    async def _resume_later(self, suspended: ControllerProcess) -> None:
        await asyncio.sleep(self._faults.suspended)
        suspended.resume()
        self._report(f"{suspended.name} goes on, after {self._faults.suspended:g} real seconds")

    async def _taken_over(self, before: Leader, why: str) -> None:
        began = self._now()
        leader = await self._leader(before.epoch)
        seconds = self._now() - began
        self.done.append(Takeover(began - self._began, why, leader.process.name, seconds))
        self._report(
            f"{leader.process.name} leads, after {seconds:.1f} real seconds without a leader"
        )

    async def _leader(self, after: float = -math.inf) -> Leader:
        """Return the replica that leads, once its number is larger. Raises NoLeaderError."""
        until = self._now() + self._faults.patience
        while self._now() < until:
            leader = await self._controllers.leader()
            if leader is not None and leader.epoch > after:
                return leader
            await asyncio.sleep(_LOOK_EVERY)
        raise NoLeaderError(f"no replica led within {self._faults.patience:g} real seconds")

    async def _follows(self, resumed: ControllerProcess) -> None:
        """Wait until a replica follows that led before. Raises NoLeaderError."""
        until = self._now() + self._faults.patience
        while not is_follower(await resumed.metrics()):
            if self._now() > until:
                raise NoLeaderError(
                    f"{resumed.name} still says that it leads, {self._faults.patience:g} s after SIGCONT"
                )
            await asyncio.sleep(_LOOK_EVERY)

    async def _until_started(self, share: float) -> None:
        while self._started() < share:  # noqa: ASYNC110 - the demo's own patience limits it
            await asyncio.sleep(_LOOK_EVERY)
