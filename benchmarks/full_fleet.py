"""A whole controller in this process beside a fleet that is there from the start, on its real store.

The parts of the controller are the product's own, and so is the SQLite file. GitHub and EC2 are in memory:
they list what there is, launch at once what is asked for, and no new machine ever boots.
"""

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from autoscaler.app.event_loop import keep_out_of_collections
from autoscaler.controller.composition import Controller, Ports
from autoscaler.controller.intake.deliveries import Intake, Parse
from autoscaler.controller.operators.fleet_queries import FleetQueries
from autoscaler.controller.ports.provider import (
    Capabilities,
    LaunchAnswer,
    LaunchOrder,
    ProofRefusedError,
    ProvenIdentity,
)
from autoscaler.controller.ports.store import Delivery, SavedState
from autoscaler.controller.reconciler import Pace
from autoscaler.ledger.ledger import Ledger
from autoscaler.model.catalogue import Catalogue, Offering
from autoscaler.model.events import LaunchedMachine, ListedMachine
from autoscaler.model.identifiers import (
    InstallationId,
    Instant,
    ProviderMachineId,
    RunnerName,
    Seconds,
    SkuName,
)
from autoscaler.model.jobs.job import Job, JobState
from autoscaler.model.machines.machine import Machine
from autoscaler.observability.metrics import PrometheusTelemetry
from autoscaler.simulator.world.controller.ids import SequentialIds
from autoscaler.simulator.world.controller.process import ControllerProcess, settings
from autoscaler.simulator.world.processes import Process
from autoscaler.store.sqlite.store import SqliteStore
from benchmarks.counted_github import CountedGitHub
from benchmarks.crowded_fleet import EAST, NOW, REPOSITORY, Crowd, crowded
from benchmarks.hosted_actions import HostedActions, HostedJob, HostedRun, HostedRunner
from benchmarks.virtual_fleet import body_of, parse

CALLS_AN_HOUR = 15_000
"""GitHub's limit for an App in an organization with Enterprise Cloud."""

PAGE = 1000
LATENCY: Seconds = 0.5


@dataclass(frozen=True, slots=True)
class FastClock:
    """A Clock that began at `NOW` and goes `scale` times as fast as the host's."""

    scale: float
    began: float

    def now(self) -> Instant:
        """Return the Unix seconds on this clock."""
        return NOW + (time.monotonic() - self.began) * self.scale

    async def sleep(self, seconds: Seconds) -> None:
        """Sleep for this much of this clock's time."""
        await asyncio.sleep(max(0.0, seconds) / self.scale)


class FullStore(SqliteStore):
    """A store that an earlier process has left full; its rows are not in the file."""

    left: SavedState

    async def load(self, horizon: Instant) -> SavedState:
        """Return what was left. The file's installation id was never made."""
        await super().load(horizon)
        return self.left


class ListedProvider:
    """Implements the Provider port: lists the machines of a ledger, and launches what is asked for."""

    def __init__(self, catalogue: Catalogue, machines: Sequence[Machine], clock: FastClock) -> None:
        self._catalogue = catalogue
        options = [option for sku in catalogue.skus.values() for option in sku.launch_options]
        self._offerings = {one.key: one for option in options for one in option.offerings}
        self._own = catalogue.installations.own
        self._clock = clock
        self._orders: dict[str, LaunchOrder] = {}
        self._listed = [_listed(machine, self._own) for machine in machines]

    @property
    def capabilities(self) -> Capabilities:
        """The rates of the catalogue."""
        return Capabilities(
            largest_request=self._catalogue.largest_request(EAST),
            launch_rate=self._catalogue.launch_rates.get(EAST),
        )

    def offerings(self, sku: SkuName, option: int) -> tuple[Offering, ...]:
        """Return the catalogue's offerings of a launch option."""
        return self._catalogue.skus[sku].launch_options[option].offerings

    async def open(self) -> None:
        """Nothing needs to be read."""

    def adopt(self, installation: InstallationId) -> None:
        """No installation is adopted here."""

    async def prepare(self, order: LaunchOrder) -> str:
        """Return the call's token as the request."""
        self._orders[order.token] = order
        return order.token

    async def launch(self, request: str) -> LaunchAnswer:
        """Launch all of it in the first offering."""
        order = self._orders[request]
        offering = self._offerings[order.offerings[0]]
        await self._clock.sleep(LATENCY)
        first = len(self._listed)
        launched = tuple(_launched(offering, first + number) for number in range(order.count))
        self._listed += [_new(one, order, offering, self._own) for one in launched]
        return LaunchAnswer(launched, ())

    async def terminate(
        self, machines: Sequence[ProviderMachineId]
    ) -> dict[ProviderMachineId, str]:
        """Terminate them, which takes longer than the benchmark."""
        del machines
        await self._clock.sleep(LATENCY)
        return {}

    async def machines(self) -> AsyncIterator[tuple[ListedMachine, ...]]:
        """List all, in pages."""
        await self._clock.sleep(LATENCY)
        for start in range(0, len(self._listed), PAGE):
            yield tuple(self._listed[start : start + PAGE])

    async def quotas(self) -> Mapping[str, int]:
        """No quota is known."""
        await self._clock.sleep(LATENCY)
        return {}

    async def delete_unused(self, requests: Sequence[str]) -> tuple[str, ...]:
        """Launches leave nothing behind here."""
        del requests
        return ()

    async def image(self, sku: SkuName) -> str:
        """Return the one image that there is."""
        del sku
        return "ami-1"

    async def console(self, machine: ProviderMachineId) -> str:
        """Nothing is ever written there."""
        del machine
        return ""

    async def verify(self, proof: bytes) -> ProvenIdentity:
        """No machine boots."""
        raise ProofRefusedError("not_signed", repr(proof))

    async def close(self) -> None:
        """Nothing is open."""


