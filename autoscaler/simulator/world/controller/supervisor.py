"""Starts one controller process after another, as a host's service manager does."""

import asyncio
from collections.abc import Callable

from autoscaler.controller.ports.store import Delivery, StoreError
from autoscaler.controller.system import ClockSetBackError
from autoscaler.model.identifiers import InstallationId, Installations, Seconds
from autoscaler.simulator.world.controller.process import ControllerProcess, ProcessGoneError
from autoscaler.simulator.world.controller.store import Backup, MemoryStore
from autoscaler.simulator.world.fault_schedule import FaultSchedule
from autoscaler.simulator.world.processes import Process
from autoscaler.simulator.world.schedule import Fault

DOWN: Seconds = 5.0
"""Seconds after which a process that ended is started again."""

MENDING: Seconds = 30.0
"""Seconds that it takes to replace the store with a backup or an empty one."""


class Supervisor:
    """`make` creates a controller on the world's ports, in the given process.

    `rewound` is called after the store was replaced with a backup or an empty one.
    """

    def __init__(
        self,
        make: Callable[[Process], ControllerProcess],
        store: MemoryStore,
        fault_schedule: FaultSchedule,
        failed: Callable[[str], None],
        rewound: Callable[[], None],
    ) -> None:
        self.process: ControllerProcess | None = None
        self.rewound_at: Seconds | None = None
        self._make = make
        self._store = store
        self._fault_schedule = fault_schedule
        self._failed = failed
        self._rewound = rewound
        self._down_until: Seconds = 0.0
        self._backups: dict[Fault, Backup] = {}
        self._restoring: Fault | None = None
        self._lost = 0

    def current(self) -> ControllerProcess:
        """Return the current or last process. Raises ProcessGoneError before the first one."""
        if self.process is None:
            raise ProcessGoneError
        return self.process

    async def deliver(self, delivery: Delivery) -> None:
        """Deliver a webhook to the process. Raises ProcessGoneError, StoreError."""
        process = self.current()

        async def accept() -> bool | None:
            return await process.ready.intake.accept(delivery)

        await process.serve(accept())

    async def run(self) -> None:
        """Run processes until cancelled, which kills the last one."""
        try:
            while True:
                await self._run_one()
                await asyncio.sleep(max(DOWN, self._down_until - self._fault_schedule.time))
        finally:
            if self.process is not None:
                await self.process.kill()
                self._check_failures(self.process)

    def crash(self, fault: Fault, calls: int) -> None:
        """Kill the process after `calls` more calls of its ports. The next one starts when the fault ends."""
        if self.process is not None:
            self.process.crash_point.arm(calls)
            self._down_until = fault.until
            self._fault_schedule.hits[fault.kind] += 1

    def back_up(self, fault: Fault) -> None:
        """Back up the store, for this fault to restore."""
        self._backups[fault] = self._store.snapshot()

    def restore(self, fault: Fault) -> None:
        """Kill the process. The next one finds the fault's backup, or an empty store if there is none."""
        self._restoring = fault
        down_until = self._down_until
        self.crash(fault, 1)
        self._down_until = max(down_until, fault.at + MENDING)

    async def _run_one(self) -> None:
        if self._restoring is not None:
            self._store.restore(self._backups.get(self._restoring) or self._empty_store())
            self._restoring = None
            self.rewound_at = self._fault_schedule.time
            self._rewound()
        process = self.process = self._make(Process())
        process.start()
        assert process.running is not None
        gone = asyncio.ensure_future(process.crash_point.reached.wait())
        try:
            await asyncio.wait({process.running, gone}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
        await process.kill()
        self._check_failures(process)

    def _empty_store(self) -> Backup:
        """Return an empty store, which has a new installation ID."""
        self._lost += 1
        return Backup(installations=Installations(InstallationId(f"{self._lost:08x}")))

    def _check_failures(self, process: ControllerProcess) -> None:
        errors, running = list(process.crashes), process.running
        if running is not None and running.done() and not running.cancelled():
            error = running.exception()
            errors += [error] if error is not None else []
        for error in errors:
            if not _is_expected(error):
                self._failed(f"the controller failed: {type(error).__name__}: {error}")


def _is_expected(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return all(_is_expected(one) for one in error.exceptions)
    return isinstance(error, StoreError | ClockSetBackError)
