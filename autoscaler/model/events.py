"""Facts, in the order in which the controller learned them. Every change of a record is one.

An event says what happened, never what to do about it. `at` is the controller's clock.
"""

from dataclasses import dataclass

from autoscaler.model.catalogue import CapacityType
from autoscaler.model.demand import DemandClass
from autoscaler.model.failures import FailureClass, Reach
from autoscaler.model.identifiers import (
    CallId,
    InstallationId,
    Instant,
    JobId,
    MachineId,
    ProviderMachineId,
    ProviderName,
    RunnerName,
    Seconds,
    SkuName,
)
from autoscaler.model.interruptions import NoticeKind, RerunOutcome
from autoscaler.model.jobs import JobState
from autoscaler.model.machines import EndGround


@dataclass(frozen=True, slots=True)
class Event:
    """What all facts share: when the controller learned it (Unix seconds)."""

    at: Instant


# --- what GitHub said of jobs ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class JobObserved(Event):
    """GitHub spoke of a job: by a webhook, or (`read`) by answering a question about it.

    `runner_id` is GitHub's own id of the registration: names are anybody's to choose.
    """

    id: JobId
    state: JobState
    repository: str
    labels: tuple[str, ...]
    queued_at: Instant
    name: str = ""
    workflow: str = ""
    run_id: int | None = None
    run_attempt: int = 1
    runner_name: RunnerName | None = None
    started_at: Instant | None = None
    completed_at: Instant | None = None
    conclusion: str | None = None
    read: bool = False
    runner_id: int | None = None


@dataclass(frozen=True, slots=True)
class JobReadRequested(Event):
    """GitHub is about to be asked about a job."""

    id: JobId


# --- calls to providers ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CallRecorded(Event):
    """A call was decided on: its slots count from now on. Its exact request is not known yet."""

    call: CallId
    sku: SkuName
    provider: ProviderName
    rung: int
    capacity_type: CapacityType
    offerings: tuple[str, ...]
    slots: tuple[MachineId, ...]
    token: str


@dataclass(frozen=True, slots=True)
class CallPrepared(Event):
    """The exact request was resolved and is stored with the call, before it is sent."""

    call: CallId
    request: str


@dataclass(frozen=True, slots=True)
class CallSent(Event):
    """A request is about to leave (again, with the same token, when its outcome was unknown)."""

    call: CallId


@dataclass(frozen=True, slots=True)
class LaunchedMachine:
    """One machine in a provider's answer. `launch_time` is the provider's own text, if it gave one."""

    provider_id: ProviderMachineId
    instance_type: str
    zone: str
    capacity_type: CapacityType
    image: str = ""
    launch_time: str = ""


@dataclass(frozen=True, slots=True)
class LaunchFailure:
    """One reason why a call was not (wholly) served. `offering` is a key, or None for the whole call.

    `reach` is set where it reaches farther than its class says.
    """

    failure: FailureClass
    code: str
    message: str
    offering: str | None = None
    reach: Reach | None = None


@dataclass(frozen=True, slots=True)
class CallAnswered(Event):
    """The provider answered: some machines, some failures; what it gave less is failed slots."""

    call: CallId
    launched: tuple[LaunchedMachine, ...]
    failures: tuple[LaunchFailure, ...]
    retry_after: Seconds | None = None


@dataclass(frozen=True, slots=True)
class CallOutcomeUnknown(Event):
    """No answer came (time-out, broken connection): it may have been carried out."""

    call: CallId
    message: str


@dataclass(frozen=True, slots=True)
class CallWithdrawn(Event):
    """A recorded call was dropped before it was sent."""

    call: CallId
    reason: str


# --- what providers show -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ListedMachine:
    """One machine as a provider lists it. `call`, `machine` and ids come from our tags.

    `leaving` is one that is on its way down, whoever wanted that, and will serve nobody. `failure`
    is why the provider says that it ended, or is about to, where that has a class.
    """

    provider_id: ProviderMachineId
    installation: str
    call: CallId
    sku: SkuName
    terminated: bool
    instance_type: str
    zone: str
    capacity_type: CapacityType
    dollars_per_hour: float
    holds: tuple[tuple[str, int], ...]
    image: str = ""
    launch_time: str = ""
    reason: str = ""
    failure: FailureClass | None = None
    reach: Reach | None = None
    leaving: bool = False


@dataclass(frozen=True, slots=True)
class MachinesListed(Event):
    """A list of this fleet's machines at one provider. Only a `complete` one says anything by absence."""

    provider: ProviderName
    began_at: Instant
    complete: bool
    machines: tuple[ListedMachine, ...]


@dataclass(frozen=True, slots=True)
class QuotasRead(Event):
    """What the provider's account lets this fleet have, as (`Offering.quota_key`, units).

    What others use in the account is taken off already; a quota that is not named is not known.
    """

    provider: ProviderName
    quotas: tuple[tuple[str, int], ...]


