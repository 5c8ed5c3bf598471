"""The operator of a world: once called, looks at the fleet every five minutes and resolves unverified machines.

For a fault of holds, the operator pauses, drains or quarantines a part of the fleet, and resumes it at the end.
A hold that a restored backup brings back is resumed at the next look.

The operator knows which installations belong to the fleet, and uses `force` for an adoption only. At each
look, the operator repeats the requests that were refused. The operator knows of an incident at GitHub, and
does nothing until it is over.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from autoscaler.controller.ports.operator_requests import OperatorRequestRefusedError
from autoscaler.controller.ports.store import StoreError
from autoscaler.model.identifiers import Seconds
from autoscaler.model.machines.unverified import UnverifiedMachine
from autoscaler.model.operators import OperatorName, held
from autoscaler.simulator.world.controller.process import ControllerProcess, ProcessGoneError
from autoscaler.simulator.world.instances import STRANGER
from autoscaler.simulator.world.virtual_time import unowned

LOOKS_EVERY: Seconds = 300.0
REPEATS_EVERY: Seconds = 5.0
"""Interval of the tries to send a request while no controller runs, or its store fails."""

_NAME = OperatorName("operator")


class Operator:
    """A simulated operator, who releases unverified machines and adopts lost installations.

    `process` returns the controller. It raises ProcessGoneError while no controller runs. `incident` returns
    whether GitHub's answers are wrong: they would not show which runners are busy.
    """

    def __init__(
        self, process: Callable[[], ControllerProcess], incident: Callable[[], bool]
    ) -> None:
        self.resolved = 0
        self.refused = 0
        self._process = process
        self._incident = incident
        self._task: asyncio.Task[None] | None = None
        self._holding: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Begin to look at the fleet, now and repeatedly."""
        if self._task is None:
            self._task = unowned(self._look_repeatedly())

    def hold(self, number: int, lasts: Seconds, done: Callable[[], None]) -> None:
        """Hold the part of the fleet that a number chooses for so long. Calls `done` if it was accepted."""
        task = unowned(self._hold(number, lasts, done))
        self._holding.add(task)
        task.add_done_callback(self._holding.discard)

    def stop(self) -> None:
        """Stop looking, because the world ends."""
        for task in (self._task, *self._holding):
            if task is not None:
                task.cancel()

    async def _hold(self, number: int, lasts: Seconds, done: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + lasts
        if await self._repeated(lambda: self._begin_hold(number), lambda: loop.time() < ends_at):
            done()
        await asyncio.sleep(max(0.0, ends_at - loop.time()))
        # The last hold ends all: others may be of the same target.
        await self._repeated(self._resume_all, lambda: len(self._holding) == 1)

    async def _repeated(
        self, request: Callable[[], Awaitable[bool]], wanted: Callable[[], bool]
    ) -> bool:
        """Send a request until a controller answers it, while it is wanted. Return its answer, or False."""
        while wanted():
            try:
                return await request()
            except (ProcessGoneError, StoreError):
                await asyncio.sleep(REPEATS_EVERY)
        return False

    async def _begin_hold(self, number: int) -> bool:
        """Return whether the controller accepted the hold. Raises ProcessGoneError, StoreError."""
        process = self._process()
        holds, state = process.ready.operator_holds, process.state
        machines = sorted(machine.id for machine in state.machines.values() if machine.occupies)
        skus = sorted(state.catalogue.skus)
        providers = sorted(
            {o.provider for s in skus for o in state.catalogue.skus[s].launch_options}
        )
        act, names = (
            (holds.pause, ["all"]),
            (holds.pause, skus),
            (holds.drain, skus),
            (holds.drain, providers),
            (holds.drain, machines),
            (holds.quarantine, machines),
        )[number % 6]
        if not names:
            return False
        try:
            await process.serve(act(names[number // 6 % len(names)], by=_NAME))
        except OperatorRequestRefusedError:
            return False
        return True

    async def _resume_all(self) -> bool:
        """Resume everything that is held, and return True. Raises ProcessGoneError, StoreError."""
        process = self._process()
        for _, target, _ in list(held(process.state.operator_holds)):
            # A machine may be gone meanwhile.
            with suppress(OperatorRequestRefusedError):
                await process.serve(process.ready.operator_holds.resume(str(target), by=_NAME))
        return True

    async def _look_repeatedly(self) -> None:
        while True:
            # If the controller is being restarted, the operator looks again later.
            with suppress(ProcessGoneError, StoreError):
                if not self._incident():
                    await self._look()
            await asyncio.sleep(LOOKS_EVERY)

    async def _look(self) -> None:
        if not self._holding:
            await self._resume_all()
        for one in self._process().ready.operator_actions.unverified():
            if one.installation != STRANGER:
                await self._resolve(one)

    async def _resolve(self, one: UnverifiedMachine) -> None:
        process = self._process()
        operator_actions = process.ready.operator_actions
        try:
            if one.machine is None:
                await process.serve(operator_actions.adopt(one.installation, by=_NAME, force=True))
            else:
                await process.serve(operator_actions.terminate(one.machine, by=_NAME))
        except OperatorRequestRefusedError:
            self.refused += 1
        else:
            self.resolved += 1
