"""A machine from power on to power off. Its agent follows the protocol of docs/bootstrap.md."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from autoscaler.controller.bootstrap import BootstrapService
from autoscaler.controller.ports.bootstrap import (
    Assigned,
    BootstrapRefusedError,
    NotKnownYetError,
)
from autoscaler.controller.ports.store import StoreError
from autoscaler.model.identifiers import Instant, MachineId, ProviderName, RunnerName, Seconds
from autoscaler.model.machines import ExitReason
from autoscaler.simulator.world.actions import Actions
from autoscaler.simulator.world.fault_schedule import FaultSchedule
from autoscaler.simulator.world.github import secret_of
from autoscaler.simulator.world.instances import Seat
from autoscaler.simulator.world.invariants import Invariants
from autoscaler.simulator.world.jobs import Registration
from autoscaler.simulator.world.process import ControllerProcess, ProcessGoneError
from autoscaler.simulator.world.schedule import FaultKind

T = TypeVar("T")
PATIENCE: Seconds = 900.0
HEARTBEAT: Seconds = 60.0
UNUSED: Seconds = 120.0
REPORTS_FOR: Seconds = 300.0
HEALTH_CHECKS_TAKE: Seconds = 10.0
LISTENER_STARTS: Seconds = 3.0
RUNNER_LEAVES: Seconds = 8.0
POWER_OFF: Seconds = 4.0
POLL: Seconds = 50.0
_POWER_OFF = frozenset({403, 410, 426})


class PoweredOffError(Exception):
    """The machine powers itself off."""


class TakenError(Exception):
    """The provider takes the machine back now."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a machine interacts with. `process` raises ProcessGoneError while no controller runs."""

    process: Callable[[], ControllerProcess]
    actions: Actions
    fault_schedule: FaultSchedule
    invariants: Invariants
    now: Callable[[], Instant]


@dataclass(frozen=True, slots=True)
class Manner:
    """How a machine boots. `boot` None: its agent never starts."""

    provider: ProviderName
    boot: Seconds | None
    health_checks_pass: bool = True


