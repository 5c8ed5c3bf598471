"""The operator of a world: once called, looks at the fleet every five minutes and resolves unverified machines.

The operator knows which installations belong to the fleet, and uses `force` for an adoption only. At each
look, the operator repeats the requests that were refused. The operator knows of an incident at GitHub, and
does nothing until it is over.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from autoscaler.controller.ports.operator_requests import OperatorRequestRefusedError
from autoscaler.controller.ports.store import StoreError
from autoscaler.model.identifiers import Seconds
from autoscaler.model.operators import OperatorName
from autoscaler.model.unverified import UnverifiedMachine
from autoscaler.simulator.world.instances import STRANGER
from autoscaler.simulator.world.process import ControllerProcess, ProcessGoneError
from autoscaler.simulator.world.virtual_time import unowned

LOOKS_EVERY: Seconds = 300.0

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

    def start(self) -> None:
        """Begin to look at the fleet, now and repeatedly."""
        if self._task is None:
            self._task = unowned(self._look_repeatedly())

    def stop(self) -> None:
        """Stop looking, because the world ends."""
        if self._task is not None:
            self._task.cancel()

    async def _look_repeatedly(self) -> None:
        while True:
            # If the controller is being restarted, the operator looks again later.
            with suppress(ProcessGoneError, StoreError):
                if not self._incident():
                    await self._look()
            await asyncio.sleep(LOOKS_EVERY)

    async def _look(self) -> None:
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
