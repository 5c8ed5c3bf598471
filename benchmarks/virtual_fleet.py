"""A whole controller on virtual time beside a counted GitHub, with machines that do their jobs.

The parts are the product's own, unmodified: loop, planner, executor, reconciler, synchronizer, bootstrap. It
decides how a machine behaves (well) and which webhooks get lost; what is measured is decided elsewhere.
"""

import asyncio
import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from autoscaler.controller.composition import Ports
from autoscaler.controller.machines.bootstrap import BootstrapService
from autoscaler.controller.ports.bootstrap import (
    Assigned,
    BootstrapRefusedError,
    NotKnownYetError,
)
from autoscaler.controller.ports.store import Delivery
from autoscaler.controller.ports.telemetry import Telemetry
from autoscaler.controller.reconciler import Pace
from autoscaler.model.catalogue import (
    Access,
    Architecture,
    CapacityType,
    Catalogue,
    Deadlines,
    LaunchOption,
    Offering,
    OperatingSystem,
    RegistrationRate,
    Scope,
    Sku,
)
from autoscaler.model.events import JobObserved
from autoscaler.model.identifiers import (
    Installations,
    Instant,
    MachineId,
    ProviderName,
    Seconds,
    SkuName,
)
from autoscaler.model.jobs.job import JobState
from autoscaler.simulator.world.controller.ids import SequentialIds
from autoscaler.simulator.world.controller.process import ControllerProcess, settings
from autoscaler.simulator.world.controller.store import INSTALLATION, MemoryStore
from autoscaler.simulator.world.ec2.provider import SimulatedProvider
from autoscaler.simulator.world.fault_schedule import FaultSchedule
from autoscaler.simulator.world.instances import Instance
from autoscaler.simulator.world.invariants import Invariants
from autoscaler.simulator.world.processes import Process
from autoscaler.simulator.world.virtual_time import VirtualClock
from benchmarks.counted_github import CountedGitHub
from benchmarks.hosted_actions import HostedActions, HostedJob

EAST = ProviderName("east")
LABEL = "gpu"
REPOSITORIES = tuple(f"acme/r{number}" for number in range(20))
DAY: Seconds = 86_400.0

BOOT: Seconds = 45.0
HEALTH_CHECKS: Seconds = 10.0
LISTENER_STARTS: Seconds = 3.0
RUNNER_LEAVES: Seconds = 8.0
HEARTBEAT: Seconds = 60.0
POLL: Seconds = 50.0
ON_THE_WAY: Seconds = 0.3


@dataclass(frozen=True, slots=True)
class Setting:
    """`limit` is GitHub's of an hour, `lost` the share of webhooks that never arrive.

    With `always_counts` no answer is free. Unless `machines_boot`, none of them ever does, so
    that each job has one of its own. `registrations` is the pace of registering.
    """

    limit: int
    repositories: tuple[str, ...]
    lost: float
    always_counts: bool
    machines_boot: bool
    seed: int = 1
    registrations: RegistrationRate = field(default_factory=RegistrationRate)


class RecordedTelemetry(Telemetry):
    """Telemetry of which one thing is kept: the staleness of each second."""

    def __init__(self) -> None:
        self.staleness: list[Seconds] = []

    def github_staleness(self, *said: object, **named: object) -> None:
        """Keep it."""
        self.staleness.extend(
            value for value in (*said, *named.values()) if isinstance(value, float)
        )