class SimulatedMachine:
    """`live` returns when the machine powers itself off, and raises TakenError when it is taken."""

    def __init__(self, around: Surroundings, seat: Seat, manner: Manner) -> None:
        self._around = around
        self._seat = seat
        self._manner = manner
        self._nonce = f"SECRET-NONCE-{seat.instance.id}"
        self._id = MachineId("")
        self._heard: Instant = 0.0

    async def live(self) -> None:
        """Run the agent until the machine powers off. Raises TakenError."""
        await self._seat.instance.started()
        if self._manner.boot is None:
            await asyncio.Event().wait()
            return
        await asyncio.sleep(self._manner.boot)
        self._heard = self._around.now()
        try:
            while True:
                try:
                    await self._serve()
                except BootstrapRefusedError as refused:
                    if refused.status in _POWER_OFF:
                        raise PoweredOffError(refused.reason) from refused
                    await self._pause(5.0)
        except PoweredOffError:
            self._seat.ready_since = None
            self._seat.listens = False

    async def stop(self) -> None:
        """Stop the operating system: an agent with a runner reports it once, perhaps in vain."""
        registration = self._seat.registration
        if registration is None or not self._seat.listens:
            return
        if registration.busy_at is None and not registration.over.is_set():
            self._around.actions.freeze(registration)
        detail, reason = "the machine is being shut down", ExitReason.STOPPED
        await self._try(lambda d: d.exited(self._id, self._nonce, detail, reason))

    async def _serve(self) -> None:
        seat, proof, provider = self._seat, self._seat.instance.proof(), self._manner.provider
        answer = await self._ask(lambda d: d.attest(provider, proof, self._nonce, 1, "1.0"))
        seat.machine = self._id = answer.machine
        passes = self._manner.health_checks_pass
        await asyncio.sleep(HEALTH_CHECKS_TAKE)
        seat.health_checks_passed = passes
        await self._ask(lambda d: d.health_checks(self._id, self._nonce, passes, "disk"))
        if not passes:
            await asyncio.sleep(HEARTBEAT)
            raise PoweredOffError("its health checks failed")
        while True:
            answered = await self._ask(lambda d: d.poll(self._id, self._nonce, POLL))
            if isinstance(answered, Assigned):
                seat.ready_since = None
                self._around.invariants.assigned(seat, answered.jit_config)
                await self._run(answered)
            seat.ready_since = seat.ready_since or self._around.now()

    async def _run(self, assigned: Assigned) -> None:
        seat, name = self._seat, assigned.runner
        registration = self._around.actions.registrations.get(name)
        if registration is None or assigned.jit_config != secret_of(registration):
            raise PoweredOffError("another runner's configuration")
        await self._ask(lambda d: d.acknowledge(self._id, self._nonce, name))
        seat.registration, seat.listens = registration, True
        seat.instance.assigned()
        await asyncio.sleep(LISTENER_STARTS)
        if self._around.fault_schedule.hit(FaultKind.TAKEN_STARTING):
            raise TakenError
        if registration.deleted_at is None:
            self._around.actions.listen(registration)
            await self._until_over(registration)
            await asyncio.sleep(RUNNER_LEAVES)
        seat.listens = False
        await self._report(name)
        await asyncio.sleep(POWER_OFF)
        raise PoweredOffError("its runner exited")

    async def _until_over(self, registration: Registration) -> None:
        asked_at = self._around.now()
        while not registration.over.is_set():
            try:
                async with asyncio.timeout(HEARTBEAT):
                    await registration.over.wait()
            except TimeoutError:
                await self._try(lambda d: d.heartbeat(self._id, self._nonce))
            if registration.busy_at is not None:
                continue
            if self._around.fault_schedule.hit(FaultKind.IDLE_REMOVED):
                self._around.actions.delete(registration)
            if registration.deleted_at is not None:
                return
            if self._around.now() - asked_at >= UNUSED:
                asked_at = self._around.now()
                if await self._leaves_unused(registration):
                    return

    async def _leaves_unused(self, registration: Registration) -> bool:
        if not await self._try(lambda d: d.may_release(self._id, self._nonce)):
            return False
        if registration.busy_at is not None:
            return False
        self._around.actions.freeze(registration)
        status = await self._try(lambda d: d.release(self._id, self._nonce))
        if status in (204, 404):
            return True
        self._around.actions.thaw(registration)
        return False

    async def _report(self, name: RunnerName) -> None:
        try:
            async with asyncio.timeout(REPORTS_FOR):
                self._heard = self._around.now()
                await self._ask(lambda d: d.exited(self._id, self._nonce, f"{name} left"))
        except (TimeoutError, BootstrapRefusedError):
            return

    async def _ask(self, request: Callable[[BootstrapService], Coroutine[Any, Any, T]]) -> T:
        """Send a request until there is an answer. Raises BootstrapRefusedError, PoweredOffError."""
        while True:
            wait = 2.0
            try:
                answer = await self._once(request)
            except (ProcessGoneError, StoreError):
                pass
            except NotKnownYetError as later:
                wait = later.retry_after
            else:
                self._heard = self._around.now()
                return answer
            await self._pause(wait)

    async def _try(self, request: Callable[[BootstrapService], Coroutine[Any, Any, T]]) -> T | None:
        """Send a request once: after the acknowledgement the agent needs no answer."""
        try:
            return await self._once(request)
        except (ProcessGoneError, StoreError, NotKnownYetError, BootstrapRefusedError):
            return None

    async def _once(self, request: Callable[[BootstrapService], Coroutine[Any, Any, T]]) -> T:
        if self._around.now() < self._seat.cut_off_until:
            raise ProcessGoneError
        process = self._around.process()
        return await process.serve(request(process.ready.bootstrap))

    async def _pause(self, seconds: Seconds) -> None:
        if self._around.now() - self._heard > PATIENCE:
            raise PoweredOffError("the controller does not answer")
        await asyncio.sleep(seconds)
