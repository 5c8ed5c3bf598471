"""The Machine record: its states, its fields, and what can be concluded from them."""

from dataclasses import dataclass, field
from enum import StrEnum

from autoscaler.model.identifiers import (
    Instant,
    LaunchRequestId,
    MachineId,
    ProviderMachineId,
    ProviderName,
    RunnerName,
    Seconds,
    SkuName,
)
from autoscaler.model.machines.failures import FailureClass
from autoscaler.model.machines.interruptions import NoticeKind
from autoscaler.model.machines.unverified import UnverifiedReason


class MachineState(StrEnum):
    """Where a machine is in its life: in this order, except for the last two.

    requested    a slot of a launch request that the provider has not answered
    launched     the provider returned an instance ID
    booted       the agent called, and the controller verified the machine's identity
    ready        the health checks passed; no runner is registered for the machine
    assigned     a runner is registered for the machine; the machine may run a job
    exited       the agent reported that its runner exited
    terminating  the controller asked for the termination, or the provider shuts the machine down
    terminated   the machine does not exist any more
    failed       the launch, the boot or the health checks failed; `Machine.failure` has the class
    lost         two complete listings did not show the machine, and no termination was requested
    """

    REQUESTED = "requested"
    LAUNCHED = "launched"
    BOOTED = "booted"
    READY = "ready"
    ASSIGNED = "assigned"
    EXITED = "exited"
    TERMINATING = "terminating"
    TERMINATED = "terminated"
    FAILED = "failed"
    LOST = "lost"


_ENDS = {
    MachineState.FAILED,
    MachineState.TERMINATING,
    MachineState.TERMINATED,
    MachineState.LOST,
}

MACHINE_TRANSITIONS: dict[MachineState, frozenset[MachineState]] = {
    MachineState.REQUESTED: frozenset({MachineState.LAUNCHED, MachineState.FAILED}),
    MachineState.LAUNCHED: frozenset({MachineState.BOOTED, MachineState.ASSIGNED, *_ENDS}),
    MachineState.BOOTED: frozenset({MachineState.READY, MachineState.ASSIGNED, *_ENDS}),
    MachineState.READY: frozenset({MachineState.BOOTED, MachineState.ASSIGNED, *_ENDS}),
    MachineState.ASSIGNED: frozenset({MachineState.READY, MachineState.EXITED, *_ENDS}),
    MachineState.EXITED: frozenset(_ENDS),
    MachineState.TERMINATING: frozenset({MachineState.TERMINATED, MachineState.LOST}),
    MachineState.FAILED: frozenset(
        {
            MachineState.LAUNCHED,
            MachineState.TERMINATING,
            MachineState.TERMINATED,
            MachineState.LOST,
        }
    ),
    MachineState.TERMINATED: frozenset({MachineState.ASSIGNED, MachineState.FAILED}),
    MachineState.LOST: frozenset(
        {MachineState.ASSIGNED, MachineState.FAILED, MachineState.TERMINATED}
    ),
}
"""The states that may follow each state. Some transitions need an explanation.

- `launched -> assigned`, `booted -> assigned`: the store is a restored backup. The machine may have been
  assigned after the backup.
- `ready -> booted`: the agent attests again, with a new nonce.
- `assigned -> ready`: its registration was deleted before the machine got it, or it was assigned without a
  record and its agent polls for an assignment.
- `failed -> launched`: a listing shows the machine of a slot that the controller had written off.
- `terminated` or `lost` `-> assigned` or `failed`: a listing shows the machine again. It becomes `assigned`
  if it may run a job, else `failed`.
"""

_UNASSIGNED = frozenset(
    {MachineState.LAUNCHED, MachineState.BOOTED, MachineState.READY, MachineState.ASSIGNED}
)
REPORTED_FROM_ATTEMPT = 3
"""Report a machine to operators if it still exists at this request to terminate it."""

LIVE_STATES = frozenset(MachineState) - {MachineState.TERMINATED, MachineState.LOST}
DAY: Seconds = 86_400.0
BOOTING_STATES = (MachineState.REQUESTED, MachineState.LAUNCHED, MachineState.BOOTED)

KEPT_IN_QUARANTINE = frozenset(
    {MachineState.LAUNCHED, MachineState.BOOTED, MachineState.READY, MachineState.FAILED}
)
"""States in which a quarantined machine is not terminated. From `assigned` on it powers itself off."""

RELEASED_STATES = frozenset(
    {
        MachineState.LAUNCHED,
        MachineState.BOOTED,
        MachineState.READY,
        MachineState.ASSIGNED,
        MachineState.EXITED,
        MachineState.FAILED,
    }
)
"""States in which a machine is terminated at once if an operator says that no job needs it."""


