"""Events: facts in the order in which the controller learned them. Only events change records.

Reports of agents are authenticated before they become events. A machine that a provider's listing does not show
is not proven to be terminated: the ledger decides that. No event has a JIT configuration, which is a secret.
"""

from dataclasses import dataclass, field

from autoscaler.model.catalogue import CapacityType
from autoscaler.model.cooldowns import RateLimit
from autoscaler.model.identifiers import (
    InstallationId,
    Instant,
    JobId,
    LaunchRequestId,
    MachineId,
    ProviderMachineId,
    ProviderName,
    RunnerName,
    Seconds,
    SkuName,
)
from autoscaler.model.jobs.demand import DemandClass
from autoscaler.model.jobs.job import JobState, RunOrigin
from autoscaler.model.jobs.runner_group_excess import RunnerGroup
from autoscaler.model.machines.failures import FailureClass, FailureScope
from autoscaler.model.machines.interruptions import NoticeKind, RerunOutcome
from autoscaler.model.machines.machine import ExitReason, TerminationReason
from autoscaler.model.operators import HoldKind, HoldTarget, OperatorName
from autoscaler.model.plan import Launch
from autoscaler.model.reasons.spells import FaultSpell
from autoscaler.model.reasons.waiting import WaitReason


@dataclass(frozen=True, slots=True)
class Event:
    """A fact that the controller learned."""

    at: Instant
    """When the controller learned the fact, which may be later than when it became true."""


# --- GitHub: jobs and workflow runs ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class JobObserved(Event):
    """GitHub reported a job, by a webhook or (`read`) in the answer to a request.

    `runner_id` is GitHub's ID of the registration. Anyone can choose a runner's name, but not its ID.
    `head_sha` and `head_branch` are those of the job's run, or empty.
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
    head_sha: str = ""
    head_branch: str = ""


@dataclass(frozen=True, slots=True)
class JobReadRequested(Event):
    """The controller is about to read a job at GitHub."""

    id: JobId


@dataclass(frozen=True, slots=True)
class RunRead(Event):
    """GitHub reported where a run comes from."""

    run_id: int
    origin: RunOrigin


@dataclass(frozen=True, slots=True)
class RunReadRequested(Event):
    """The controller is about to read a workflow run at GitHub."""

    run_id: int


@dataclass(frozen=True, slots=True)
class JobAbandoned(Event):
    """GitHub will not give this job to any runner, although it has not reported the job's end."""

    id: JobId
    reason: str


@dataclass(frozen=True, slots=True)
class WaitReasonsChanged(Event):
    """Since `since`, jobs of this class have no machine on its way for these reasons; empty: all have one."""

    demand: DemandClass
    since: Instant
    reasons: tuple[WaitReason, ...]


@dataclass(frozen=True, slots=True)
class FaultChanged(Event):
    """A fault began, or ended if its spell has an end."""

    spell: FaultSpell


# --- launch requests ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LaunchRequestRecorded(Event):
    """The controller decided to send a launch request. Its slots count against limits from now on."""

    launch_request: LaunchRequestId
    launch: Launch
    slots: tuple[MachineId, ...]
    token: str


@dataclass(frozen=True, slots=True)
class LaunchRequestPrepared(Event):
    """The exact bytes of the request (`body`) are known. They are stored before the request is sent."""

    launch_request: LaunchRequestId
    body: str


@dataclass(frozen=True, slots=True)
class LaunchRequestSent(Event):
    """The request is about to be sent, for the first time or again with the same token."""

    launch_request: LaunchRequestId


