"""The composed controller on fakes, as one process that tests can step, stop and kill."""

import asyncio
import json
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from autoscaler.controller import composition
from autoscaler.controller.composition import Ports, Settings
from autoscaler.controller.intake.deliveries import Parse
from autoscaler.controller.ports.bootstrap import HealthChecks
from autoscaler.controller.ports.github import RerunAnswer, Reruns
from autoscaler.controller.ports.store import Delivery
from autoscaler.controller.reconciler import Pace
from autoscaler.ledger.ledger import KEPT_FOR
from autoscaler.ledger.records.state import LedgerState
from autoscaler.model.catalogue import Catalogue
from autoscaler.model.events import JobObserved
from autoscaler.model.identifiers import (
    Instant,
    JobId,
    ProviderName,
    RunnerName,
    Seconds,
)
from autoscaler.model.jobs.job import JobState
from autoscaler.model.machines.machine import Machine, MachineState
from autoscaler.model.wait_objectives import DEFAULT_OBJECTIVES, WaitObjective
from autoscaler.simulator.world.controller.process import ProcessGoneError
from autoscaler.simulator.world.processes import Process
from tests.controller.fakes import CrashPoint, RecordingTelemetry, SequentialIds
from tests.controller.fakes_github import ScriptedGitHub
from tests.controller.fakes_lists import FakeLists
from tests.controller.fakes_provider import FakeProvider
from tests.controller.fakes_store import FakeStore
from tests.controller.virtual_time import OWNER, Tasks, VirtualClock
from tests.planner.fleets import EAST, catalogue

T = TypeVar("T")

PACE = Pace(batch_idle=0.035, batch_max=1.0, tick=2.0)
HEALTH_CHECK = {"disk_gb": 10}


class FakeReruns:
    """A GitHub that accepts no rerun yet."""

    async def rerun(
        self, repository: str, run_id: int, run_attempt: int, jobs: Sequence[JobId]
    ) -> RerunAnswer:
        return RerunAnswer(tuple(jobs), None)


@dataclass
class World:
    """What survives a restart of the controller: its store, its providers, GitHub and the clock."""

    catalogue: Catalogue = field(default_factory=catalogue)
    store: FakeStore = field(default_factory=FakeStore)
    github: ScriptedGitHub = field(default_factory=ScriptedGitHub)
    providers: dict[ProviderName, FakeProvider] = field(
        default_factory=lambda: {EAST: FakeProvider()}
    )
    clock: VirtualClock = field(default_factory=VirtualClock)
    ids: SequentialIds = field(default_factory=SequentialIds)
    telemetry: RecordingTelemetry = field(default_factory=RecordingTelemetry)
    lists: FakeLists = field(init=False)
    reruns: Reruns = field(default_factory=FakeReruns)
    wait_objectives: tuple[WaitObjective, ...] = DEFAULT_OBJECTIVES
    parse: Parse = field(default_factory=lambda: parse)

    def __post_init__(self) -> None:
        # An account without spare calls, so that no test of something else gets lists.
        self.lists = FakeLists(self.clock.now, steady=0.0)

    def ports(self) -> Ports:
        """The ports of a controller."""
        return Ports(
            clock=self.clock,
            pacing=self.clock,
            background=self.clock,
            ids=self.ids,
            telemetry=self.telemetry,
            store=self.store,
            github=self.github,
            lists=self.lists,
            reruns=self.reruns,
            providers=self.providers,
        )

    def settings(self, pace: Pace) -> Settings:
        """Return the settings of a controller. All offerings of the catalogue are available from the start."""
        return Settings(
            catalogue=lambda installations, _: self.catalogue.with_installations(installations),
            health_checks=dict.fromkeys(self.catalogue.skus, HealthChecks(HEALTH_CHECK)),
            parse=self.parse,
            pace=pace,
            wait_objectives=self.wait_objectives,
        )

    @property
    def east(self) -> FakeProvider:
        return self.providers[EAST]

    def process(self, crash_after: int | None = None) -> Process:
        """Return the next process, which is killed at its `crash_after`-th call of a port."""
        self.github.now = self.clock.now
        return Process(CrashPoint(crash_after))


