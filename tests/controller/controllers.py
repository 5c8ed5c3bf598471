"""The controller put together on fakes, as one process that can be turned, stopped and killed."""

import asyncio
import json
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from autoscaler.controller.bootstrap import BootstrapService
from autoscaler.controller.effects import Effects
from autoscaler.controller.executor import Executor
from autoscaler.controller.github_reader import GitHubReader
from autoscaler.controller.intake import Intake
from autoscaler.controller.journal import Journal
from autoscaler.controller.launcher import Launcher
from autoscaler.controller.poller import Poller
from autoscaler.controller.ports.store import Delivery
from autoscaler.controller.reconciler import Pace, Reconciler
from autoscaler.controller.registrar import Registrar
from autoscaler.controller.registration_releaser import RegistrationReleaser
from autoscaler.controller.terminator import Terminator
from autoscaler.controller.unmatched import UnmatchedJobs
from autoscaler.ledger.ledger import KEPT_FOR, Ledger
from autoscaler.ledger.state import LedgerState
from autoscaler.model.catalogue import Catalogue
from autoscaler.model.events import ControllerStarted, Event, JobObserved
from autoscaler.model.identifiers import Instant, JobId, ProviderName, RunnerName, Seconds
from autoscaler.model.jobs import JobState
from autoscaler.model.machines import Machine, MachineState
from tests.controller.fakes import CrashPoint, RecordingTelemetry, SequentialIds
from tests.controller.fakes_github import FakeGitHub
from tests.controller.fakes_provider import FakeProvider
from tests.controller.fakes_store import FakeStore
from tests.controller.virtual_time import OWNER, Tasks, VirtualClock
from tests.planner.fleets import EAST, catalogue

T = TypeVar("T")

PACE = Pace(batch_idle=0.035, batch_max=1.0, tick=2.0)
HEALTH_CHECK = {"disk_gb": 10}


class ProcessGoneError(Exception):
    """The controller that was asked is no longer there."""


@dataclass
class World:
    """What outlives a controller: its store, its providers, GitHub and the time."""

    catalogue: Catalogue = field(default_factory=catalogue)
    store: FakeStore = field(default_factory=FakeStore)
    github: FakeGitHub = field(default_factory=FakeGitHub)
    providers: dict[ProviderName, FakeProvider] = field(
        default_factory=lambda: {EAST: FakeProvider()}
    )
    clock: VirtualClock = field(default_factory=VirtualClock)
    ids: SequentialIds = field(default_factory=SequentialIds)
    telemetry: RecordingTelemetry = field(default_factory=RecordingTelemetry)

    @property
    def east(self) -> FakeProvider:
        return self.providers[EAST]

    def fuse(self, length: int | None) -> CrashPoint:
        """A fuse for the next process, in every port."""
        fuse = CrashPoint(length)
        self.store.reopen(fuse)
        self.github.fuse = fuse
        self.github.now = self.clock.now
        for provider in self.providers.values():
            provider.fuse = fuse
        return fuse


class DatedLedger(Ledger):
    """A ledger that insists on each event's time, as the store's tables do."""

    def apply(self, event: Event) -> None:
        assert isinstance(event.at, float), event
        super().apply(event)


