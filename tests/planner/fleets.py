"""Catalogues and events for tests of the pure rooms: small, named, and nothing random."""

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
from autoscaler.model.identifiers import (
    InstallationId,
    Installations,
    JobId,
    LaunchRequestId,
    MachineId,
    ProviderMachineId,
    ProviderName,
    RunnerName,
    SkuName,
)
from autoscaler.model.jobs.job import JobState
from autoscaler.model.jobs.runners import runner_name
from autoscaler.model.plan import (
    Assign,
    CancelLaunchRequest,
    DeregisterRunner,
    Intent,
    Launch,
    MarkUnverified,
    Plan,
    ReadJob,
    ReadRun,
    ReadRunner,
    ResendLaunchRequest,
    Terminate,
)

EAST = ProviderName("east")
UNLIMITED = RegistrationRate(burst=10**9, per_second=1e9)


def offering(
    instance_type: str = "g5.xlarge",
    zone: str = "a",
    capacity_type: CapacityType = CapacityType.ON_DEMAND,
    dollars: float = 1.0,
    quota: str = "G",
    units: int = 4,
    target: str = "",
    until: float | None = None,
) -> Offering:
    """One offering of the provider `east`."""
    return Offering(EAST, instance_type, zone, capacity_type, dollars, quota, units, target, until)


def sku(
    name: str = "gpu",
    *,
    offerings: tuple[Offering, ...] | None = None,
    labels: tuple[str, ...] = (),
    max_machines: int | None = None,
    idle: IdlePolicy | None = None,
) -> Sku:
    """A Linux SKU with a launch_options of one option."""
    chosen = offerings or (offering(zone="a"), offering(zone="b"))
    kinds = tuple(dict.fromkeys(o.capacity_type for o in chosen))
    return Sku(
        name=SkuName(name),
        labels=frozenset({name, *labels}),
        os=OperatingSystem.LINUX,
        arch=Architecture.X64,
        launch_options=(LaunchOption(EAST, kinds, chosen),),
        max_machines=max_machines,
        idle=idle or IdlePolicy(),
        access=Access(forks=True),
    )


def catalogue(
    *skus: Sku, limits: Limits | None = None, registration: RegistrationRate = UNLIMITED
) -> Catalogue:
    """A catalogue for the organisation `acme`."""
    return Catalogue(
        fleet="ci",
        installations=Installations(InstallationId("0badcafe")),
        skus={s.name: s for s in (skus or (sku(),))},
        scopes=(Scope("acme", None),),
        limits=limits or Limits(),
        registration=registration,
    )


def queued(job: int, at: float, *labels: str, state: JobState = JobState.QUEUED) -> e.JobObserved:
    """GitHub queued a job of `acme/widgets`."""
    return e.JobObserved(at, JobId(job), state, "acme/widgets", labels or ("gpu",), at)


def apply_plan(ledger: Ledger, plan: Plan, now: float, prefix: str = "x") -> None:
    """Record a plan's intents as the executor does, with ids made of `prefix`."""
    for number, intent in enumerate(plan.intents):
        for event in _facts(ledger, intent, now, f"{prefix}{number}"):
            ledger.apply(event)


def _facts(ledger: Ledger, intent: Intent, now: float, name: str) -> list[e.Event]:
    match intent:
        case Launch():
            slots = tuple(MachineId(f"{name}-{n}") for n in range(intent.count))
            return [
                e.LaunchRequestRecorded(now, LaunchRequestId(name), intent, slots, f"token-{name}")
            ]
        case ResendLaunchRequest(call):
            return [e.LaunchRequestSent(now, call)]
        case CancelLaunchRequest(call, reason):
            return [e.LaunchRequestCancelled(now, call, reason)]
        case Assign(machine, demand):
            return [e.RunnerNamed(now, next_name(ledger, machine), machine, demand)]
        case DeregisterRunner(runner, reason):
            return [e.RunnerDeregistrationRequested(now, runner, reason)]
        case Terminate(machine, reason_code, reason):
            return [e.TerminationRequested(now, machine, reason_code, reason)]
        case ReadRunner(machine):
            return [e.RunnerReadRequested(now, machine)]
        case MarkUnverified(machine):
            return [e.MachineMarkedUnverified(now, machine)]
        case ReadJob() | ReadRun():
            return [_question(intent, now)]


def _question(intent: ReadJob | ReadRun, now: float) -> e.Event:
    if isinstance(intent, ReadRun):
        return e.RunReadRequested(now, intent.run_id)
    return e.JobReadRequested(now, intent.job)


def next_name(ledger: Ledger, machine: MachineId) -> RunnerName:
    """The name of a machine's next registration."""
    tries = ledger.state.machines[machine].work.tries
    return runner_name("ci", InstallationId("0badcafe"), machine, tries + 1)


def launched(provider_id: str, zone: str = "a", kind: str = "g5.xlarge") -> e.LaunchedMachine:
    """One machine of an answer."""
    return e.LaunchedMachine(
        ProviderMachineId(provider_id), kind, zone, CapacityType.ON_DEMAND, "ami-1", "t0"
    )