class Controller:
    """One controller process on fakes. `crashes` has the errors of requests that it sent."""

    def __init__(self, world: World, crash_after: int | None = None, pace: Pace = PACE) -> None:
        self.world = world
        process = world.process(crash_after)
        self.crash_point = process.crash_point
        self._tasks = Tasks(process)
        parts = self.parts = composition.Controller(
            world.ports(), world.settings(pace), world.catalogue.installations
        )
        # Tests of the ProviderOpener run its task; for the others every provider is open.
        parts.provider_opener.opened.update(world.providers)
        self.journal, self.intake, self.effects = parts.journal, parts.intake, parts.effects
        self.registrar, self.releaser = parts.registrar, parts.releaser
        self.github_reader, self.launcher = parts.github_reader, parts.launcher
        self.terminator, self.executor = parts.terminator, parts.executor
        self.machine_lists, self.redelivery = parts.machine_lists, parts.redelivery
        self.run_tasks = parts.run_tasks
        self.operator_actions, self.queries = parts.operator_actions, parts.queries
        self.bootstrap, self.loop, self.crashes = parts.bootstrap, parts.reconciler, parts.crashes
        self.running: asyncio.Task[None] | None = None
        self.resumed = False

    @property
    def state(self) -> LedgerState:
        return self.journal.ledger.state

    def only_machine(self, *states: MachineState) -> Machine:
        """Return the only machine in these states (by default all states that count in the limits)."""
        (found,) = (
            m for m in self.state.machines.values() if (m.state in states if states else m.occupies)
        )
        return found

    def take_list_requests(self) -> list[ProviderName]:
        """Return the providers that were to be listed soon since the last call, while no list is read."""
        requests = self.machine_lists._requested
        names = [name for name, requested in requests.items() if requested.is_set()]
        for name in names:
            requests[name].clear()
        return names

    async def resume(self) -> None:
        """Read the store."""
        saved = await self.world.store.load(self.world.clock.now() - KEPT_FOR)
        await self.parts.resume(saved)
        self.resumed = True

    def start(self) -> None:
        """Start the controller: read the store, then run the loop."""
        self.running = self._own(self._life())

    async def turn(self, then: Seconds = 5.0) -> None:
        """Run one turn of the loop, and give its requests time to finish."""
        await self.loop.turn()
        await asyncio.sleep(then)

    async def serve(self, request: Coroutine[Any, Any, T]) -> T:
        """Answer a request. Raises ProcessGoneError if the process ends before that."""
        if self.crash_point.reached.is_set():
            request.close()
            raise ProcessGoneError
        task = self._own(request)
        gone = asyncio.ensure_future(self.crash_point.reached.wait())
        try:
            await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
            if task.done() and not task.cancelled():
                return task.result()
            raise ProcessGoneError
        finally:
            gone.cancel()
            if not self.crash_point.reached.is_set():
                task.cancel()

    async def kill(self) -> None:
        """End the process like SIGKILL: all its tasks end without an error to anyone."""
        self.crash_point.reached.set()
        while tasks := self._tasks.unfinished():
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        self.running = None

    async def stop(self) -> None:
        """End the process like SIGTERM: requests in flight finish."""
        self.loop.stop()
        if self.running is not None:
            await self.running
        self.bootstrap.shut_down()
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


def delivery(
    number: int,
    job: int,
    state: JobState,
    at: Instant,
    *,
    queued_at: Instant | None = None,
    labels: tuple[str, ...] = ("gpu",),
    runner: RunnerName | None = None,
    repository: str = "acme/widgets",
) -> Delivery:
    """Return a delivery about a job, in a short JSON form of these tests."""
    body = {
        "job": job,
        "state": state,
        "queued_at": at if queued_at is None else queued_at,
        "labels": labels,
        "runner": runner,
        "repository": repository,
    }
    return Delivery(f"d-{number}", "workflow_job", at, json.dumps(body).encode())


def parse(body: bytes, received_at: Instant) -> JobObserved | None:
    """Return the event in a body of `delivery`. Raises ValueError."""
    said = json.loads(body)
    if said["state"] not in set(JobState):
        return None
    state = JobState(said["state"])
    ended, begun = state is JobState.COMPLETED, state is JobState.IN_PROGRESS
    return JobObserved(
        received_at,
        JobId(said["job"]),
        state,
        said.get("repository", "acme/widgets"),
        tuple(said["labels"]),
        said["queued_at"],
        run_id=said.get("run"),
        runner_name=said["runner"],
        started_at=said.get("started_at", received_at if begun else None),
        completed_at=said.get("completed_at", received_at if ended else None),
        conclusion="success" if ended else None,
    )


async def cancelled(task: asyncio.Task[Any]) -> None:
    """Cancel a task and wait until it ended."""
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
