"""A replica of the controller on its host: it follows, leads, and follows again, as `autoscaler serve` does."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import replace
from typing import Any

from autoscaler.controller.intake.deliveries import Parse
from autoscaler.controller.ports.clock import Clock
from autoscaler.controller.ports.replicas import Replica
from autoscaler.controller.ports.store import Delivery, StoreError
from autoscaler.controller.replicas.following import Follower, FollowerIntake
from autoscaler.controller.replicas.leading import FOLLOW_AFTER, RELEASE_WITHIN, is_of_store
from autoscaler.model.identifiers import Seconds
from autoscaler.simulator.world.controller.process import (
    ControllerProcess,
    ProcessGoneError,
    answered,
)
from autoscaler.simulator.world.controller.shared_store import SharedMemoryStore
from autoscaler.simulator.world.processes import OWNER, Process, Tasks
from autoscaler.simulator.world.schedule import REPOSITORY
from autoscaler.simulator.world.virtual_time import VirtualLoop

GITHUB_WAITS: Seconds = 10.0
"""How long GitHub waits for the answer to a webhook (GitHub documentation, "Best practices for webhooks")."""

AGENT_WAITS: Seconds = 60.0
"""How long an agent waits for the answer to a poll, the longest one."""


class SimulatedReplica:
    """One replica: one process after another.

    `make` creates the controller of a process that leads, and `clock` the clock of one that follows. Both get
    the replica's number.
    """

    def __init__(
        self,
        number: int,
        store: SharedMemoryStore,
        make: Callable[[Process, int], ControllerProcess],
        clock: Callable[[int], Clock],
        parse: Parse,
    ) -> None:
        self.number = number
        self.controller: ControllerProcess | None = None
        self.follower: Follower | None = None
        self.process = Process()
        self.running: asyncio.Task[None] | None = None
        self._store = store
        self._make = make
        self._new_clock = clock
        self._clock = clock(number)
        self._parse = parse
        self._intake: FollowerIntake | None = None
        self._tasks = Tasks(self.process)
        self._stopping = False

    @property
    def name(self) -> str:
        """Return its name, which is in the lease."""
        return f"replica-{self.number}"

    @property
    def leads(self) -> bool:
        """Return whether it has a controller, and is sure to lead."""
        controller = self.controller
        ready = controller is not None and not controller.gone and controller.controller is not None
        return ready and self.process.leads() > 0.0

    def start(self) -> None:
        """Start a new process."""
        self.process, self._stopping = Process(), False
        self._tasks = Tasks(self.process)
        self._clock = self._new_clock(self.number)
        self.running = self._own(self._live())

    async def deliver(self, delivery: Delivery) -> None:
        """Deliver a webhook to this replica. Raises ProcessGoneError, StoreError."""
        controller = self.controller
        accept = controller.ready.intake.accept if controller is not None else None
        if accept is None and self._intake is not None:
            accept = self._intake.accept
        if accept is None or self.process.crash_point.reached.is_set():
            raise ProcessGoneError
        accepting = accept

        async def answer() -> bool | None:
            return await accepting(replace(delivery, received_at=self._clock.now()))

        await answered(self._own(answer()), GITHUB_WAITS)
        self._store.acknowledged.add(delivery.key)

    def stop(self) -> None:
        """Send SIGTERM."""
        self._stopping = True
        controller = self.controller
        if controller is not None and controller.controller is not None:
            controller.controller.reconciler.stop()
        elif self.running is not None:
            self.running.cancel()

    async def kill(self) -> None:
        """Send SIGKILL, to a process that is paused, too."""
        self.process.crash_point.reached.set()
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        loop.resume(self.process)
        if self.controller is not None:
            await self.controller.kill()
        while tasks := self._tasks.unfinished():
            for task in tasks:
                task.cancel()
            await asyncio.sleep(
                0
            )  # and again: a task that closes something calls a port, and blocks
        self.controller = self.follower = self._intake = None

    async def _live(self) -> None:
        while not self._stopping:
            await self._store.open(self.number)
            try:
                await self._follow()
                await self._lead()
            finally:
                self.controller = None
                await self._store.close()
            await asyncio.sleep(FOLLOW_AFTER)

    async def _follow(self) -> None:
        self._intake = FollowerIntake(self._store, self._parse, _is_covered)
        replica = Replica(self.name, f"http://{self.name}")
        self.follower = Follower(self._store, replica, self._clock)
        try:
            await self.follower.until_leading()
        finally:
            self.follower = self._intake = None

    async def _lead(self) -> None:
        """Run a controller until the leadership ends. Raises what ends the process."""
        controller = self.controller = self._make(self.process, self.number)
        controller.answers_within = AGENT_WAITS
        controller.start()
        assert controller.running is not None
        try:
            await controller.running
        except StoreError:
            pass  # this ends the leadership alone
        finally:
            with suppress(StoreError):
                await controller.finish(RELEASE_WITHIN)
        if not all(map(is_of_store, controller.crashes)):
            raise BaseExceptionGroup("a background task failed", controller.crashes)

    def _own(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        token = OWNER.set(self._tasks)
        try:
            return asyncio.get_running_loop().create_task(work)
        finally:
            OWNER.reset(token)


def _is_covered(repository: str) -> bool:
    return repository.partition("/")[0] == REPOSITORY.partition("/")[0]
