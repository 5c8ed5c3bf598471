"""A small world for tests of the pure rooms: a ledger, the time, and short methods for events.

Every method applies the events that it is named after, at `now`.
"""

import copy
from collections.abc import Callable, Iterable
from typing import Any

from autoscaler.ledger.ledger import Ledger
from autoscaler.ledger.records.state import LedgerState
from autoscaler.model import events as e
from autoscaler.model.catalogue import CapacityType, Catalogue
from autoscaler.model.changes import Record
from autoscaler.model.fleet import Fleet
from autoscaler.model.identifiers import (
    JobId,
    LaunchRequestId,
    MachineId,
    ProviderMachineId,
    RunnerName,
    SkuName,
)
from autoscaler.model.jobs.demand import DemandClass
from autoscaler.model.jobs.job import Job, JobState
from autoscaler.model.jobs.runners import Runner, RunnerState
from autoscaler.model.machines.failures import FailureClass
from autoscaler.model.machines.launch_requests import LaunchRequest
from autoscaler.model.machines.machine import Machine, MachineState
from autoscaler.model.operators import OperatorName
from autoscaler.model.plan import Intent, Launch, Plan
from autoscaler.planner.planner import plan
from tests.planner.fleets import EAST, apply_plan, catalogue, launched, next_name

START = 1000.0
WHY = "for 1 waiting job"
"""Why the launch requests of `World.record` were made, according to their events."""

ALICE = OperatorName("alice")
GPU = SkuName("gpu")
GPU_CLASS = DemandClass("org:acme", "Default", ("gpu",), (GPU,))


