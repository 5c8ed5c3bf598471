"""Fleets for tests and screenshots of the console: a whole controller on fakes in virtual time.

SKUs and jobs have PyTorch's names. A scene is played once. Afterwards its controller answers questions at the
last moment of the scene, also in another event loop.
"""

import asyncio
import json
import random
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from autoscaler.controller.composition import Settings
from autoscaler.controller.operators.fleet_queries import FleetQueries
from autoscaler.controller.ports.bootstrap import Assigned, BootstrapRefusedError
from autoscaler.controller.ports.github import OperatorError
from autoscaler.controller.reconciler import Pace
from autoscaler.model.catalogue import CapacityType, Catalogue, Limits, Offering
from autoscaler.model.events import JobObserved, LaunchFailure
from autoscaler.model.identifiers import Instant, JobId, RunnerName, Seconds
from autoscaler.model.jobs.job import JobState
from autoscaler.model.machines.failures import FailureClass
from autoscaler.model.machines.machine import ExitReason
from tests.controller.agents import Agent, say
from tests.controller.controllers import Controller, World, parse
from tests.controller.fakes_provider import Instance, Partly
from tests.controller.virtual_time import VirtualClock, run
from tests.planner.fleets import catalogue, offering, sku

A10G, T4, CPU = "linux.g5.4xlarge.nvidia.gpu", "linux.g4dn.xlarge", "linux.2xlarge"
WINDOWS, ARM = "windows.g4dn.xlarge", "linux.arm64.m7g.4xlarge"

JOBS: Mapping[str, tuple[tuple[str, str], ...]] = {
    CPU: (
        ("trunk", "linux-jammy-cuda12.8-py3.10-gcc11 / build"),
        ("pull", "linux-jammy-py3.10-clang12 / build"),
        ("pull", "linux-jammy-py3.14 / lint"),
    ),
    A10G: (
        ("trunk", "linux-jammy-cuda12.8-py3.10-gcc11 / test (default, 1, 5)"),
        ("trunk", "linux-jammy-cuda12.8-py3.10-gcc11 / test (default, 2, 5)"),
        ("inductor", "unit-test / inductor-test (inductor, 1, 2)"),
    ),
    T4: (("pull", "linux-jammy-cuda12.8 / test (distributed, 1, 3)"),),
    WINDOWS: (("trunk", "win-vs2022-cuda12.6-py3 / test (default, 1, 3)"),),
    ARM: (("linux-aarch64", "linux-jammy-aarch64-py3.10 / test (default, 1, 4)"),),
}
"""The jobs of one push by their label, as (workflow, name)."""

_HEARTBEAT_EVERY: Seconds = 60.0

_JOBS_A_PUSH = sum(map(len, JOBS.values()))


@dataclass(frozen=True, slots=True)
class JobFacts:
    """What GitHub says about a job beside its state."""

    workflow: str
    name: str
    run_id: int
    sha: str


class SceneClock(VirtualClock):
    """The clock of a scene. It stands still after the scene."""

    def __init__(self) -> None:
        self.stopped_at: Instant | None = None

    def now(self) -> Instant:
        return super().now() if self.stopped_at is None else self.stopped_at


class SceneWorld(World):
    """A world whose deliveries name each job, its run and its commit."""

    def __init__(self, known: Catalogue) -> None:
        self.jobs: dict[int, JobFacts] = {}
        self.standing = SceneClock()
        super().__init__(catalogue=known, clock=self.standing)

    def settings(self, pace: Pace) -> Settings:
        return replace(super().settings(pace), parse=self._parse)

    def _parse(self, body: bytes, received_at: Instant) -> JobObserved | None:
        event = parse(body, received_at)
        known = self.jobs.get(event.id) if event is not None else None
        if event is None or known is None:
            return event
        return replace(
            event,
            workflow=known.workflow,
            name=known.name,
            run_id=known.run_id,
            head_sha=known.sha,
            head_branch="main",
        )