class TerminationReason(StrEnum):
    """Why a machine ends: a code for metrics, logs, history and runbooks. `Machine.reason` is the message.

    The controller decides to terminate the machine, for one of these reasons alone:

    surplus              there are more machines than slots, or its SKU is not configured any more
    idle                 ready for the `idle.timeout` of its SKU
    max_age              ready for the `idle.max_age` of its SKU
    failed               its launch, its boot or its health checks failed; `Machine.failure` has the class
    deadline             it did not boot, become ready or fetch its assignment in time
    cannot_start         its provider cannot start it: no node takes the pod, or its image cannot be read
    exited               its runner exited, and it did not power itself off
    finished             GitHub completed its job half an hour ago, and the machine stayed
    silent_and_finished  its agent is silent, and GitHub shows that its runner has no job any more
    lifetime             it was assigned for the `lifetime` of its SKU
    operator             an operator released it
    drained              an operator drained it, its SKU or its provider
    interrupted          its provider interrupts it, and no job runs on it

    It ends without a request of the controller:

    powered_off          it powered itself off after its runner's work
    interrupted          as above: its provider took it back
    shut_down            someone else terminated it, or it shut down before its runner's work was over
    lost                 two complete listings did not show it
    """

    SURPLUS = "surplus"
    IDLE = "idle"
    MAX_AGE = "max_age"
    FAILED = "failed"
    DEADLINE = "deadline"
    CANNOT_START = "cannot_start"
    EXITED = "exited"
    FINISHED = "finished"
    SILENT_AND_FINISHED = "silent_and_finished"
    LIFETIME = "lifetime"
    OPERATOR = "operator"
    DRAINED = "drained"
    INTERRUPTED = "interrupted"
    POWERED_OFF = "powered_off"
    SHUT_DOWN = "shut_down"
    LOST = "lost"


FOUND_REASONS = frozenset(
    {TerminationReason.POWERED_OFF, TerminationReason.SHUT_DOWN, TerminationReason.LOST}
)
"""Reasons that the controller finds and never decides."""


class ExitReason(StrEnum):
    """Why a runner exited, as the agent reports it (docs/bootstrap.md, "Exit reasons").

    A job with root can report any of them. Any other text becomes `unknown`.
    """

    EXITED = "exited"
    VERSION_DEPRECATED = "version_deprecated"
    REGISTRATION_REFUSED = "registration_refused"
    NOT_STARTED = "not_started"
    UNUSED = "unused"
    NOT_CONNECTED = "not_connected"
    ENDED = "ended"
    HUNG = "hung"
    STOPPED = "stopped"
    UNKNOWN = "unknown"


SAID_WITHOUT_A_JOB = frozenset(ExitReason) - {
    ExitReason.EXITED,
    ExitReason.HUNG,
    ExitReason.STOPPED,
    ExitReason.UNKNOWN,
}
"""What the agent reports only if no job came (docs/bootstrap.md). From a machine with a job, a job says it."""


@dataclass(slots=True)
class Placement:
    """Where a machine runs and what it costs. The provider's answer fills it in."""

    dollars_per_hour: float
    """On-demand price that counts against the limits. The highest possible one while requested."""
    quota_usage: tuple[tuple[str, int], ...]
    """Quotas that the machine counts against, as (`Offering.quota_key`, units).

    While the machine is requested: every quota that its launch request could use.
    """
    provider_id: ProviderMachineId | None = None
    instance_type: str = ""
    zone: str = ""
    capacity_type: str = ""
    image: str = ""
    launch_time: str = ""
    host: str = ""
    """The node of a pod; empty before it has one, and for machines of other providers."""


@dataclass(slots=True)
class Progress:
    """How far a machine came, from its boot to its end. Moments are Unix seconds."""

    stage: str = ""
    """The last stage of the boot that the agent reported. Before: what the provider says that it waits for."""
    booted_at: Instant | None = None
    ready_at: Instant | None = None
    assigned_at: Instant | None = None
    ended_at: Instant | None = None
    """When the machine was terminated or lost."""
    runner_version: str = ""
    """Version of actions/runner that the health checks found; empty if unknown."""


@dataclass(slots=True)
class WorkEvidence:
    """What shows whether a machine may run a job. Moments are Unix seconds."""

    last_seen: Instant | None = None
    """When the agent last sent an authenticated request."""
    agent_seen: bool = False
    """Whether the agent attested or polled since the controller started.

    Other requests do not show that the machine is idle.
    """
    runner: RunnerName | None = None
    """The current or last registration of the machine."""
    tries: int = 0
    """Registrations for the machine so far."""
    may_run_job: bool = False
    """Whether the machine may have the JIT configuration of `runner`, and so may run a job."""
    unverified: UnverifiedReason | None = None
    """Why the machine may have been assigned without a record of it; None if there is no reason.

    For example, a machine with this fleet's tags whose launch request is not in the store. Such a
    machine is not surplus. An operator can say that no job needs it.
    """
    exit_reason: ExitReason | None = None
    """None until the agent reports the runner's exit."""
    finished_at: Instant | None = None
    """When GitHub first showed that the runner's work is over, if GitHub still shows this."""
    finished_reads: int = 0
    """Reads in a row, 15 minutes apart, that showed this. Two are proof."""
    read_at: Instant | None = None
    """When the controller last asked GitHub about the machine's runner and job."""
    unregistered_at: Instant | None = None
    """Since when GitHub shows that the job is completed and the registration deleted."""


