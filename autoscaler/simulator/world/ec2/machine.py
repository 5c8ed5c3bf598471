"""A machine from power on to power off. Its agent follows the protocol of docs/bootstrap.md."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from autoscaler.controller.machines.bootstrap import BootstrapService
from autoscaler.controller.ports.bootstrap import (
    Assigned,
    BootstrapRefusedError,
    NotKnownYetError,
)
from autoscaler.controller.ports.store import StoreError
from autoscaler.model.catalogue import Access
from autoscaler.model.identifiers import Instant, MachineId, ProviderName, RunnerName, Seconds
from autoscaler.model.machines.machine import ExitReason
from autoscaler.simulator.world.controller.process import ControllerProcess, ProcessGoneError
from autoscaler.simulator.world.fault_schedule import FaultSchedule
from autoscaler.simulator.world.github.actions import Actions
from autoscaler.simulator.world.github.port import secret_of
from autoscaler.simulator.world.instances import MachineActivity
from autoscaler.simulator.world.invariants import Invariants
from autoscaler.simulator.world.jobs import Registration
from autoscaler.simulator.world.schedule import FaultKind

T = TypeVar("T")
PATIENCE: Seconds = 900.0
HEARTBEAT: Seconds = 60.0
UNUSED: Seconds = 120.0
REPORTS_FOR: Seconds = 300.0
HEALTH_CHECKS_TAKE: Seconds = 10.0
RUNNER_VERSION = "2.338.0"
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
class BootPlan:
    """How a machine boots. `boot` None: its agent never starts."""

    provider: ProviderName
    boot: Seconds | None
    health_checks_pass: bool = True


class SimulatedMachine:
    """`live` returns when the machine powers itself off, and raises TakenError when it is taken."""

    def __init__(
        self, surroundings: Surroundings, activity: MachineActivity, boot_plan: BootPlan
    ) -> None:
        self._surroundings = surroundings
        self._activity = activity
        self._boot_plan = boot_plan
        self._nonce = f"SECRET-NONCE-{activity.instance.id}"
        self._id = MachineId("")
        self._answered_at: Instant = 0.0

    async def live(self) -> None:
        """Run the agent until the machine powers off. Raises TakenError."""
        await self._activity.instance.started()
        if self._boot_plan.boot is None:
            await asyncio.Event().wait()
            return
        await asyncio.sleep(self._boot_plan.boot)
        self._answered_at = self._surroundings.now()
        try:
            while True:
                try:
                    await self._serve()
                except BootstrapRefusedError as refused:
                    if refused.status in _POWER_OFF:
                        raise PoweredOffError(refused.reason) from refused
                    await self._pause(5.0)
        except PoweredOffError:
            self._activity.ready_since = None
            self._activity.listens = False

    async def stop(self) -> None:
        """Stop the operating system. An agent with a runner reports this once, without a retry."""
        registration = self._activity.registration
        if registration is None or not self._activity.listens:
            return
        if registration.busy_at is None and not registration.over.is_set():
            self._surroundings.actions.suspend(registration)
        detail, reason = "the machine is being shut down", ExitReason.STOPPED
        await self._try(lambda d: d.exited(self._id, self._nonce, detail, reason))

    async def _serve(self) -> None:
        activity, proof, provider = (
            self._activity,
            self._activity.instance.proof(),
            self._boot_plan.provider,
        )
        answer = await self._ask(lambda d: d.attest(provider, proof, self._nonce, 1, "1.0"))
        activity.machine = self._id = answer.machine
        passes = self._boot_plan.health_checks_pass and activity.instance.host_passes_checks
        await asyncio.sleep(HEALTH_CHECKS_TAKE)
        activity.health_checks_passed = passes
        await self._ask(
            lambda d: d.health_checks(self._id, self._nonce, passes, "disk", RUNNER_VERSION)
        )
        if not passes:
            await asyncio.sleep(HEARTBEAT)
            raise PoweredOffError("its health checks failed")
        while True:
            answered = await self._ask(lambda d: d.poll(self._id, self._nonce, POLL))
            if isinstance(answered, Assigned):
                activity.ready_since = None
                self._surroundings.invariants.assigned(activity, answered.jit_config)
                await self._run(answered)
            activity.ready_since = activity.ready_since or self._surroundings.now()

    async def _run(self, assigned: Assigned) -> None:
        activity, name = self._activity, assigned.runner
        registration = self._surroundings.actions.registrations.get(name)
        if registration is None or assigned.jit_config != secret_of(registration):
            raise PoweredOffError("another runner's configuration")
        await self._ask(lambda d: d.acknowledge(self._id, self._nonce, name))
        activity.registration, activity.listens = registration, True
        registration.access = _access(assigned.job)
        activity.instance.assigned()
        await asyncio.sleep(LISTENER_STARTS)
        if self._surroundings.fault_schedule.hit(FaultKind.TAKEN_STARTING):
            raise TakenError
        if registration.deleted_at is None:
            self._surroundings.actions.listen(registration)
            await self._until_over(registration)
            await asyncio.sleep(RUNNER_LEAVES)
        activity.listens = False
        await self._report(name)
        await asyncio.sleep(POWER_OFF)
        raise PoweredOffError("its runner exited")

    async def _until_over(self, registration: Registration) -> None:
        asked_at = self._surroundings.now()
        while not registration.over.is_set():
            try:
                async with asyncio.timeout(HEARTBEAT):
                    await registration.over.wait()
            except TimeoutError:
                await self._try(lambda d: d.heartbeat(self._id, self._nonce))
            if registration.busy_at is not None:
                continue
            if self._surroundings.fault_schedule.hit(FaultKind.IDLE_REMOVED):
                self._surroundings.actions.delete(registration)
            if registration.deleted_at is not None:
                return
            if self._surroundings.now() - asked_at >= UNUSED:
                asked_at = self._surroundings.now()
                if await self._release(registration):
                    return

    async def _release(self, registration: Registration) -> bool:
        if not await self._try(lambda d: d.may_release(self._id, self._nonce)):
            return False
        if registration.busy_at is not None:
            return False
        self._surroundings.actions.suspend(registration)
        status = await self._try(lambda d: d.release(self._id, self._nonce))
        if status in (204, 404):
            return True
        self._surroundings.actions.resume(registration)
        return False

    async def _report(self, name: RunnerName) -> None:
        try:
            async with asyncio.timeout(REPORTS_FOR):
                self._answered_at = self._surroundings.now()
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
                self._answered_at = self._surroundings.now()
                return answer
            await self._pause(wait)

    async def _try(self, request: Callable[[BootstrapService], Coroutine[Any, Any, T]]) -> T | None:
        """Send a request once: after the acknowledgement the agent needs no answer."""
        try:
            return await self._once(request)
        except (ProcessGoneError, StoreError, NotKnownYetError, BootstrapRefusedError):
            return None

    async def _once(self, request: Callable[[BootstrapService], Coroutine[Any, Any, T]]) -> T:
        if self._surroundings.now() < self._activity.cut_off_until:
            raise ProcessGoneError
        process = self._surroundings.process()
        return await process.serve(request(process.ready.bootstrap))

    async def _pause(self, seconds: Seconds) -> None:
        if self._surroundings.now() - self._answered_at > PATIENCE:
            raise PoweredOffError("the controller does not answer")
        await asyncio.sleep(seconds)


def _access(job: Mapping[str, Any]) -> Access:
    """Return what the agent's job hook decides by (`agent.job_access`): without any, it refuses all jobs."""
    sent = job.get("access")
    if sent is None:
        return Access(repositories=(), forks=False)
    return Access(
        repositories=tuple(sent["repositories"]),
        forks=sent["forks"],
        public_repositories=sent["public_repositories"],
        branches=tuple(sent["branches"]),
    )