# --- what machines say -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MachineSaidHello(Event):
    """A machine proved who it is and gave (the hash of) a nonce."""

    machine: MachineId
    nonce_hash: str


@dataclass(frozen=True, slots=True)
class MachineReportedStage(Event):
    """A machine told how far its boot has come."""

    machine: MachineId
    stage: str


@dataclass(frozen=True, slots=True)
class MachineGateReported(Event):
    """A machine's own health checks passed or failed; `detail` is bounded text."""

    machine: MachineId
    passed: bool
    detail: str


@dataclass(frozen=True, slots=True)
class MachineSeen(Event):
    """An authenticated word from a machine; `polled` if it asks for a grant, and so has none."""

    machine: MachineId
    polled: bool = False


@dataclass(frozen=True, slots=True)
class MachineExited(Event):
    """A machine reported that its runner has left and that it is powering off."""

    machine: MachineId
    detail: str


# --- ends --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EndRequested(Event):
    """The controller decided to end a machine, on one of the grounds that allow it."""

    machine: MachineId
    ground: EndGround
    reason: str


@dataclass(frozen=True, slots=True)
class EndAnswered(Event):
    """The provider took the request to end a machine, or (`error`) did not."""

    machine: MachineId
    error: str = ""


@dataclass(frozen=True, slots=True)
class ExaminationRequested(Event):
    """GitHub is about to be asked what became of a silent machine's runner and job."""

    machine: MachineId


@dataclass(frozen=True, slots=True)
class MachineExamined(Event):
    """What GitHub said of a silent machine: `finished` only if its work is provably over."""

    machine: MachineId
    finished: bool
    detail: str


@dataclass(frozen=True, slots=True)
class ConsoleRead(Event):
    """What the console of a machine that did not come up showed, or why nothing is known of it.

    `shown` is bounded, printable text without what looks like a credential. The machine may have
    left memory.
    """

    machine: MachineId
    shown: str


# --- runners -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RunnerNamed(Event):
    """A grant was recorded: this machine is to get a registration of this class."""

    name: RunnerName
    machine: MachineId
    demand: DemandClass


@dataclass(frozen=True, slots=True)
class RunnerMinted(Event):
    """GitHub made the registration."""

    name: RunnerName
    github_id: int


@dataclass(frozen=True, slots=True)
class RunnerMintFailed(Event):
    """GitHub did not make the registration; the machine is parked again, no grant before `retry_at`."""

    name: RunnerName
    failure: FailureClass
    message: str
    retry_at: Instant


@dataclass(frozen=True, slots=True)
class RunnerHandedOver(Event):
    """The JIT configuration is about to leave for its machine."""

    name: RunnerName


@dataclass(frozen=True, slots=True)
class RunnerAcknowledged(Event):
    """The machine has it and is about to start the runner."""

    name: RunnerName


@dataclass(frozen=True, slots=True)
class RunnerWithdrawalRequested(Event):
    """A registration that was not handed over is about to be deleted."""

    name: RunnerName
    reason: str


@dataclass(frozen=True, slots=True)
class RunnerWithdrawn(Event):
    """The registration was deleted before it was handed over, or was never made: still parked."""

    name: RunnerName
    reason: str


@dataclass(frozen=True, slots=True)
class RunnerClosed(Event):
    """The registration is over: deleted, refused, or its machine has left."""

    name: RunnerName
    reason: str


# --- ourselves ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ControllerStarted(Event):
    """We are back; `absence` is how long nobody was deciding (0 on the first start)."""

    absence: Seconds


@dataclass(frozen=True, slots=True)
class TimePassed(Event):
    """Nothing happened but the time: lets the ledger forget what is old."""


# --- interruptions -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MachineNoticed(Event):
    """A provider gave notice that a machine is taken back, or may be. `means_at` is when.

    `detail` is bounded text. The machine may be anybody's.
    """

    provider: ProviderName
    provider_id: ProviderMachineId
    kind: NoticeKind
    means_at: Instant
    detail: str = ""


@dataclass(frozen=True, slots=True)
class RerunRequested(Event):
    """GitHub is about to be asked to run these jobs of one run again."""

    jobs: tuple[JobId, ...]


@dataclass(frozen=True, slots=True)
class RerunAnswered(Event):
    """What GitHub made of it: an `outcome`, or None where these jobs can not be run again yet."""

    jobs: tuple[JobId, ...]
    outcome: RerunOutcome | None
    detail: str = ""


# --- what an operator confirms -----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OrphanConfirmed(Event):
    """An operator says that a machine, of which that cannot be told, is nobody's."""

    machine: MachineId


@dataclass(frozen=True, slots=True)
class InstallationTakenOver(Event):
    """An operator says that the store of this older installation is lost: its id is ours now."""

    installation: InstallationId


# --- jobs that nobody will run -----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class JobAbandoned(Event):
    """A job that GitHub will give to no runner any more, although it has not said so of the job."""

    id: JobId
    reason: str
