"""The Machine record: something that can carry a runner, from the wish for it to its end."""

from dataclasses import dataclass
from enum import StrEnum

from autoscaler.model.failures import FailureClass
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
from autoscaler.model.interruptions import NoticeKind


class MachineState(StrEnum):
    """requested -> launched -> booted -> ready -> assigned -> exited -> ending -> gone.

    failed and lost are off that way: failed says why in `failure`, lost is a machine that two
    complete lists did not show although nobody ended it.
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


_OFF_THE_WAY = {
    MachineState.FAILED,
    MachineState.TERMINATING,
    MachineState.TERMINATED,
    MachineState.LOST,
}

MACHINE_TRANSITIONS: dict[MachineState, frozenset[MachineState]] = {
    MachineState.REQUESTED: frozenset({MachineState.LAUNCHED, MachineState.FAILED}),
    MachineState.LAUNCHED: frozenset({MachineState.BOOTED, MachineState.ASSIGNED, *_OFF_THE_WAY}),
    MachineState.BOOTED: frozenset(
        {MachineState.BOOTED, MachineState.READY, MachineState.ASSIGNED, *_OFF_THE_WAY}
    ),
    MachineState.READY: frozenset({MachineState.BOOTED, MachineState.ASSIGNED, *_OFF_THE_WAY}),
    MachineState.ASSIGNED: frozenset(
        {MachineState.READY, MachineState.BOOTED, MachineState.EXITED, *_OFF_THE_WAY}
    ),
    MachineState.EXITED: frozenset({MachineState.READY, *_OFF_THE_WAY}),
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
"""`launched -> assigned` and `booted -> assigned` are of a restored store, whose machines went on since
the backup. `failed -> launched` is a slot that was written off and whose machine appeared after all; a lost
or gone machine that is shown again is possibly assigned, or was never assigned and is of no use."""

_UNASSIGNED = frozenset(
    {MachineState.LAUNCHED, MachineState.BOOTED, MachineState.READY, MachineState.ASSIGNED}
)
SHOWN_AT_GITHUB_WITHIN: Seconds = 60.0
"""A list begun this long after a start shows every runner that an earlier process handed over."""

REPORTED_FROM_ATTEMPT = 3
"""From this request to terminate on, a machine that still runs is reported to operators."""

LIVE_STATES = frozenset(MachineState) - {MachineState.TERMINATED, MachineState.LOST}
DAY: Seconds = 86_400.0
BOOTING_STATES = (MachineState.REQUESTED, MachineState.LAUNCHED, MachineState.BOOTED)


class TerminationReason(StrEnum):
    """Why the controller may end a machine; there is no other reason."""

    SURPLUS = "surplus"
    IDLE = "idle"
    MAX_AGE = "max_age"
    DEADLINE = "deadline"
    EXITED = "exited"
    SILENT_AND_FINISHED = "silent_and_finished"
    LIFETIME = "lifetime"
    OPERATOR = "operator"
    INTERRUPTED = "interrupted"
    FINISHED = "finished"


class ExitReason(StrEnum):
    """Why a runner left, as its machine's agent says it (docs/bootstrap.md, "Exit reasons").

    A job with root can say any of them. `unknown` stands for every word that is not in this list.
    """

    EXITED = "exited"
    VERSION_DEPRECATED = "version_deprecated"
    REGISTRATION_REFUSED = "registration_refused"
    NOT_STARTED = "not_started"
    UNUSED = "unused"
    NOT_CONNECTED = "not_connected"
    SEAT_CLOSED = "seat_closed"
    HUNG = "hung"
    STOPPED = "stopped"
    UNKNOWN = "unknown"


@dataclass(slots=True)
class Machine:
    """One machine. Times are Unix seconds, money dollars an hour.

    `quota_usage` are the quotas it counts against, as (`Offering.quota_key`, units): for a machine in
    `requested` every quota its call could draw on. `due` is when the planner must look at it
    again even if nothing happens. `unverified` marks a machine that may have been assigned without our
    knowing, as one with our tag whose call we do not know: never surplus, and an operator may confirm
    that it is nobody's. `agent_seen` says that its agent has
    said hello or polled since the controller started; other words prove no idleness. `absence` is
    our own measured downtime within `state`. `interruption` is the gravest notice that its
    provider gave of it, `interrupted_at` the moment that the notice means; `taken_at` says when it became
    known that its provider took it from its runner: its agent reported the stop, or it was found gone
    without a report of the exit. `runner_version` is the
    version of actions/runner that its health checks found, empty where it is not known;
    `exit_reason` is None until its agent reports the runner's exit. `runner_read_at` is when GitHub was
    last asked about its work; `unregistered_at` is since when GitHub shows that its job is completed
    and its registration gone, whatever its agent says.
    `terminate_attempts` counts the
    requests to terminate it; `terminate_error` is the provider's refusal of the last one, and
    `provider_state` what the provider's list shows of it despite them.
    """

    id: MachineId
    sku: SkuName
    provider: ProviderName
    launch_request: LaunchRequestId
    slot: int
    state: MachineState
    since: Instant
    created_at: Instant
    dollars_per_hour: float
    quota_usage: tuple[tuple[str, int], ...]
    due: Instant | None = None
    provider_id: ProviderMachineId | None = None
    instance_type: str = ""
    zone: str = ""
    capacity_type: str = ""
    image: str = ""
    launch_time: str = ""
    nonce_hash: str = ""
    stage: str = ""
    booted_at: Instant | None = None
    ready_at: Instant | None = None
    assigned_at: Instant | None = None
    ended_at: Instant | None = None
    last_seen: Instant | None = None
    runner: RunnerName | None = None
    tries: int = 0
    handed_over: bool = False
    unverified: bool = False
    agent_seen: bool = False
    absence: Seconds = 0.0
    absent_since: Instant | None = None
    finished_at: Instant | None = None
    finished_reads: int = 0
    failure: FailureClass | None = None
    reason: str = ""
    reason_code: TerminationReason | None = None
    terminate_attempts: int = 0
    terminate_error: str = ""
    provider_state: str = ""
    interruption: NoticeKind | None = None
    interrupted_at: Instant | None = None
    taken_at: Instant | None = None
    runner_version: str = ""
    exit_reason: ExitReason | None = None
    runner_read_at: Instant | None = None
    unregistered_at: Instant | None = None

    def is_unused(self, started_at: Instant) -> bool:
        """Whether it is certain that nothing was handed over to it, since we started at that moment.

        A store that was restored may be older than an assignment: the machine itself has to have spoken.
        """
        return self.is_unassigned and self._is_known(started_at)

    def is_assignment_unknown(self, started_at: Instant, listed_at: Instant) -> bool:
        """Whether it is from before the start, silent since, and GitHub has not shown who works.

        `listed_at` is when the older of all scopes' lists of registrations was begun. What GitHub
        showed before the machine itself was found says nothing of it.
        """
        told_from = max(started_at + SHOWN_AT_GITHUB_WITHIN, self.since)
        return self.is_unassigned and not self._is_known(started_at) and listed_at < told_from

    @property
    def is_unassigned(self) -> bool:
        """Whether nothing was handed over to it, as far as the store knows."""
        return self.state in _UNASSIGNED and not self.handed_over

    def _is_known(self, started_at: Instant) -> bool:
        return self.agent_seen or self.created_at >= started_at

    @property
    def is_unverified(self) -> bool:
        """Whether it may be at work for all that is known, and nobody confirmed otherwise."""
        waits = self.state is MachineState.ASSIGNED and self.unverified
        return waits and self.reason_code is not TerminationReason.OPERATOR

    @property
    def does_not_terminate(self) -> bool:
        """Whether it is still there although its provider was asked again and again to terminate it."""
        return (
            self.state is MachineState.TERMINATING
            and self.terminate_attempts >= REPORTED_FROM_ATTEMPT
        )

    @property
    def provider_words(self) -> str:
        """Return what the provider says of a machine that it does not terminate."""
        return self.terminate_error or self.provider_state or "nothing: the requests were accepted"

    @property
    def occupies(self) -> bool:
        """Whether it still counts in the caps: it is there, or may be."""
        if self.state is MachineState.FAILED:
            return self.provider_id is not None
        return self.state in LIVE_STATES

    @property
    def prunable_from(self) -> Instant:
        """Return when a machine that does not exist any more may be pruned from memory.

        A lost machine and an unfilled slot may turn up in a list for another day. For another day,
        too, GitHub may name the job of a machine that was taken from its runner.
        """
        found_later = self.state is MachineState.LOST or self.failure is FailureClass.UNKNOWN
        return self.since + (DAY if found_later or self.taken_at is not None else 0.0)
