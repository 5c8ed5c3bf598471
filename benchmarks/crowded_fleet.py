"""Builds a ledger of any size in which many classes of jobs share labels.

Several SKUs may serve a class, and a class's runners may serve others, so the planner has to compare all of
them. Up to `BY_EVENTS` machines the fleet is built event by event. A larger fleet consists of copies of such a
part, because a machine at work takes 18 events.
"""

import random
from dataclasses import dataclass, replace

from autoscaler.ledger.ledger import Ledger
from autoscaler.model import events as e
from autoscaler.model.catalogue import (
    Access,
    Architecture,
    CapacityType,
    Catalogue,
    IdlePolicy,
    LaunchOption,
    Limits,
    Offering,
    OperatingSystem,
    RegistrationRate,
    Scope,
    Sku,
)
from autoscaler.model.changes import Record, copied
from autoscaler.model.identifiers import (
    InstallationId,
    Installations,
    Instant,
    JobId,
    LaunchRequestId,
    MachineId,
    ProviderMachineId,
    ProviderName,
    RunnerName,
    SkuName,
)
from autoscaler.model.jobs.demand import DemandClass
from autoscaler.model.jobs.job import Job, JobState
from autoscaler.model.jobs.runners import Runner, runner_name
from autoscaler.model.machines.launch_requests import LaunchRequest
from autoscaler.model.machines.machine import Machine
from autoscaler.model.plan import Launch

NOW: Instant = 1_800_000_000.0
EAST = ProviderName("east")
OWN = InstallationId("0badcafe")
LABELS = 20
REPOSITORY = "acme/widgets"
UNLIMITED = RegistrationRate(burst=10**9, per_second=1e9)

BY_EVENTS = 10_000
"""Maximum number of machines that are built event by event."""


@dataclass(frozen=True, slots=True)
class Crowd:
    """How many machines and queued jobs there are, in how many classes.

    Of a hundred machines `working` are at work, `listening` have an idle runner, `ready` are ready, and
    the rest boots. `jobs` wait beside those at work, each queued `apart` seconds after the one before.
    With `jobs_a_run` the jobs are of workflow runs, which is how GitHub lists them. A launch request has
    `a_request` machines of one SKU. Each SKU keeps `idle_minimum` machines ready.
    """

    machines: int
    jobs: int
    classes: int = 200
    ready: int = 4
    listening: int = 2
    working: int = 90
    skus: int = 20
    registration: RegistrationRate = UNLIMITED
    most_machines: int | None = None
    apart: float = 0.0371
    jobs_a_run: int | None = None
    a_request: int = 500
    idle_minimum: int = 0
    seed: int = 1

    def run_of(self, job: int) -> int | None:
        """Return the workflow run of a job, or None if jobs have none."""
        return None if self.jobs_a_run is None else 1 + job // self.jobs_a_run