@dataclass(frozen=True, slots=True)
class LaunchedMachine:
    """One machine in a provider's answer. `launch_time` is the provider's text, or empty.

    `created`: the answer shows that this request created the machine, and no earlier one of the same content.
    """

    provider_id: ProviderMachineId
    instance_type: str
    zone: str
    capacity_type: CapacityType
    image: str = ""
    launch_time: str = ""
    created: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class LaunchFailure:
    """One reason why a provider did not launch all machines of a request.

    `code` is that of the provider's error, or empty. `offering` is a key, or None if the whole request failed.
    `scope` is set if the failure concerns more than its class says.
    """

    failure: FailureClass
    code: str
    message: str
    offering: str | None = None
    scope: FailureScope | None = None

    @property
    def text(self) -> str:
        """Return `code: message`, of bounded length."""
        return ": ".join(filter(None, (self.code, self.message)))[:300]


@dataclass(frozen=True, slots=True)
class LaunchRequestAnswered(Event):
    """The provider answered with machines and failures. Slots without a machine fail.

    A long answer is split into several events. All but the last have `more` set and only machines.
    """

    launch_request: LaunchRequestId
    launched: tuple[LaunchedMachine, ...]
    failures: tuple[LaunchFailure, ...]
    retry_after: Seconds | None = None
    more: bool = False


@dataclass(frozen=True, slots=True)
class LaunchOutcomeUnknown(Event):
    """No answer arrived (time-out, broken connection). The provider may have launched machines.

    `retry_after` is set if the provider named a time before which it refuses requests.
    """

    launch_request: LaunchRequestId
    message: str
    retry_after: Seconds | None = None


@dataclass(frozen=True, slots=True)
class LaunchRequestCancelled(Event):
    """A launch request was cancelled before it was sent."""

    launch_request: LaunchRequestId
    reason: str


# --- agents, and the terminations of machines -----------------------------------------------------


@dataclass(frozen=True, slots=True)
class MachineAttested(Event):
    """A machine proved its identity. Its further requests are authenticated with a nonce.

    `host` is the node of a pod, or empty if its proof does not name it.
    """

    machine: MachineId
    nonce_hash: str
    host: str = ""


@dataclass(frozen=True, slots=True)
class MachineReportedStage(Event):
    """A machine reported the stage of its boot."""

    machine: MachineId
    stage: str


@dataclass(frozen=True, slots=True)
class HealthChecksReported(Event):
    """A machine's health checks passed or failed. `detail` is text of bounded length.

    `runner_version` is the version of actions/runner on the machine, or empty if it is unknown.
    """

    machine: MachineId
    passed: bool
    detail: str
    runner_version: str = ""


@dataclass(frozen=True, slots=True)
class MachineSeen(Event):
    """A machine sent an authenticated request. `polled`: it asks for an assignment, so it has none."""

    machine: MachineId
    polled: bool = False


@dataclass(frozen=True, slots=True)
class MachineExited(Event):
    """A machine reported that its runner exited and that it is powering off.

    `reason` and `detail` (text of bounded length) come from the machine.
    """

    machine: MachineId
    detail: str
    reason: ExitReason = ExitReason.UNKNOWN


@dataclass(frozen=True, slots=True)
class TerminationRequested(Event):
    """The controller decided to terminate a machine."""

    machine: MachineId
    reason_code: TerminationReason
    reason: str


@dataclass(frozen=True, slots=True)
class TerminationAnswered(Event):
    """The provider accepted the request to terminate a machine, or refused it with `error`."""

    machine: MachineId
    error: str = ""


@dataclass(frozen=True, slots=True)
class RunnerReadRequested(Event):
    """The controller is about to read a silent machine's runner and job at GitHub."""

    machine: MachineId


@dataclass(frozen=True, slots=True)
class MachineMarkedUnverified(Event):
    """A silent machine counts as assigned, because it may have been before the controller started."""

    machine: MachineId


@dataclass(frozen=True, slots=True)
class RunnerRead(Event):
    """GitHub answered about a machine's runner and job. `finished`: the work is provably over.

    `unregistered`: no listing shows the runner, and GitHub answered 404 for the runner's ID.
    """

    machine: MachineId
    finished: bool
    detail: str
    unregistered: bool = False