class FullFleet:
    """One controller process with a crowd to take over. Made inside the loop that it runs in.

    `parse` reads the bodies of deliveries: by default, those of `deliver`. `repositories` are those with
    metrics of their own.
    """

    def __init__(
        self,
        crowd: Crowd,
        scale: float,
        pace: Pace,
        parse: Parse = parse,
        repositories: Sequence[str] = (),
    ) -> None:
        self._crowd = crowd
        self.clock = FastClock(scale, time.monotonic())
        self._pace = pace
        self._parse = parse
        self._ledger: Ledger = crowded(crowd)
        self.skus = tuple(self._ledger.state.catalogue.skus)
        self.telemetry = PrometheusTelemetry(self.skus, [EAST], "benchmark", repositories)
        self._jobs = crowd.jobs + crowd.machines + 1
        self.actions = HostedActions(self.clock.now, [REPOSITORY], lambda _: None)
        self._process: ControllerProcess | None = None

    @asynccontextmanager
    async def at_work(self, folder: Path) -> AsyncIterator[ControllerProcess]:
        """From its first turn to its end. Raises what ended the controller."""
        store = await FullStore.open(folder / "state.db")
        assert isinstance(store, FullStore)
        state = self._ledger.state
        store.left = _saved(self._ledger)
        self._host(list(state.jobs.values()))
        catalogue = state.catalogue
        process = self._process = ControllerProcess(
            self._ports(store), settings(catalogue, self._parse, self._pace), Process()
        )
        del self._ledger  # two copies would give the garbage collector twice the work
        process.start()
        freezing = asyncio.get_running_loop().create_task(keep_out_of_collections())
        try:
            while process.controller is None or process.controller.reconciler.turned_at is None:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            # What it took over is there by now: frozen a minute later, unless it is done here.
            gc.freeze()
            yield process
            if process.crashes:
                raise process.crashes[0]
        finally:
            freezing.cancel()
            await process.stop()
            await store.close()

    @asynccontextmanager
    async def at_rest(self, folder: Path) -> AsyncIterator[Controller]:
        """A controller that has taken the crowd over and does nothing, for questions about it."""
        store = await FullStore.open(folder / "state.db")
        assert isinstance(store, FullStore)
        try:
            saved, catalogue = _saved(self._ledger), self._ledger.state.catalogue
            made = settings(catalogue, self._parse, self._pace)
            controller = Controller(self._ports(store), made, saved.installations)
            await controller.resume(saved)
            yield controller
        finally:
            await store.close()

    @property
    def intake(self) -> Intake:
        """The controller's intake, while it is at work."""
        assert self._process is not None
        return self._process.ready.intake

    @property
    def queries(self) -> FleetQueries:
        """The answers to operators' questions, while the controller is at work."""
        assert self._process is not None
        return self._process.ready.queries

    @property
    def turned_at(self) -> Instant | None:
        """When the last pass of the control loop ended, on the controller's clock."""
        assert self._process is not None
        return self._process.ready.reconciler.turned_at

    async def deliver(self, count: int, a_second: float) -> None:
        """Have GitHub send webhooks of so many new jobs, evenly; the run of each is new or the last one's."""
        began = self.clock.now()
        sending: set[asyncio.Task[None]] = set()
        for number in range(count):
            await self.clock.sleep(began + number / a_second - self.clock.now())
            task = asyncio.get_running_loop().create_task(self._deliver(self._new_job(number)))
            sending.add(task)
            task.add_done_callback(sending.discard)
        if sending:
            await asyncio.wait(sending)

    async def _deliver(self, job: HostedJob) -> None:
        now = self.clock.now()
        delivery = Delivery(f"d-{job.id}", "workflow_job", now, body_of(job, now))
        await self.intake.accept(delivery)

    def _new_job(self, number: int) -> HostedJob:
        self._jobs += 1
        of = self._crowd.run_of(self._jobs) or 0
        run = self.actions.runs[REPOSITORY].setdefault(of, HostedRun(of, REPOSITORY))
        label = f"label-{number % 20:02}"
        job = HostedJob(self._jobs, run, label, None, self.clock.now())
        self.actions.jobs[job.id] = run.jobs[job.id] = job
        run.open_jobs += 1
        return job

    def _host(self, jobs: list[Job]) -> None:
        """Have GitHub list the jobs, their runs and the registrations of their runners."""
        runners = self._ledger.state.runners
        for job in jobs:
            of = job.run_id or 0
            run = self.actions.runs[REPOSITORY].setdefault(of, HostedRun(of, REPOSITORY))
            hosted = HostedJob(job.id, run, job.labels[0], None, job.queued_at, job.state)
            self.actions.jobs[hosted.id] = run.jobs[hosted.id] = hosted
            run.open_jobs += job.state is not JobState.COMPLETED
            runner = runners.get(job.runner_name) if job.runner_name is not None else None
            if runner is not None:
                hosted.runner = self._register(runner.name, runner.github_id or 0)
                hosted.runner.job = hosted
        for name, runner in runners.items():
            if name not in self.actions.registered:
                self._register(name, runner.github_id or 0)

    def _register(self, name: RunnerName, github_id: int) -> HostedRunner:
        made = self.actions.registered[name] = HostedRunner(github_id, name, online=True)
        return made

    def _ports(self, store: FullStore) -> Ports:
        catalogue, clock = self._ledger.state.catalogue, self.clock
        github = CountedGitHub(self.actions, clock.now, CALLS_AN_HOUR, always_counts=False)
        machines = tuple(self._ledger.state.machines.values())
        return Ports(
            clock=clock,
            pacing=clock,
            background=clock,
            ids=SequentialIds(),
            telemetry=self.telemetry,
            store=store,
            github=github,
            lists=github,
            reruns=github,
            providers={EAST: ListedProvider(catalogue, machines, clock)},
        )