def crowded(crowd: Crowd) -> Ledger:
    """Return the ledger of such a fleet at `NOW`."""
    times = max(1, crowd.machines // BY_EVENTS)
    part = replace(
        crowd,
        machines=crowd.machines // times,
        jobs=crowd.jobs // times,
        apart=crowd.apart * times,
    )
    ledger = _by_events(part)
    originals: list[Record] = [
        *ledger.state.launch_requests.values(),
        *ledger.state.machines.values(),
        *ledger.state.runners.values(),
        *ledger.state.jobs.values(),
    ]
    machine_of = {name: runner.machine for name, runner in ledger.state.runners.items()}
    for number in range(1, times):
        for record in originals:
            ledger.state.add(_copy(record, number, crowd, part, machine_of), stored=True)
    return ledger


def _copy(
    record: Record, number: int, crowd: Crowd, part: Crowd, machine_of: dict[RunnerName, MachineId]
) -> Record:
    """Return a copy with IDs of its own. A queued job is younger by `number` times `apart`."""

    def runner_of(name: RunnerName) -> RunnerName:
        return runner_name("ci", OWN, MachineId(f"{machine_of[name]}-{number}"), 1)

    copy, jobs = copied(record), number * (part.jobs + part.machines)
    match copy:
        case LaunchRequest():
            copy.id, copy.token = LaunchRequestId(f"{copy.id}-{number}"), f"{copy.token}-{number}"
            copy.slots = tuple(MachineId(f"{slot}-{number}") for slot in copy.slots)
        case Machine():
            copy.id = MachineId(f"{copy.id}-{number}")
            copy.launch_request = LaunchRequestId(f"{copy.launch_request}-{number}")
            copy.placement.provider_id = ProviderMachineId(f"i-{copy.id}")
            if copy.work.runner is not None:
                copy.work.runner = runner_of(copy.work.runner)
        case Runner():
            copy.name, copy.machine = (
                runner_of(copy.name),
                MachineId(f"{copy.machine}-{number}"),
            )
            copy.github_id = (copy.github_id or 0) + number * len(machine_of)
            copy.job = JobId(copy.job + jobs) if copy.job is not None else None
        case Job():
            copy.id = JobId(copy.id + jobs)
            copy.run_id = crowd.run_of(copy.id)
            if copy.runner_name is not None:
                copy.runner_name = runner_of(copy.runner_name)
            else:
                copy.queued_at += number * crowd.apart
                copy.updated_at += number * crowd.apart
    return copy


def _by_events(crowd: Crowd) -> Ledger:
    known = catalogue(crowd)
    ledger = Ledger(known)
    began = NOW - crowd.jobs * crowd.apart - 300.0
    ledger.apply(e.ControllerStarted(began, 0.0))
    classes = label_sets(crowd.classes)
    draw = random.Random(crowd.seed)
    for number in range(crowd.jobs):
        labels = classes[draw.randrange(len(classes))]
        at = NOW - (crowd.jobs - number) * crowd.apart
        queue(ledger, number + 1, labels, at, crowd.run_of(number + 1))
    skus = tuple(known.skus)
    demands = [one for labels in classes if (one := ledger.state.class_of(REPOSITORY, labels))]
    for number, start in enumerate(range(0, crowd.machines, crowd.a_request)):
        count = min(crowd.a_request, crowd.machines - start)
        _launch(ledger, known.skus[skus[number % len(skus)]], f"c{number}", count, NOW - 200.0)
    for number, machine in enumerate(tuple(ledger.state.machines)):
        share = (number * 61) % 100
        if share < crowd.working + crowd.listening + crowd.ready:
            _make_ready(ledger, machine, NOW - 100.0 + number / max(1, crowd.machines))
        if share < crowd.working + crowd.listening:
            runner = _listen(ledger, machine, demands)
            if share < crowd.working:
                job = crowd.jobs + 1 + number
                _work(ledger, runner, job, crowd.run_of(job))
    ledger.apply(e.TimePassed(NOW))
    ledger.take_changes()
    return ledger


def label_sets(count: int) -> list[tuple[str, ...]]:
    """Return single labels, then pairs. A runner with a pair of labels may serve jobs with either label."""
    pairs = [
        (f"label-{one:02}", f"label-{(one + apart) % LABELS:02}")
        for apart in range(1, LABELS // 2)
        for one in range(LABELS)
    ]
    return [*((f"label-{one:02}",) for one in range(LABELS)), *pairs][:count]


def catalogue(crowd: Crowd) -> Catalogue:
    """Return a catalogue of SKUs with half of the labels each. One SKU has all labels."""
    skus = {}
    for number in range(crowd.skus):
        first = number * LABELS // crowd.skus
        name = SkuName(f"sku-{number:02}")
        spread = LABELS // 2 if crowd.skus > 1 else LABELS
        labels = {f"label-{(first + n) % LABELS:02}" for n in range(spread)}
        offerings = tuple(
            Offering(EAST, f"g{first}.xlarge", zone, CapacityType.ON_DEMAND, 1.0, f"q{first}", 4)
            for zone in "abc"
        )
        skus[name] = Sku(
            name=name,
            labels=frozenset({name, *labels}),
            os=OperatingSystem.LINUX,
            arch=Architecture.X64,
            launch_options=(LaunchOption(EAST, (CapacityType.ON_DEMAND,), offerings),),
            idle=IdlePolicy(minimum=crowd.idle_minimum),
            access=Access(forks=True),
        )
    return Catalogue(
        fleet="ci",
        installations=Installations(OWN),
        skus=skus,
        scopes=(Scope("acme", None),),
        limits=Limits(machines=crowd.most_machines),
        registration=crowd.registration,
    )


def queue(
    ledger: Ledger, job: int, labels: tuple[str, ...], at: Instant, run: int | None = None
) -> None:
    """Apply that GitHub queued a job."""
    ledger.apply(e.JobObserved(at, JobId(job), JobState.QUEUED, REPOSITORY, labels, at, run_id=run))


def _launch(ledger: Ledger, sku: Sku, name: str, count: int, at: Instant) -> None:
    slots = tuple(MachineId(f"{name}-{n}") for n in range(count))
    option = sku.launch_options[0]
    keys = tuple(offering.key for offering in option.offerings)
    kind = option.capacity_types[0]
    call = LaunchRequestId(name)
    launch = Launch(sku.name, EAST, 0, kind, keys, count, "for 1 waiting job")
    ledger.apply(e.LaunchRequestRecorded(at, call, launch, slots, f"token-{name}"))
    ledger.apply(e.LaunchRequestPrepared(at, call, "{}"))
    ledger.apply(e.LaunchRequestSent(at, call))
    given = tuple(
        e.LaunchedMachine(
            ProviderMachineId(f"i-{slot}"),
            option.offerings[0].instance_type,
            "a",
            kind,
            "ami-1",
            "t0",
        )
        for slot in slots
    )
    ledger.apply(e.LaunchRequestAnswered(at, call, given, (), None))


def _make_ready(ledger: Ledger, machine: MachineId, at: Instant) -> None:
    ledger.apply(e.MachineAttested(at, machine, "nonce"))
    ledger.apply(e.HealthChecksReported(at, machine, True, "ok"))


def _listen(ledger: Ledger, machine: MachineId, demands: list[DemandClass]) -> Runner:
    """Register the machine's runner for a class that its SKU serves. It has no job yet."""
    sku = ledger.state.machines[machine].sku
    fitting = [demand for demand in demands if sku in demand.skus]
    demand = fitting[len(ledger.state.runners) % len(fitting)]
    name = runner_name("ci", OWN, machine, 1)
    ledger.apply(e.RunnerNamed(NOW - 90.0, name, machine, demand))
    ledger.apply(e.RunnerRegistered(NOW - 89.0, name, len(ledger.state.runners)))
    ledger.apply(e.ConfigurationSent(NOW - 88.0, name))
    ledger.apply(e.RunnerListening(NOW - 87.0, name))
    return ledger.state.runners[name]


def _work(ledger: Ledger, runner: Runner, job: int, run: int | None) -> None:
    """Apply that GitHub gave the runner a job."""
    labels = runner.demand.labels
    queue(ledger, job, labels, NOW - 95.0, run)
    ledger.apply(
        e.JobObserved(
            NOW - 80.0,
            JobId(job),
            JobState.IN_PROGRESS,
            REPOSITORY,
            labels,
            NOW - 95.0,
            run_id=run,
            runner_name=runner.name,
        )
    )