@dataclass
class Behaviour:
    """How the machines of a SKU behave. Times are in seconds; the scene varies them by a third."""

    boot: Seconds = 90.0
    checks: Seconds = 12.0
    work: Seconds = 900.0
    boots: bool = True
    failing_check: str = ""
    exits_at_once: bool = False


@dataclass
class Scene:
    """A fleet that plays. Give it faults, then `play` it."""

    known: Catalogue
    seed: int = 1
    behaviours: dict[str, Behaviour] = field(default_factory=dict)
    refused: dict[str, LaunchFailure] = field(default_factory=dict)
    """By SKU, with what the provider refuses its launch requests from now on."""

    def __post_init__(self) -> None:
        self.world = SceneWorld(self.known)
        self.random = random.Random(self.seed)
        self.controller: Controller
        self._tasks: set[asyncio.Task[None]] = set()
        self._next_job = 51_000_000_001
        self._pushes = 0

    @property
    def queries(self) -> FleetQueries:
        """The answers about the fleet, as of the end of the scene."""
        return self.controller.queries

    @property
    def now(self) -> Instant:
        """The time of the scene."""
        return self.world.clock.now()

    def play(self, script: Callable[["Scene"], Coroutine[Any, Any, None]]) -> "Scene":
        """Start a controller, run the script in virtual time, and stop the clock at its end."""
        run(self._play(script))
        return self

    async def _play(self, script: Callable[["Scene"], Coroutine[Any, Any, None]]) -> None:
        self.controller = Controller(self.world)
        self.world.east.on_launch = self._answer_launch
        self.world.east.on_instance = self._switch_on
        self.controller.start()
        await asyncio.sleep(5.0)
        await script(self)
        self.world.standing.stopped_at = self.now

    # --- jobs -----------------------------------------------------------------------------------

    async def push(self) -> None:
        """Queue the jobs of a push to the trunk."""
        self._pushes += 1
        sha = f"{self.random.getrandbits(160):040x}"
        for label, jobs in JOBS.items():
            if label in self.known.skus:
                for job in jobs:
                    await self.queue(label, *job, sha=sha)

    async def queue(self, label: str, workflow: str = "", name: str = "", sha: str = "") -> int:
        """Queue a job, and return its number."""
        job = self._next_job
        self._next_job += 7
        workflows = sorted({one for jobs in JOBS.values() for one, _ in jobs})
        place = workflows.index(workflow) if workflow in workflows else len(workflows)
        facts = JobFacts(workflow, name, 17_000_000_000 + 100 * self._pushes + place, sha)
        self.world.jobs[job] = facts
        await self._say(job, JobState.QUEUED, None, (label,))
        return job

    async def _say(
        self, job: int, state: JobState, runner: RunnerName | None, labels: tuple[str, ...]
    ) -> None:
        """Deliver a webhook about a job, and let GitHub show the same when it is asked."""
        known = self.world.github.actions.jobs.get(JobId(job))
        queued_at = known.queued_at if known is not None else self.now
        self.world.github.show(
            JobObserved(
                self.now,
                JobId(job),
                state,
                "acme/widgets",
                labels,
                queued_at,
                runner_name=runner,
            )
        )
        await say(self.controller, job, state, runner, labels)

    def _take(self, label: str) -> int | None:
        """Return the oldest queued job with this label, as GitHub gives it to an idle runner."""
        jobs = self.controller.state.jobs.values()
        waiting = [job for job in jobs if job.state is JobState.QUEUED and job.labels == (label,)]
        oldest = min(waiting, key=lambda one: (one.queued_at, one.id), default=None)
        return oldest.id if oldest is not None else None

    # --- machines -------------------------------------------------------------------------------

    def _answer_launch(self, request: str) -> None:
        order = json.loads(request)
        failure = self.refused.get(order["sku"])
        if failure is not None:
            failures = tuple(replace(failure, offering=key) for key in order["offerings"])
            self.world.east.launch_script.append(Partly(0, failures))

    def _switch_on(self, instance: Instance) -> None:
        task = asyncio.get_running_loop().create_task(self._live(instance))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _live(self, instance: Instance) -> None:
        how = self.behaviours.get(instance.sku, Behaviour())
        await asyncio.sleep(self._about(how.boot))
        if not how.boots:
            return
        agent = Agent(self.controller, instance)
        try:
            await agent.attest()
            await asyncio.sleep(self._about(how.checks))
            if how.failing_check:
                await agent.health_checks(passed=False, detail=how.failing_check)
            else:
                await agent.health_checks()
                await self._serve(agent, how)
        except BootstrapRefusedError:
            pass
        self.world.east.shut_down(instance.id)

    async def _serve(self, agent: Agent, how: Behaviour) -> None:
        while not isinstance(assigned := await agent.poll(50.0), Assigned):
            pass
        await agent.acknowledge(assigned.runner)
        (label,) = self.world.github.registrations[assigned.runner].labels
        self.world.github.connect(assigned.runner)
        await asyncio.sleep(2.0)
        if how.exits_at_once:
            await agent.exit("cannot connect", ExitReason.EXITED)
            return
        job = self._take(label)
        if job is not None:
            await self._say(job, JobState.IN_PROGRESS, assigned.runner, (label,))
            await self._send_heartbeats(agent, self._about(how.work))
            await self._say(job, JobState.COMPLETED, assigned.runner, (label,))
        if assigned.runner in self.world.github.registrations:
            self.world.github.remove(assigned.runner)
        await agent.exit()

    async def _send_heartbeats(self, agent: Agent, work: Seconds) -> None:
        """Let a job run for so long. Its machine says that it is alive, as the agent does."""
        end = self.now + work
        while self.now < end:
            await asyncio.sleep(min(_HEARTBEAT_EVERY, end - self.now))
            await self.controller.bootstrap.heartbeat(agent.machine, agent.nonce)

    def _about(self, seconds: Seconds) -> Seconds:
        return seconds * self.random.uniform(0.67, 1.33)


