"""The simulator's machines and GitHub around one controller process after another, with scripted failures.

A world of the simulator plays faults at times of a schedule. Here a test sets the outcome of each request,
and the call at which each process is killed.
"""

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import replace

from autoscaler.controller.ports.store import Delivery
from autoscaler.model.identifiers import JobId, ProviderMachineId, Seconds
from autoscaler.model.jobs.job import JobState
from autoscaler.model.machines.failures import FailureClass
from autoscaler.simulator.world.controller.process import ControllerProcess, ProcessGoneError
from autoscaler.simulator.world.ec2.machine import Surroundings
from autoscaler.simulator.world.ec2.machines import Machines
from autoscaler.simulator.world.github.lists import SimulatedLists
from autoscaler.simulator.world.github.webhooks import parse
from autoscaler.simulator.world.instances import Instance
from autoscaler.simulator.world.invariants import Invariants
from autoscaler.simulator.world.jobs import SimulatedJob
from autoscaler.simulator.world.schedule import JobArrival
from tests.controller.controllers import PACE, World
from tests.controller.fakes_provider import Instance as Launched
from tests.planner.fleets import EAST

BOOT: Seconds = 20.0
WORK: Seconds = 60.0
DOWN: Seconds = 5.0
LISTS_PER_SECOND = 0.1
"""Lists find what the webhooks of a fleet that never ran cannot. More of them only take longer to simulate."""


class LivingWorld:
    """Jobs, machines and runners that act on their own while controllers are started and killed."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.process: ControllerProcess | None = None
        self.crashes: list[BaseException] = []
        self.invariants = Invariants(world.catalogue, world.store)
        self._github = world.github
        surroundings = Surroundings(
            self._current,
            self._github.actions,
            self._github.fault_schedule,
            self.invariants,
            world.clock.now,
        )
        boot: dict[str, Seconds] = dict.fromkeys(world.catalogue.skus, BOOT)
        self._machines = Machines(surroundings, {EAST: _Host(world)}, {}, boot)
        world.parse = parse
        self._lists = SimulatedLists(
            self._github.actions, self._github.fault_schedule, world.clock.now, LISTS_PER_SECOND
        )
        world.store.on_commit = self.invariants.recorded
        world.east.on_launch = self._check_launch
        self._github.on_register = self.invariants.registering
        self._github.report = self._github.webhooks.send
        self._github.deliver = self._deliver

    # --- controllers --------------------------------------------------------------------------

    async def run(self, crash_points: Sequence[int | None], limit: Seconds = 3 * 3600.0) -> None:
        """Run controllers with these crash points, one after the other, until nothing is left to do.

        Raises TimeoutError if something is left after `limit` seconds.
        """
        async with asyncio.timeout(limit):
            for length in crash_points:
                ports = replace(self.world.ports(), lists=self._lists)
                settings = self.world.settings(PACE)
                process = ControllerProcess(ports, settings, self.world.process(length))
                self.process, crash_point = process, process.crash_point
                process.start()
                while not crash_point.reached.is_set() and not self.quiet:
                    await asyncio.sleep(1.0)
                    self._look_for_crashes(process)
                if not crash_point.reached.is_set():
                    await process.stop()
                    self._look_for_crashes(process)
                    break
                await process.kill()
                await asyncio.sleep(DOWN)
        self._github.webhooks.stop()
        self._machines.stop()

    @property
    def jobs(self) -> dict[JobId, SimulatedJob]:
        """The jobs at GitHub."""
        return self._github.actions.jobs

    @property
    def quiet(self) -> bool:
        """Return True if every job is completed and no machine, registration or launch request is left."""
        if self.process is None or self.process.controller is None:
            return False
        state = self.process.controller.journal.ledger.state
        return (
            self._github.webhooks.settled
            and all(job.state is JobState.COMPLETED for job in self.jobs.values())
            and not self.world.east.running
            and not self._github.registrations
            and not state.open_launch_requests
            and not state.machines_used
            and not any(j.state is not JobState.COMPLETED for j in state.jobs.values())
        )

    def _current(self) -> ControllerProcess:
        if self.process is None:
            raise ProcessGoneError
        return self.process

    def _look_for_crashes(self, process: ControllerProcess) -> None:
        self.crashes.extend(e for e in process.crashes if e not in self.crashes)
        running = process.running
        if running is not None and running.done() and not process.crash_point.reached.is_set():
            running.result()

    def _check_launch(self, request: str) -> None:
        self.invariants.launching(request, json.loads(request), new=0)

    # --- GitHub -------------------------------------------------------------------------------

    def queue(self, job: int) -> None:
        """Queue a job, as after a push."""
        self._github.actions.queue(JobArrival(0.0, job, ("gpu",), WORK))

    def cancel(self, job: int) -> None:
        """Cancel a job that has not started."""
        found = self.jobs[JobId(job)]
        if found.state is JobState.QUEUED:
            self._github.actions.complete(found, "cancelled")

    async def _deliver(self, delivery: Delivery) -> None:
        process = self._current()

        async def accept() -> bool | None:
            return await process.ready.intake.accept(delivery)

        await process.serve(accept())


class _Host:
    """A provider of tests, as the simulator's machines need it."""

    def __init__(self, world: World) -> None:
        self.running: dict[ProviderMachineId, Instance] = {}
        self.on_launch: Callable[[Instance], None] = lambda _: None
        self.on_end: Callable[[Instance], None] = lambda _: None
        self._world = world
        self._offerings = {
            offering.key: offering
            for sku in world.catalogue.skus.values()
            for option in sku.launch_options
            for offering in option.offerings
        }
        world.east.on_instance = self._launched
        world.east.on_end = self._ended

    def shut_down(
        self, instance: Instance, reason: str, failure: FailureClass | None = None
    ) -> None:
        """End a machine."""
        instance.reason, instance.failure = reason, failure
        self._world.east.shut_down(instance.id)

    def _launched(self, launched: Launched) -> None:
        instance = self.running[launched.id] = Instance(
            launched.id,
            launched.call,
            launched.sku,
            self._offerings[launched.offering],
            launched.installation,
            self._world.clock.now(),
        )
        self.on_launch(instance)

    def _ended(self, machine: ProviderMachineId) -> None:
        instance = self.running.pop(machine)
        instance.ended_at = self._world.clock.now()
        self.on_end(instance)