class Controller:
    """One process: what `app` builds, on fakes. `crashes` are the errors of effects."""

    def __init__(self, world: World, fuse_length: int | None = None, pace: Pace = PACE) -> None:
        self.world = world
        self.fuse = world.fuse(fuse_length)
        self.crashes: list[BaseException] = []
        self._tasks = Tasks()
        self.journal = Journal(
            DatedLedger(world.catalogue), world.store, world.clock, world.telemetry
        )
        UnmatchedJobs(self.journal, world.telemetry)
        self.effects = Effects(self._crashed)
        self.registrar = Registrar(self.journal, world.github, world.clock)
        self.releaser = RegistrationReleaser(
            self.journal, world.github, self.registrar, self.effects
        )
        self.intake = Intake(world.store, self.journal, parse)
        self.github_reader = GitHubReader(self.journal, world.github)
        self.launcher = Launcher(self.journal, world.providers)
        self.terminator = Terminator(self.journal, world.providers, world.clock)
        self.pace = pace
        self.running: asyncio.Task[None] | None = None
        self.resumed = False
        self._begin(world.clock.now())

    def _begin(self, arrived_until: Instant) -> None:
        world = self.world
        self.poller = Poller(
            self.journal, world.store, world.github, world.providers, world.clock, arrived_until
        )
        self.lists_asked_for: list[ProviderName] = []
        gates = dict.fromkeys(world.catalogue.skus, HEALTH_CHECK)
        self.desk = BootstrapService(
            self.journal, self.registrar, self.releaser, world.providers, gates, self._list_soon
        )
        self.executor = Executor(
            self.journal,
            world.ids,
            self.effects,
            self.launcher,
            self.registrar,
            self.terminator,
            self.github_reader,
        )
        self.loop = Reconciler(
            self.journal,
            self.intake,
            self.executor,
            self.poller,
            self.effects,
            world.telemetry,
            world.clock,
            world.clock,
            self.pace,
        )

    @property
    def state(self) -> LedgerState:
        return self.journal.ledger.state

    def only_machine(self, *states: MachineState) -> Machine:
        """The one machine there is in these states (all that occupy something)."""
        (found,) = (
            m for m in self.state.machines.values() if (m.state in states if states else m.occupies)
        )
        return found

    async def resume(self) -> None:
        """Take over what the store holds."""
        now = self.world.clock.now()
        saved = await self.world.store.load(now - KEPT_FOR)
        self._begin(saved.arrived_until if saved.arrived_until is not None else now)
        self.journal.ledger.restore(
            (*saved.launch_requests, *saved.machines, *saved.runners, *saved.jobs, *saved.reruns),
            saved.cooldowns,
        )
        absence = max(0.0, now - saved.heartbeat) if saved.heartbeat is not None else 0.0
        await self.journal.record(ControllerStarted(now, absence))
        self.intake.resume(*saved.unapplied)
        self.resumed = True

    def start(self) -> None:
        """Run it as a process of its own: resume, then the loop."""
        self.running = self._own(self._life())

    async def turn(self, then: Seconds = 5.0) -> None:
        """One turn of the loop, and time for its effects."""
        await self.loop.turn()
        await asyncio.sleep(then)

    async def serve(self, request: Coroutine[Any, Any, T]) -> T:
        """Answer a request in this process; raises ProcessGoneError when it dies before that."""
        if self.fuse.blown.is_set():
            request.close()
            raise ProcessGoneError
        task = self._own(request)
        gone = asyncio.ensure_future(self.fuse.blown.wait())
        try:
            await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
            if task.done() and not task.cancelled():
                return task.result()
            raise ProcessGoneError
        finally:
            gone.cancel()
            if not self.fuse.blown.is_set():
                task.cancel()

    async def kill(self) -> None:
        """Nothing of it goes on, and nobody hears of it: SIGKILL."""
        self.fuse.blown.set()
        while tasks := self._tasks.unfinished():
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        self.running = None

    async def stop(self) -> None:
        """SIGTERM: finish what is in flight."""
        self.loop.stop()
        if self.running is not None:
            await self.running
        self.desk.shut_down()
        await self.loop.drain(30.0)

    async def _life(self) -> None:
        await self.resume()
        await self.loop.run()

    def _own(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        token = OWNER.set(self._tasks)
        try:
            return asyncio.get_running_loop().create_task(work)
        finally:
            OWNER.reset(token)

    def _crashed(self, error: BaseException) -> None:
        if not isinstance(error, asyncio.CancelledError):
            self.crashes.append(error)
            self.loop.stop()

    async def _list_soon(self, provider: ProviderName, patience: Seconds) -> None:
        self.lists_asked_for.append(provider)
        await self.poller.list_soon(provider, patience)


def delivery(
    number: int,
    job: int,
    state: JobState,
    at: Instant,
    *,
    queued_at: Instant | None = None,
    labels: tuple[str, ...] = ("gpu",),
    runner: RunnerName | None = None,
) -> Delivery:
    """GitHub's word about a job of `acme/widgets`, in the tests' own spelling."""
    body = {
        "job": job,
        "state": state,
        "queued_at": at if queued_at is None else queued_at,
        "labels": labels,
        "runner": runner,
    }
    return Delivery(f"d-{number}", "workflow_job", at, json.dumps(body).encode())


def parse(body: bytes, received_at: Instant) -> JobObserved | None:
    """The fact in a body of `delivery`. Raises ValueError."""
    said = json.loads(body)
    if said["state"] not in set(JobState):
        return None
    state = JobState(said["state"])
    ended, begun = state is JobState.COMPLETED, state is JobState.IN_PROGRESS
    return JobObserved(
        received_at,
        JobId(said["job"]),
        state,
        "acme/widgets",
        tuple(said["labels"]),
        said["queued_at"],
        runner_name=said["runner"],
        started_at=said.get("started_at", received_at if begun else None),
        completed_at=said.get("completed_at", received_at if ended else None),
        conclusion="success" if ended else None,
    )


async def cancelled(task: asyncio.Task[Any]) -> None:
    """Cancel a task and see it end."""
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
