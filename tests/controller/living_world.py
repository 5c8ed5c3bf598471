"""Machines, and a GitHub with jobs, that continue while controllers start and stop.

Agents call the bootstrap service as docs/bootstrap.md describes. GitHub gives jobs to idle runners, and sends
webhooks about them. Deliveries fail while no controller runs. Nothing here belongs to a controller's process.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from autoscaler.controller.ports.bootstrap import (
    Assigned,
    BootstrapRefusedError,
    NotKnownYetError,
)
from autoscaler.controller.ports.store import Delivery, StoreError
from autoscaler.model.events import RunnersListed
from autoscaler.model.identifiers import Instant, JobId, MachineId, RunnerName, Seconds
from autoscaler.model.jobs import JobState
from autoscaler.model.launch_requests import LaunchRequest
from autoscaler.model.runners import Runner
from tests.controller.controllers import Controller, ProcessGoneError, World, delivery, parse
from tests.controller.fakes_github import Registration
from tests.controller.fakes_provider import Instance, proof_of
from tests.controller.virtual_time import OWNER
from tests.planner.fleets import EAST

T = TypeVar("T")

BOOT: Seconds = 20.0
WORK: Seconds = 60.0
PATIENCE: Seconds = 900.0
UNUSED: Seconds = 120.0
DOWN: Seconds = 5.0
LISTED_EVERY: Seconds = 60.0


class PoweredOffError(Exception):
    """The machine powered off."""


@dataclass
class Work:
    """A job at GitHub. `ran_on` has the runners that ran it."""

    id: int
    queued_at: Instant
    state: JobState = JobState.QUEUED
    ran_on: list[RunnerName] = field(default_factory=list)


class LivingWorld:
    """Jobs, machines and runners that act on their own while controllers are started and killed."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.controller: Controller | None = None
        self.crashes: list[BaseException] = []
        self.work: dict[int, Work] = {}
        self.failed: list[Delivery] = []
        self.recorded_late: list[str] = []
        self._deliveries = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._finished: dict[RunnerName, asyncio.Event] = {}
        world.east.on_instance = self._switch_on
        world.east.on_launch = self._check_call
        world.github.on_register = self._check_name
        world.github.redeliver = self._redeliver

    # --- controllers --------------------------------------------------------------------------

    async def run(self, crash_points: Sequence[int | None], limit: Seconds = 3 * 3600.0) -> None:
        """Run controllers with these crash points, one after the other, until nothing is left to do.

        Raises TimeoutError if something is left after `limit` seconds.
        """
        async with asyncio.timeout(limit):
            for length in crash_points:
                self.controller = controller = Controller(self.world, length)
                controller.start()
                while not controller.crash_point.reached.is_set() and not self.quiet:
                    await asyncio.sleep(1.0)
                    self._look_for_crashes(controller)
                    self._list_runners(controller)
                if not controller.crash_point.reached.is_set():
                    await controller.stop()
                    self._look_for_crashes(controller)
                    break
                await controller.kill()
                await asyncio.sleep(DOWN)
        for task in tuple(self._tasks):
            task.cancel()

    @property
    def process(self) -> Controller:
        """Return the current or last controller. Raises ProcessGoneError before the first one."""
        if self.controller is None:
            raise ProcessGoneError
        return self.controller

    @property
    def quiet(self) -> bool:
        """Return True if every job is completed and no machine, registration or launch request is left."""
        if self.controller is None or not self.controller.resumed or self.failed:
            return False
        state = self.controller.state
        return (
            all(work.state is JobState.COMPLETED for work in self.work.values())
            and not self.world.east.running
            and not self.world.github.registrations
            and not state.open_launch_requests
            and not state.machines_used
            and not any(j.state is not JobState.COMPLETED for j in state.jobs.values())
        )

    def _list_runners(self, controller: Controller) -> None:
        """Apply GitHub's list of runners, as often as a controller reads it after a start."""
        now, state = self.world.clock.now(), controller.state
        if controller.resumed and now - state.evidence.runners_listed_at >= LISTED_EVERY:
            at_work = tuple(r.name for r in self.world.github.registrations.values() if r.online)
            for scope in state.catalogue.scopes:
                controller.journal.note(RunnersListed(now, scope.key, now, at_work))

    def _look_for_crashes(self, controller: Controller) -> None:
        self.crashes.extend(e for e in controller.crashes if e not in self.crashes)
        running = controller.running
        if running is not None and running.done() and not controller.crash_point.reached.is_set():
            running.result()

    # --- jobs ---------------------------------------------------------------------------------

    def queue(self, job: int) -> None:
        """Queue a job, as after a push."""
        self.work[job] = Work(job, self.world.clock.now())
        self._send(self.work[job])
        self._give_out()

    def cancel(self, job: int) -> None:
        """Cancel a job that has not started."""
        work = self.work[job]
        if work.state is JobState.QUEUED:
            work.state = JobState.COMPLETED
            self._send(work)

    def _give_out(self) -> None:
        for registration in tuple(self.world.github.registrations.values()):
            waiting = [w for w in self.work.values() if w.state is JobState.QUEUED]
            if registration.online and not registration.busy and waiting:
                self._spawn(self._do(waiting[0], registration))

    async def _do(self, work: Work, registration: Registration) -> None:
        if work.state is not JobState.QUEUED or registration.busy:
            return
        registration.busy, work.state = True, JobState.IN_PROGRESS
        work.ran_on.append(registration.name)
        self._send(work)
        await asyncio.sleep(WORK)
        work.state = JobState.COMPLETED
        self.world.github.registrations.pop(registration.name, None)
        self._send(work)
        self._finished[registration.name].set()

    def _send(self, work: Work) -> None:
        self._deliveries += 1
        now = self.world.clock.now()
        runner = work.ran_on[-1] if work.ran_on else None
        reported = delivery(
            self._deliveries, work.id, work.state, now, queued_at=work.queued_at, runner=runner
        )
        event = parse(reported.body, now)
        assert event is not None
        self.world.github.jobs[JobId(work.id)] = replace(event, read=True)
        self._spawn(self._deliver(reported))

    async def _deliver(self, reported: Delivery) -> None:
        try:
            await self.process.serve(self.process.intake.accept(reported))
        except (ProcessGoneError, StoreError):
            self.failed.append(reported)

    async def _redeliver(self, since: Instant) -> int:
        again, self.failed = self.failed, []
        for reported in again:
            self._spawn(self._deliver(reported))
        return len(again)

    # --- recorded first, then sent ------------------------------------------------------------

    def _check_call(self, request: str) -> None:
        if not any(call.body == request for call in self.world.store.of_kind(LaunchRequest)):
            self.recorded_late.append(request)

    def _check_name(self, name: RunnerName) -> None:
        if not isinstance(self.world.store.records.get(("runner", name)), Runner):
            self.recorded_late.append(name)

    # --- machines -----------------------------------------------------------------------------

    def _switch_on(self, instance: Instance) -> None:
        self._spawn(_Machine(self, instance).life())

    def listen(self, name: RunnerName) -> asyncio.Event:
        """Put a runner online. Return the event that is set when its job is over."""
        registration = self.world.github.registrations.get(name)
        if registration is None:
            raise PoweredOffError("GitHub refuses the registration")
        registration.online = True
        self._finished[name] = asyncio.Event()
        self._give_out()
        return self._finished[name]

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        token = OWNER.set(None)
        try:
            task = asyncio.get_running_loop().create_task(work)
        finally:
            OWNER.reset(token)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class _Machine:
    """One machine with its agent."""

    def __init__(self, living: LivingWorld, instance: Instance) -> None:
        self._living = living
        self._instance = instance
        self._id = MachineId("")
        self._nonce = f"SECRET-NONCE-{instance.id}"
        self._answered_at = living.world.clock.now()

    async def life(self) -> None:
        """Run the machine from power-on to power-off."""
        await asyncio.sleep(BOOT)
        try:
            while True:
                try:
                    await self._serve()
                except BootstrapRefusedError as refused:
                    if refused.status in (403, 410, 426):
                        raise PoweredOffError(refused.reason) from refused
                    await self._pause(5.0)
        except PoweredOffError:
            self._living.world.east.shut_down(self._instance.id)

    async def _serve(self) -> None:
        proof = proof_of(self._instance)
        answer = await self._ask(lambda c: c.bootstrap.attest(EAST, proof, self._nonce, 1, "1.0"))
        self._id = answer.machine
        await self._ask(
            lambda c: c.bootstrap.health_checks(self._id, self._nonce, True, "disk: ok")
        )
        while True:
            assigned = await self._ask(lambda c: c.bootstrap.poll(self._id, self._nonce, 50.0))
            if isinstance(assigned, Assigned):
                await self._run(assigned)

    async def _run(self, assigned: Assigned) -> None:
        if assigned.jit_config != self._living.world.github.secrets[assigned.runner]:
            raise PoweredOffError("another runner's configuration")
        name = assigned.runner
        await self._ask(lambda c: c.bootstrap.acknowledge(self._id, self._nonce, name))
        finished = self._living.listen(name)
        while not finished.is_set():
            try:
                async with asyncio.timeout(UNUSED):
                    await finished.wait()
            except TimeoutError:
                if await self._left_unused(name):
                    break
        await self._report()
        raise PoweredOffError("its runner has left")

    async def _left_unused(self, name: RunnerName) -> bool:
        await self._ask(lambda c: c.bootstrap.heartbeat(self._id, self._nonce))
        registration = self._living.world.github.registrations.get(name)
        if registration is None or registration.busy:
            return registration is None
        if not await self._ask(lambda c: c.bootstrap.may_release(self._id, self._nonce)):
            return False
        status = await self._ask(lambda c: c.bootstrap.release(self._id, self._nonce))
        return status in (204, 404)

    async def _report(self) -> None:
        try:
            async with asyncio.timeout(300.0):
                await self._ask(lambda c: c.bootstrap.exited(self._id, self._nonce, "runner left"))
        except TimeoutError:
            return

    async def _ask(self, request: Callable[[Controller], Coroutine[Any, Any, T]]) -> T:
        while True:
            wait = 2.0
            try:
                controller = self._living.process
                answer = await controller.serve(request(controller))
            except (ProcessGoneError, StoreError):
                pass
            except NotKnownYetError as later:
                wait = later.retry_after
            else:
                self._answered_at = self._living.world.clock.now()
                return answer
            await self._pause(wait)

    async def _pause(self, seconds: Seconds) -> None:
        if self._living.world.clock.now() - self._answered_at > PATIENCE:
            raise PoweredOffError("no controller answers")
        await asyncio.sleep(seconds)