class World:
    """One ledger that was started at `START`, or at `now`."""

    def __init__(self, known: Catalogue | None = None, now: float = START) -> None:
        self.catalogue = known or catalogue()
        self.now = now
        self.ledger = Ledger(self.catalogue)
        self.plans = 0
        self.do(e.ControllerStarted, 0.0)

    @property
    def state(self) -> LedgerState:
        return self.ledger.state

    def do(self, event: Callable[..., e.Event], *values: Any) -> None:
        """Apply one event at `now`."""
        self.ledger.apply(event(self.now, *values))

    def after(self, seconds: float) -> "World":
        """Advance the clock, and apply TimePassed."""
        self.now += seconds
        self.do(e.TimePassed)
        return self

    # --- records ----------------------------------------------------------------------------------

    def job(self, job: int) -> Job:
        return self.state.jobs[JobId(job)]

    def call(self, call: str = "c") -> LaunchRequest:
        return self.state.launch_requests[LaunchRequestId(call)]

    def machine(self, machine: str) -> Machine:
        return self.state.machines[MachineId(machine)]

    def runner(self, name: str) -> Runner:
        return self.state.runners[RunnerName(name)]

    def states(self) -> dict[str, MachineState]:
        return {machine.id: machine.state for machine in self.state.machines.values()}

    def fleet(self) -> Fleet:
        return self.ledger.fleet(self.now)

    def plan(self) -> Plan:
        return plan(self.fleet())

    def intents(self, kind: type[Intent]) -> list[Any]:
        """The plan's intents of one kind."""
        return [intent for intent in self.plan().intents if isinstance(intent, kind)]

    def carry_out(self) -> Plan:
        """Plan, and record what was planned."""
        made = self.plan()
        self.plans += 1
        apply_plan(self.ledger, made, self.now, f"p{self.plans}-")
        return made

    # --- GitHub ---------------------------------------------------------------------------------

    def observe(
        self, job: int, state: JobState, labels: tuple[str, ...] = ("gpu",), **fields: Any
    ) -> None:
        """GitHub reports a job of `acme/widgets`."""
        known = self.state.jobs.get(JobId(job))
        fields.setdefault("queued_at", known.queued_at if known is not None else self.now)
        fields.setdefault("repository", "acme/widgets")
        self.ledger.apply(
            e.JobObserved(at=self.now, id=JobId(job), state=state, labels=labels, **fields)
        )

    def queue(self, *jobs: int, labels: tuple[str, ...] = ("gpu",)) -> None:
        for job in jobs:
            self.observe(job, JobState.QUEUED, labels)

    def starts(self, job: int, runner: str, labels: tuple[str, ...] = ("gpu",)) -> None:
        self.observe(job, JobState.IN_PROGRESS, labels, runner_name=RunnerName(runner))

    def completes(self, job: int, labels: tuple[str, ...] = ("gpu",), **fields: Any) -> None:
        self.observe(job, JobState.COMPLETED, labels, **fields)

    # --- the provider ---------------------------------------------------------------------------

    def keys(self, sku: str = "gpu") -> tuple[str, ...]:
        """The offerings of a SKU's first option."""
        option = self.catalogue.skus[SkuName(sku)].launch_options[0]
        return tuple(offering.key for offering in option.offerings)

    def record(self, slots: int, name: str = "c", sku: str = "gpu") -> tuple[MachineId, ...]:
        """Record a launch request. Its slots are `<name>0`, `<name>1`, ..."""
        ids = tuple(MachineId(f"{name}{n}") for n in range(slots))
        kind = self.catalogue.skus[SkuName(sku)].launch_options[0].capacity_types[0]
        launch = Launch(SkuName(sku), EAST, 0, kind, self.keys(sku), slots, WHY)
        self.do(e.LaunchRequestRecorded, LaunchRequestId(name), launch, ids, f"token-{name}")
        return ids

    def send(self, slots: int, name: str = "c", sku: str = "gpu") -> tuple[MachineId, ...]:
        """Record a launch request and send it."""
        ids = self.record(slots, name, sku)
        self.do(e.LaunchRequestPrepared, LaunchRequestId(name), f"request-{name}")
        self.do(e.LaunchRequestSent, LaunchRequestId(name))
        return ids

    def answer(
        self, name: str, *given: str, failures: Iterable[e.LaunchFailure] = (), retry: Any = None
    ) -> None:
        """The provider answers a launch request with these machines."""
        machines = tuple(launched(provider_id) for provider_id in given)
        self.do(e.LaunchRequestAnswered, LaunchRequestId(name), machines, tuple(failures), retry)

    def launch(self, count: int, name: str = "c", sku: str = "gpu") -> tuple[MachineId, ...]:
        """A launch request for `count` machines, answered with `i-<name>0`, ..."""
        ids = self.send(count, name, sku)
        self.answer(name, *(f"i-{machine}" for machine in ids))
        return ids

    def boot(self, *machines: str) -> None:
        for machine in machines:
            self.do(e.MachineAttested, MachineId(machine), "nonce")

    def make_ready(
        self, count: int = 1, name: str = "c", sku: str = "gpu"
    ) -> tuple[MachineId, ...]:
        """Launch machines and make them ready."""
        ids = self.launch(count, name, sku)
        for machine in ids:
            self.boot(machine)
            self.do(e.HealthChecksReported, machine, True, "ok")
        return ids

    def lists(self, *shown: e.ListedMachine, complete: bool = True) -> None:
        """Apply the provider's listing, which began now."""
        self.do(e.MachinesListed, EAST, self.now, complete, shown)

    def listed(self, machine: str, terminated: bool = False) -> e.ListedMachine:
        """Return a machine of this fleet as its provider lists it."""
        known = self.machine(machine)
        assert known.placement.provider_id is not None
        return listed(known.placement.provider_id, call=known.launch_request, terminated=terminated)

    def github_lists(self, *at_work: str) -> None:
        """Apply GitHub's listing of runners of every scope, which began now: these are online or busy."""
        for scope in self.catalogue.scopes:
            names = tuple(RunnerName(name) for name in at_work)
            self.do(e.RunnersListed, scope.key, self.now, names)

    # --- runners --------------------------------------------------------------------------------

    def name(self, machine: str, demand: DemandClass = GPU_CLASS) -> RunnerName:
        """Record an assignment."""
        runner = next_name(self.ledger, MachineId(machine))
        self.do(e.RunnerNamed, runner, MachineId(machine), demand)
        return runner

    def register(self, machine: str, demand: DemandClass = GPU_CLASS) -> RunnerName:
        """Record an assignment, and register its runner."""
        runner = self.name(machine, demand)
        self.do(e.RunnerRegistered, runner, 7)
        return runner

    def assignment(self, machine: str, demand: DemandClass = GPU_CLASS) -> RunnerName:
        """Register a runner, hand it over, and let it listen."""
        runner = self.register(machine, demand)
        self.do(e.ConfigurationSent, runner)
        self.do(e.RunnerListening, runner)
        return runner

    def ready(self, name: str = "c", sku: str = "gpu") -> RunnerName:
        """Launch a machine whose runner listens, and return the runner's name."""
        demand = DemandClass("org:acme", "Default", (sku,), (SkuName(sku),))
        return self.assignment(self.make_ready(1, name, sku)[0], demand)

    # --- the controller ---------------------------------------------------------------------------

    def restart(self, absence: float) -> None:
        """The controller is killed, and starts again after `absence` seconds with its store."""
        old = self.state
        records: list[Record] = [
            *old.launch_requests.values(),
            *old.machines.values(),
            *old.runners.values(),
            *old.jobs.values(),
            *old.reruns.values(),
        ]
        cooldowns = tuple(old.cooldowns.values())
        self.ledger = Ledger(self.catalogue.with_installations(old.catalogue.installations))
        self.ledger.restore(copy.deepcopy(records), cooldowns)
        self.now += absence
        self.do(e.ControllerStarted, absence)


def listed(
    provider_id: str,
    *,
    call: str = "c",
    installation: str = "0badcafe",
    terminated: bool = False,
    zone: str = "a",
    dollars: float = 1.0,
    reason: str = "",
    launch_time: str = "t0",
) -> e.ListedMachine:
    """A `gpu` machine as its provider lists it."""
    return e.ListedMachine(
        ProviderMachineId(provider_id),
        installation,
        LaunchRequestId(call),
        GPU,
        terminated,
        "g5.xlarge",
        zone,
        CapacityType.ON_DEMAND,
        dollars,
        (("east/G", 4),),
        "ami-1",
        launch_time,
        reason,
    )


def failure(
    kind: FailureClass, offering: str | None = None, code: str = "Code", message: str = "words"
) -> e.LaunchFailure:
    """One reason why a launch request failed."""
    return e.LaunchFailure(kind, code, message, offering)


def idle(world: World, name: str) -> bool:
    """Return True if a registration counts as supply."""
    return world.runner(name).state is RunnerState.LISTENING and not (
        world.runner(name).passed_over
    )