class VirtualFleet:
    """One controller process, GitHub, and the machines. Made inside a virtual loop."""

    def __init__(self, setting: Setting) -> None:
        self.clock = VirtualClock()
        self.recorded = RecordedTelemetry()
        self.actions = HostedActions(self.clock.now, setting.repositories, self._report)
        self.github = CountedGitHub(
            self.actions, self.clock.now, setting.limit, always_counts=setting.always_counts
        )
        self._setting = setting
        self._random = random.Random(setting.seed)
        self._deliveries = 0
        self._lives: dict[Instance, asyncio.Task[None]] = {}
        self._reports: set[asyncio.Task[None]] = set()
        self._store = MemoryStore()
        catalogue = _catalogue(setting)
        self._provider = _provider(catalogue, self._store, self.clock)
        self._provider.on_launch, self._provider.on_end = self._switch_on, self._switch_off
        ports = Ports(
            clock=self.clock,
            pacing=self.clock,
            background=self.clock,
            ids=SequentialIds(),
            telemetry=self.recorded,
            store=self._store,
            github=self.github,
            lists=self.github,
            reruns=self.github,
            providers={EAST: self._provider},
        )
        pace = Pace(batch_idle=0.25, batch_max=2.0, tick=30.0)
        self.process = ControllerProcess(ports, settings(catalogue, parse, pace), Process())

    @property
    def machines(self) -> int:
        """How many run."""
        return len(self._provider.running)

    @asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        """From start to end. Raises what ended the controller."""
        self.process.start()
        try:
            yield
            running = self.process.running
            if running is not None and running.done():
                running.result()
            if self.process.crashes:
                raise self.process.crashes[0]
        finally:
            for task in (*self._lives.values(), *self._reports):
                task.cancel()
            await self.process.kill()

    def _report(self, job: HostedJob) -> None:
        if self._random.random() < self._setting.lost:
            return
        now = self.clock.now()
        self.github.delivered.append(now)
        self._deliveries += 1
        delivery = Delivery(f"d-{self._deliveries}", "workflow_job", now, body_of(job, now))
        task = asyncio.get_running_loop().create_task(self._deliver(delivery))
        self._reports.add(task)
        task.add_done_callback(self._reports.discard)

    async def _deliver(self, delivery: Delivery) -> None:
        await asyncio.sleep(ON_THE_WAY)
        await self.process.ready.intake.accept(delivery)

    def _switch_on(self, instance: Instance) -> None:
        if self._setting.machines_boot:
            self._lives[instance] = asyncio.get_running_loop().create_task(self._live(instance))

    def _switch_off(self, instance: Instance) -> None:
        life = self._lives.pop(instance, None)
        if life is not None and life is not asyncio.current_task():
            life.cancel()

    async def _live(self, instance: Instance) -> None:
        await asyncio.sleep(BOOT)
        with suppress(BootstrapRefusedError):
            await self._serve(instance)
        self._provider.shut_down(instance, "Client.InstanceInitiatedShutdown: its runner left")

    async def _serve(self, instance: Instance) -> None:
        bootstrap, nonce = self.process.ready.bootstrap, f"SECRET-NONCE-{instance.id}"
        machine = await self._attest(bootstrap, instance, nonce)
        await asyncio.sleep(HEALTH_CHECKS)
        await bootstrap.health_checks(machine, nonce, True, "disk: ok")
        assigned = await bootstrap.poll(machine, nonce, POLL)
        while not isinstance(assigned, Assigned):
            assigned = await bootstrap.poll(machine, nonce, POLL)
        await bootstrap.acknowledge(machine, nonce, assigned.runner)
        await asyncio.sleep(LISTENER_STARTS)
        runner = self.actions.listen(assigned.runner)
        while runner is not None and not runner.over.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(HEARTBEAT):
                    await runner.over.wait()
            await bootstrap.heartbeat(machine, nonce)
        await asyncio.sleep(RUNNER_LEAVES)
        await bootstrap.exited(machine, nonce, f"{assigned.runner} left")

    async def _attest(
        self, bootstrap: BootstrapService, instance: Instance, nonce: str
    ) -> MachineId:
        while True:
            try:
                answer = await bootstrap.attest(EAST, instance.proof(), nonce, 1, "1.0")
            except NotKnownYetError as later:
                await asyncio.sleep(later.retry_after)
            else:
                return answer.machine


def body_of(job: HostedJob, now: Instant) -> bytes:
    """What GitHub says of a job, in this benchmark's own spelling."""
    fact = job.fact(now, read=False)
    return json.dumps({name: getattr(fact, name) for name in fact.__slots__}).encode()


def parse(body: bytes, received_at: Instant) -> JobObserved | None:
    """The fact in a body of `body_of`. Raises ValueError."""
    said = json.loads(body)
    state, labels = JobState(said.pop("state")), tuple(said.pop("labels"))
    return JobObserved(at=received_at, state=state, labels=labels, **said)


def _catalogue(setting: Setting) -> Catalogue:
    offering = Offering(EAST, "g5.xlarge", "a", CapacityType.ON_DEMAND, 1.0, "G", 4)
    sku = Sku(
        SkuName(LABEL),
        frozenset({LABEL}),
        OperatingSystem.LINUX,
        Architecture.X64,
        (LaunchOption(EAST, (CapacityType.ON_DEMAND,), (offering,)),),
        deadlines=Deadlines() if setting.machines_boot else Deadlines(boot=DAY),
        access=Access(forks=True),
    )
    owners = {name.partition("/")[0] for name in setting.repositories}
    scopes = tuple(Scope(owner, None) for owner in sorted(owners))
    # Machines that never boot would keep their turns to register for ever.
    turns = setting.registrations if setting.machines_boot else RegistrationRate(10_000, 1000.0)
    ids = Installations(INSTALLATION)
    return Catalogue("ci", ids, {sku.name: sku}, scopes, registration=turns)


def _provider(catalogue: Catalogue, store: MemoryStore, clock: VirtualClock) -> SimulatedProvider:
    options = [option for sku in catalogue.skus.values() for option in sku.launch_options]
    quota = {offering.quota_key: 10**6 for option in options for offering in option.offerings}
    calm = FaultSchedule((), asyncio.get_running_loop().time())
    invariants = Invariants(catalogue, store)
    return SimulatedProvider(EAST, catalogue, quota, calm, invariants, clock.now)
