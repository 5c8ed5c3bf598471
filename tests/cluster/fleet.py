"""A whole controller over real pods: the real composition, with GitHub and the store in memory.

Time is real, and a test can make it jump. The tests play the agents step by step, with tokens of their pods.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from autoscaler.controller import composition
from autoscaler.controller.composition import Ports, Settings
from autoscaler.controller.ports.bootstrap import (
    Assigned,
    BootstrapRefusedError,
    HealthChecks,
    NotKnownYetError,
)
from autoscaler.controller.ports.github import RerunAnswer
from autoscaler.controller.ports.provider import Provider
from autoscaler.ledger.records.state import LedgerState
from autoscaler.model.catalogue import (
    Access,
    Architecture,
    CapacityType,
    Catalogue,
    LaunchOption,
    OperatingSystem,
    RegistrationRate,
    Scope,
    Sku,
)
from autoscaler.model.events import JobObserved
from autoscaler.model.identifiers import (
    Installations,
    Instant,
    JobId,
    ProviderName,
    RunnerName,
    Seconds,
    SkuName,
)
from autoscaler.model.jobs.job import JobState
from autoscaler.model.machines.interruptions import RerunOutcome
from autoscaler.model.machines.machine import ExitReason, Machine, MachineState
from autoscaler.providers.kubernetes.listing.machines import offering
from autoscaler.simulator.world.virtual_time import EPOCH
from tests.cluster.conftest import SKU, Place, until
from tests.controller.controllers import PACE, parse
from tests.controller.fakes import RecordingTelemetry, SequentialIds
from tests.controller.fakes_github import ScriptedGitHub
from tests.controller.fakes_lists import FakeLists
from tests.controller.fakes_store import FakeStore
from tests.patience import PATIENCE

REPOSITORY = "acme/widgets"
ONE_SKU = {SKU: 0}
AT_ONCE = 20
"""Number of agents that send requests at the same time."""


class JumpingClock:
    """Real time, plus the jumps so far."""

    def __init__(self) -> None:
        self._jumped: Seconds = 0.0

    def now(self) -> Instant:
        return EPOCH + asyncio.get_running_loop().time() + self._jumped

    def jump(self, seconds: Seconds) -> None:
        self._jumped += seconds

    async def sleep(self, seconds: Seconds) -> None:
        await asyncio.sleep(seconds)


@dataclass
class AcceptedReruns:
    """A GitHub that reruns every job, and remembers which."""

    jobs: list[JobId] = field(default_factory=list)

    async def rerun(
        self, repository: str, run_id: int, run_attempt: int, jobs: Sequence[JobId]
    ) -> RerunAnswer:
        self.jobs += jobs
        return RerunAnswer(tuple(jobs), RerunOutcome.ACCEPTED)


@dataclass(frozen=True)
class Origin:
    """What GitHub knows of a job from its beginning."""

    sku: SkuName
    run: int
    attempt: int = 1


def catalogue_of(
    place: Place, options: tuple[LaunchOption, ...], skus: Mapping[SkuName, int] = ONE_SKU
) -> Catalogue:
    """A catalogue of the place's installation. `skus` has the `rerun_interrupted` of each SKU."""

    def sku(name: SkuName) -> Sku:
        return Sku(
            name=name,
            labels=frozenset({name}),
            os=OperatingSystem.LINUX,
            arch=Architecture.X64,
            launch_options=options,
            access=Access(forks=True),
            rerun_interrupted=skus[name],
        )

    return Catalogue(
        fleet=place.name,
        installations=place.settings.installations,
        skus={name: sku(name) for name in skus},
        scopes=(Scope("acme", None),),
        registration=RegistrationRate(burst=10**9, per_second=1e9),
    )


def pods_option(place: Place) -> LaunchOption:
    """The launch option of the place's pods."""
    sold = offering(place.settings, place.settings.options[(SKU, 0)])
    return LaunchOption(place.settings.name, (CapacityType.ON_DEMAND,), (sold,))


