"""Why jobs wait: a code for metrics, logs and runbooks, and a message for operators."""

from dataclasses import dataclass
from enum import StrEnum

from autoscaler.model.identifiers import Instant


class WaitCode(StrEnum):
    """Why a job waits.

    A machine or a runner is on its way:

    runner_idle           a runner for the job registers or is idle; GitHub assigns the job
    machine_ready         a machine is ready; its runner is about to register
    machine_booting       a machine is launching or booting
    launch_planned        a machine is about to be requested
    not_planned           the next plan decides

    A limit of fleet.yaml or of the account:

    max_machines          `max_machines` of the SKU
    fleet_machines        `limits.machines`
    fleet_dollars         `limits.dollars_per_hour`
    fair_share            the repository uses its `fair_share` of the SKU
    quota                 a quota of the provider is used up
    launch_rate           the provider's launch rate is used up for a moment
    registration_rate     `github.registrations` allows no further runner yet

    An operator decides:

    paused                an operator paused or drained the SKU, its provider or the fleet

    A failure. The first eight are the values of `FailureClass`, by which a launch option, offering, zone or
    scope is on hold:

    capacity, configuration, unsupported, throttled, boot_deadline, health_check, unknown, and `quota` above
    circuit_open          the SKU's or the launch option's circuit breaker is open
    no_offering           no provider of the SKU was read yet
    registration_on_hold  GitHub refuses registrations in the scope

    GitHub decides:

    job_unconfirmed       the controller asks GitHub for the job's current state
    not_assigned          GitHub did not assign the job to runners with its labels
    run_unknown, fork_not_allowed, public_repository_not_allowed, branch_not_allowed
                          the values of `Admission`
    """

    RUNNER_IDLE = "runner_idle"
    MACHINE_READY = "machine_ready"
    MACHINE_BOOTING = "machine_booting"
    LAUNCH_PLANNED = "launch_planned"
    NOT_PLANNED = "not_planned"
    MAX_MACHINES = "max_machines"
    FLEET_MACHINES = "fleet_machines"
    FLEET_DOLLARS = "fleet_dollars"
    FAIR_SHARE = "fair_share"
    QUOTA = "quota"
    LAUNCH_RATE = "launch_rate"
    REGISTRATION_RATE = "registration_rate"
    PAUSED = "paused"
    CAPACITY = "capacity"
    CONFIGURATION = "configuration"
    UNSUPPORTED = "unsupported"
    THROTTLED = "throttled"
    BOOT_DEADLINE = "boot_deadline"
    HEALTH_CHECK = "health_check"
    UNKNOWN = "unknown"
    CIRCUIT_OPEN = "circuit_open"
    NO_OFFERING = "no_offering"
    REGISTRATION_ON_HOLD = "registration_on_hold"
    JOB_UNCONFIRMED = "job_unconfirmed"
    NOT_ASSIGNED = "not_assigned"
    RUN_UNKNOWN = "run_unknown"
    FORK_NOT_ALLOWED = "fork_not_allowed"
    PUBLIC_REPOSITORY_NOT_ALLOWED = "public_repository_not_allowed"
    BRANCH_NOT_ALLOWED = "branch_not_allowed"


GITHUB_DECIDES = frozenset(
    {
        WaitCode.JOB_UNCONFIRMED,
        WaitCode.NOT_ASSIGNED,
        WaitCode.RUN_UNKNOWN,
        WaitCode.FORK_NOT_ALLOWED,
        WaitCode.PUBLIC_REPOSITORY_NOT_ALLOWED,
        WaitCode.BRANCH_NOT_ALLOWED,
    }
)
"""The last of these codes: each concerns a job that stands in no line yet."""


@dataclass(frozen=True, slots=True)
class WaitReason:
    """One reason why a job waits, or why a launch option is not used.

    `until` is when the reason ends by itself (a hold is over), or None if no time is known.
    """

    code: WaitCode
    message: str
    until: Instant | None = None


@dataclass(frozen=True, slots=True)
class Waiting:
    """Why the next oldest `count` jobs of a class wait. `reasons` has at least one reason.

    Several reasons follow the SKU's launch options, in order of preference.
    """

    count: int
    reasons: tuple[WaitReason, ...]
    blocked: bool = False
    """Whether no machine is on its way for these jobs."""

    @property
    def code(self) -> WaitCode:
        """Return the code of the first reason, which concerns the preferred launch option."""
        return self.reasons[0].code

    @property
    def message(self) -> str:
        """Return all reasons as one line."""
        return "; ".join(reason.message for reason in self.reasons)