def _saved(ledger: Ledger) -> SavedState:
    state = ledger.state
    return SavedState(
        installations=state.catalogue.installations,
        heartbeat=NOW,
        jobs=tuple(state.jobs.values()),
        launch_requests=tuple(state.launch_requests.values()),
        machines=tuple(state.machines.values()),
        runners=tuple(state.runners.values()),
        cooldowns=tuple(state.cooldowns.values()),
        unapplied=(),
        arrived_until=NOW,
    )


def _listed(machine: Machine, own: str) -> ListedMachine:
    return ListedMachine(
        machine.placement.provider_id or ProviderMachineId(""),
        own,
        machine.launch_request,
        machine.sku,
        False,
        machine.placement.instance_type or "",
        machine.placement.zone or "",
        machine.placement.capacity_type,  # type: ignore[arg-type]
        machine.placement.dollars_per_hour,
        machine.placement.quota_usage,
        "ami-1",
        "t0",
        state="running",
    )


def _launched(offering: Offering, number: int) -> LaunchedMachine:
    machine = ProviderMachineId(f"i-new-{number}")
    return LaunchedMachine(
        machine, offering.instance_type, offering.zone, offering.capacity_type, "ami-1", "t0"
    )


def _new(
    launched: LaunchedMachine, order: LaunchOrder, offering: Offering, own: str
) -> ListedMachine:
    return ListedMachine(
        launched.provider_id,
        own,
        order.launch_request,
        order.sku,
        False,
        launched.instance_type,
        launched.zone,
        launched.capacity_type,
        offering.dollars_per_hour,
        ((offering.quota_key, offering.quota_units),),
        "ami-1",
        "t0",
        state="running",
    )