def options(name: str, dollars: float, zones: str = "ab") -> tuple[Offering, ...]:
    """Return on-demand offerings in some zones."""
    family = name.partition(".")[0]
    return tuple(
        offering(name, f"us-east-1{zone}", CapacityType.ON_DEMAND, dollars, f"quota-{family}")
        for zone in zones
    )


def pytorch(limits: Limits | None = None, cpus: int | None = None) -> Catalogue:
    """Return a small part of PyTorch's fleet. `cpus` is the limit of its CPU machines."""
    return catalogue(
        sku(A10G, offerings=options("g5.4xlarge", 1.624)),
        sku(T4, offerings=options("g4dn.xlarge", 0.526)),
        sku(CPU, offerings=options("c5.2xlarge", 0.34), max_machines=cpus),
        sku(WINDOWS, offerings=options("g4dn.xlarge", 0.71)),
        sku(ARM, offerings=options("m7g.4xlarge", 0.653)),
        limits=limits,
    )


def refusal(kind: FailureClass, code: str, message: str) -> LaunchFailure:
    """Return a refusal of launch requests in a provider's words."""
    return LaunchFailure(kind, code, message)


NO_CAPACITY = refusal(
    FailureClass.CAPACITY,
    "InsufficientInstanceCapacity",
    "We currently do not have sufficient g5.4xlarge capacity in the Availability Zone you requested",
)


def refuse_registrations(scene: Scene) -> None:
    """Let GitHub refuse every registration from now on."""
    errors = (OperatorError("403: Resource not accessible by integration") for _ in range(1000))
    scene.world.github.script("register", *errors)


def job_ids(scene: Scene) -> list[JobId]:
    """Return the jobs in the controller's memory."""
    return list(scene.controller.state.jobs)