@dataclass(frozen=True, slots=True)
class ConsoleRead(Event):
    """The console output of a machine that did not become ready, or why it could not be read.

    `shown` is printable text of bounded length; text that looks like a credential is removed. The
    machine may not be in memory any more.
    """

    machine: MachineId
    shown: str


# --- a provider's listings ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ListedMachine:
    """One machine in a provider's listing."""

    provider_id: ProviderMachineId
    installation: str
    """From the machine's tags, as are `launch_request` and `sku`."""
    launch_request: LaunchRequestId
    sku: SkuName
    terminated: bool
    instance_type: str
    zone: str
    capacity_type: CapacityType
    dollars_per_hour: float
    quota_usage: tuple[tuple[str, int], ...]
    image: str = ""
    launch_time: str = ""
    reason: str = ""
    """Why the machine is terminated or shuts down, in the provider's words. They begin with `error`."""
    failure: FailureClass | None = None
    """The class of `reason`, if it has one."""
    scope: FailureScope | None = None
    leaving: bool = False
    """Whether the machine shuts down."""
    deleted: bool = False
    """Whether a client, perhaps this controller, deleted the machine before it ended. Only pods have it set."""
    cannot_start: bool = False
    """Whether the machine cannot start: no host takes it, or its image cannot be read.

    It stays until the controller terminates it. `reason` and `failure` say why.
    """
    not_admitted: bool = False
    """Whether the machine ended because its host refused it. `reason` says why.

    Kubelet may refuse a pod that has run, when it starts again. Only pods have it set.
    """
    assigned: bool = False
    """Whether the provider shows that a controller wanted to send it a JIT configuration. Only pods do."""
    state: str = ""
    """The provider's name of the machine's state."""
    host: str = ""
    """The node of a pod, if it has one."""
    error: str = ""
    """The provider's code of `reason`, if it has one."""


@dataclass(frozen=True, slots=True)
class MachinesListed(Event):
    """A listing of the fleet's machines at one provider.

    Only a `complete` listing says something about machines that it does not show. A long listing is
    split into several events. All but the last have `more` set. The last one names in `shown` the
    machines of the earlier ones.
    """

    provider: ProviderName
    began_at: Instant
    complete: bool
    machines: tuple[ListedMachine, ...]
    more: bool = False
    shown: frozenset[ProviderMachineId] = frozenset()


@dataclass(frozen=True, slots=True)
class QuotasRead(Event):
    """What this fleet may use of the account's quotas, as (`Offering.quota_key`, units).

    What others use in the account is already subtracted. A missing quota is unknown.
    """

    provider: ProviderName
    quotas: tuple[tuple[str, int], ...]


# --- GitHub: registrations ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RunnerNamed(Event):
    """The controller decided to register a runner of this class for a machine."""

    name: RunnerName
    machine: MachineId
    demand: DemandClass


@dataclass(frozen=True, slots=True)
class RunnerRegistered(Event):
    """GitHub created the registration."""

    name: RunnerName
    github_id: int


@dataclass(frozen=True, slots=True)
class RunnerRegistrationFailed(Event):
    """GitHub did not create the registration. Its machine is ready again; try again at `retry_at`.

    `limit` is the rate limit that stopped it, or None.
    """

    name: RunnerName
    failure: FailureClass
    message: str
    retry_at: Instant
    limit: RateLimit | None = None


@dataclass(frozen=True, slots=True)
class ConfigurationSent(Event):
    """The JIT configuration is about to be sent to its machine."""

    name: RunnerName


@dataclass(frozen=True, slots=True)
class RunnerListening(Event):
    """The machine has the JIT configuration and is about to start the runner."""

    name: RunnerName


@dataclass(frozen=True, slots=True)
class RunnerDeregistrationRequested(Event):
    """The controller is about to delete a registration that no machine got."""

    name: RunnerName
    reason: str