class Fleet:
    """A running controller, with what surrounds it."""

    def __init__(
        self,
        place: Place,
        catalogue: Catalogue,
        providers: Mapping[ProviderName, Provider],
        others: Sequence[Place] = (),
    ) -> None:
        self.places = {one.settings.name: one for one in (place, *others)}
        self.clock = JumpingClock()
        self.github = ScriptedGitHub(latency=0.0, now=self.clock.now, clock_runs=True)
        self.reruns = AcceptedReruns()
        self.origins: dict[int, Origin] = {}
        self.broken_polls = 0
        self.store = FakeStore()
        ports = Ports(
            clock=self.clock,
            pacing=self.clock,
            background=self.clock,
            ids=SequentialIds(),
            telemetry=RecordingTelemetry(),
            store=self.store,
            github=self.github,
            lists=FakeLists(self.clock.now, steady=0.0),
            reruns=self.reruns,
            providers=providers,
        )
        self.parts = composition.Controller(
            ports,
            Settings(
                catalogue=lambda installations, _: _with(catalogue, installations),
                health_checks={name: HealthChecks() for name in catalogue.skus},
                parse=parse,
                pace=PACE,
            ),
            catalogue.installations,
        )

    @property
    def state(self) -> LedgerState:
        return self.parts.journal.ledger.state

    def machines(self, *states: MachineState) -> list[Machine]:
        """The machines in these states."""
        return [one for one in self.state.machines.values() if one.state in states]

    def place_of(self, machine: Machine) -> Place:
        """The place of a machine's pod."""
        return self.places[machine.provider]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the controller until the block ends."""
        await self.parts.resume(await self.store.load(0.0))
        loop = asyncio.create_task(self.parts.reconciler.run())
        try:
            yield
        finally:
            self.parts.reconciler.stop()
            self.parts.bootstrap.shut_down()
            await loop
            await self.parts.reconciler.drain(30.0)
        assert self.parts.crashes == []

    # --- GitHub ---------------------------------------------------------------------------------

    async def report(
        self,
        job: int,
        state: JobState,
        runner: RunnerName | None = None,
        origin: Origin | None = None,
    ) -> None:
        """GitHub reports a job. Without an origin, it has the first SKU and a run of its own."""
        if origin is not None:
            self.origins[job] = origin
        known = self.state.jobs.get(JobId(job))
        queued_at = known.queued_at if known is not None else self.clock.now()
        await self._record(job, state, queued_at, runner_name=runner)

    async def ends(self, job: int, conclusion: str) -> None:
        """GitHub ends a job, which failed or succeeded, and deletes its runner's registration."""
        now, runner = self.clock.now(), self.state.jobs[JobId(job)].runner_name
        if runner in self.github.registrations:
            self.github.remove(runner)
        await self._record(
            job,
            JobState.COMPLETED,
            now,
            runner_name=runner,
            completed_at=now,
            conclusion=conclusion,
        )

    async def _record(self, job: int, state: JobState, queued_at: Instant, **more: Any) -> None:
        origin = self.origins.setdefault(job, Origin(SKU, job))
        observed = JobObserved(
            self.clock.now(),
            JobId(job),
            state,
            REPOSITORY,
            (origin.sku,),
            queued_at,
            run_id=origin.run,
            run_attempt=origin.attempt,
            read=True,
            **more,
        )
        self.github.show(observed)
        await self.parts.journal.record(observed)

    # --- agents ---------------------------------------------------------------------------------

    async def ready(self, machine: Machine) -> None:
        """A pod's agent proves its identity, and passes its health checks."""
        name, place = str(machine.placement.provider_id).partition(".")[0], self.place_of(machine)
        token = await place.pod_token(name, place.settings.audience)
        bootstrap = self.parts.bootstrap
        async with asyncio.timeout(PATIENCE):
            while True:
                try:
                    await bootstrap.attest(machine.provider, token, nonce_of(machine), 1, "1.0")
                    break
                except NotKnownYetError:
                    # A busy API server did not check the token in time.
                    await asyncio.sleep(0.1)
        await bootstrap.health_checks(machine.id, nonce_of(machine), True, "ok", "2.336.0")

    async def listens(self, machine: Machine) -> RunnerName:
        """Make a machine ready, and start its runner when it is assigned."""
        await self.ready(machine)
        bootstrap, nonce = self.parts.bootstrap, nonce_of(machine)
        answer = await self._assigned(machine)
        await bootstrap.acknowledge(machine.id, nonce, answer.runner)
        self.github.connect(answer.runner)
        return answer.runner

    async def _assigned(self, machine: Machine) -> Assigned:
        """Poll for an assignment, again and again, as the agent does after a 503."""
        async with asyncio.timeout(PATIENCE):
            while True:
                try:
                    answer = await self.parts.bootstrap.poll(machine.id, nonce_of(machine), 10.0)
                except NotKnownYetError:
                    # The API server did not protect the pod in time.
                    self.broken_polls += 1
                    await asyncio.sleep(0.1)
                else:
                    if isinstance(answer, Assigned):
                        return answer

    async def works(self, machine: Machine, job: int) -> None:
        """Make a machine ready, and give its runner a job."""
        await self.starts(job, await self.listens(machine))

    async def starts(self, job: int, runner: RunnerName) -> None:
        """GitHub gives a runner a job."""
        self.github.occupy(runner)
        await self.report(job, JobState.IN_PROGRESS, runner)

    async def exits(self, machine: Machine) -> None:
        """The runner exits, and the pod succeeds."""
        with suppress(BootstrapRefusedError):
            nonce = nonce_of(machine)
            await self.parts.bootstrap.exited(machine.id, nonce, "runner exited", ExitReason.EXITED)
        name = str(machine.placement.provider_id).partition(".")[0]
        await self.place_of(machine).set_status(name, {"phase": "Succeeded"})

    async def launched(self, count: int) -> list[Machine]:
        """Return the launched machines once there are so many."""

        async def enough() -> bool:
            return len(self.machines(MachineState.LAUNCHED)) == count

        await until(enough, 0.2)
        return self.machines(MachineState.LAUNCHED)


def nonce_of(machine: Machine) -> str:
    """The secret of a machine's agent."""
    return f"nonce-of-{machine.id}"


def _with(catalogue: Catalogue, installations: Installations) -> Catalogue:
    return catalogue.with_installations(installations)