@dataclass(slots=True)
class Termination:
    """Why a machine ends, and the controller's requests to terminate it."""

    reason: TerminationReason | None = None
    """Why the machine ends; None while there is no reason."""
    attempts: int = 0
    """Number of requests to terminate the machine so far."""
    error: str = ""
    """The provider's refusal of the last request, or empty."""
    provider_state: str = ""
    """The state that the provider lists for the machine after the request."""


@dataclass(slots=True)
class Interruption:
    """The provider's notices that it takes a machine back. Moments are Unix seconds."""

    kind: NoticeKind | None = None
    """The most severe notice."""
    at: Instant | None = None
    """When, according to that notice, the provider interrupts the machine."""
    taken_at: Instant | None = None
    """When it became known that the provider interrupted the machine while its runner ran.

    Either the agent reported that the operating system stopped the runner, or the machine
    disappeared and its agent had not reported the runner's exit.
    """


@dataclass(slots=True)
class Machine:
    """One machine, from its slot in a launch request until after its termination.

    A launch request creates one record for each machine that it asks for. The provider's answer
    gives the record an instance ID. The machine boots, proves its identity (attestation) and runs
    its health checks: it is ready. When a job waits, the controller registers a runner at GitHub
    and hands the registration over to the machine (assignment). The machine runs one job. Its agent
    reports the runner's exit, and the machine powers itself off or the controller terminates it.

    The record's own fields are its identity and its state. Moments are Unix seconds.
    """

    id: MachineId
    """Chosen by the controller before it asks the provider."""
    sku: SkuName
    provider: ProviderName
    launch_request: LaunchRequestId
    slot: int
    """Index in `LaunchRequest.slots`; -1 for a machine that a listing showed beyond all slots."""
    created_at: Instant
    """When the record was created, which is before the request was sent."""
    state: MachineState
    since: Instant
    """When the machine entered `state`."""
    placement: Placement
    reason: str = ""
    """Why the machine is in `state`, for operators."""
    failure: FailureClass | None = None
    """Why the machine is `failed`, or did not become ready."""
    due: Instant | None = None
    """When the planner must look at the machine even if no event arrives."""
    absence: Seconds = 0.0
    """Downtime of the controller while the machine was in `state`. It extends deadlines."""
    absent_since: Instant | None = None
    """Start of the first complete listing that did not show the machine."""
    nonce_hash: str = ""
    """Hash of the secret that authenticates the agent's requests after its attestation."""
    progress: Progress = field(default_factory=Progress)
    work: WorkEvidence = field(default_factory=WorkEvidence)
    termination: Termination = field(default_factory=Termination)
    interruption: Interruption = field(default_factory=Interruption)

    @property
    def offering(self) -> str:
        """Return the key of its offering (`Offering.key`), without the target."""
        place = self.placement
        return f"{self.provider}/{place.instance_type}/{place.zone}/{place.capacity_type}"

    @property
    def first_ready_at(self) -> Instant:
        """Return when the ready machine became ready first, before it lost an unused registration."""
        return self.progress.ready_at if self.progress.ready_at is not None else self.since

    @property
    def is_unassigned(self) -> bool:
        """Return True if, according to the store, the machine cannot run a job."""
        return self.state in _UNASSIGNED and not self.work.may_run_job

    @property
    def is_unverified(self) -> bool:
        """Return True if the machine may run a job and no operator has released it."""
        unverified = self.state is MachineState.ASSIGNED and self.work.unverified is not None
        return unverified and self.termination.reason is not TerminationReason.OPERATOR

    @property
    def does_not_terminate(self) -> bool:
        """Return True if the machine still exists after several requests to terminate it."""
        return (
            self.state is MachineState.TERMINATING
            and self.termination.attempts >= REPORTED_FROM_ATTEMPT
        )

    @property
    def provider_words(self) -> str:
        """Return the provider's explanation for a machine that it does not terminate."""
        return (
            self.termination.error
            or self.termination.provider_state
            or "nothing: the requests were accepted"
        )

    @property
    def occupies(self) -> bool:
        """Return True if the machine counts against the limits: it exists, or may exist."""
        if self.state is MachineState.FAILED:
            return self.placement.provider_id is not None
        return self.state in LIVE_STATES

    @property
    def prunable_from(self) -> Instant:
        """Return from when on a machine that does not exist any more may be removed from memory.

        A lost machine or an unfilled slot may appear in a listing within a day. GitHub may also name
        the job of an interrupted machine within a day.
        """
        found_later = self.state is MachineState.LOST or self.failure is FailureClass.UNKNOWN
        return self.since + (DAY if found_later or self.interruption.taken_at is not None else 0.0)