@dataclass(frozen=True, slots=True)
class RunnerDeregistered(Event):
    """The registration was deleted before its machine got it, or never created. The machine is ready."""

    name: RunnerName
    reason: str


@dataclass(frozen=True, slots=True)
class RunnerClosed(Event):
    """The registration is over: GitHub deleted or refused it, or its machine is terminated."""

    name: RunnerName
    reason: str


@dataclass(frozen=True, slots=True)
class RunnerGroupRead(Event):
    """GitHub has shown an organization's runner group. `scope` is `Scope.key`."""

    scope: str
    runner_group: str
    group: RunnerGroup


@dataclass(frozen=True, slots=True)
class RunnersListed(Event):
    """A complete listing of a scope's runners, which began at `began_at`.

    `at_work` are the runners that are online or busy. A long listing is split into several events. All
    but the last have `more` set.
    """

    scope: str
    began_at: Instant
    at_work: tuple[RunnerName, ...]
    more: bool = False


# --- interruptions and reruns ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MachineNoticed(Event):
    """A provider announced that it will, or may, interrupt a machine at `means_at`.

    `detail` is text of bounded length. The machine may belong to another fleet.
    """

    provider: ProviderName
    provider_id: ProviderMachineId
    kind: NoticeKind
    means_at: Instant
    detail: str = ""


@dataclass(frozen=True, slots=True)
class RerunRequested(Event):
    """The controller is about to ask GitHub to rerun these jobs of one workflow run."""

    jobs: tuple[JobId, ...]


@dataclass(frozen=True, slots=True)
class RerunAnswered(Event):
    """GitHub answered a request to rerun jobs. `outcome` is None if they cannot be rerun yet."""

    jobs: tuple[JobId, ...]
    outcome: RerunOutcome | None
    detail: str = ""


# --- operators ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MachineReleasedByOperator(Event):
    """An operator says that no job needs this machine (`autoscaler terminate`), or forces its termination."""

    machine: MachineId
    by: OperatorName
    forced: bool = False


@dataclass(frozen=True, slots=True)
class InstallationAdopted(Event):
    """An operator adopts an installation whose store is lost (`autoscaler adopt`)."""

    installation: InstallationId
    by: OperatorName


@dataclass(frozen=True, slots=True)
class HeldByOperator(Event):
    """An operator pauses, drains or quarantines a target (`autoscaler pause`, `drain`, `quarantine`)."""

    kind: HoldKind
    target: HoldTarget
    by: OperatorName


@dataclass(frozen=True, slots=True)
class ResumedByOperator(Event):
    """An operator ends the holds of a target (`autoscaler resume`)."""

    target: HoldTarget
    by: OperatorName


@dataclass(frozen=True, slots=True)
class RetriedByOperator(Event):
    """An operator has corrected what holds back a SKU, a provider or the fleet (`autoscaler retry`)."""

    target: HoldTarget
    by: OperatorName


@dataclass(frozen=True, slots=True)
class ConfigurationReloaded(Event):
    """A changed fleet.yaml is in force (`autoscaler reload`, SIGHUP). `changed` are the keys as in messages."""

    by: OperatorName
    changed: tuple[str, ...]


# --- the controller -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ControllerStarted(Event):
    """The controller started. `absence` is its downtime (0 at the first start)."""

    absence: Seconds


@dataclass(frozen=True, slots=True)
class CircuitClosed(Event):
    """A SKU's circuit breaker closes because its image was replaced.

    `detail` is text of bounded length for operators.
    """

    sku: SkuName
    detail: str


@dataclass(frozen=True, slots=True)
class ImageReplaced(Event):
    """A SKU launches another image than when its circuit breaker opened. `detail` is as in CircuitClosed."""

    sku: SkuName
    detail: str


@dataclass(frozen=True, slots=True)
class TimePassed(Event):
    """Time passed.

    The ledger expires jobs, marks idle runners and jobs as passed over, retries jobs on hold, gives up
    reruns, and prunes records that ended long ago.
    """
