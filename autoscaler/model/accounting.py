"""What the time of jobs and machines was spent on: the words of the metrics, and their bounds."""

from dataclasses import dataclass
from enum import StrEnum

from autoscaler.model.identifiers import Instant, ProviderName, Seconds, SkuName

_DAY: Seconds = 86_400.0


class WaitStage(StrEnum):
    """A part of a job's wait, by the machine that ran it. The parts of a wait add up to it.

    decide         no machine is requested for it yet, or its machine is ready and gets no registration yet:
                   limits, holds and `github.registrations` show here
    launch         from the launch request to the provider's answer
    boot           from this answer until the agent proved the machine's identity
    health_checks  from there until the machine is ready for the first time
    register       from the decision to register its runner until the runner listens at GitHub
    pick_up        from there until GitHub reports the job as in progress
    other          the whole wait of a job whose machine the controller does not know
    """

    DECIDE = "decide"
    LAUNCH = "launch"
    BOOT = "boot"
    HEALTH_CHECKS = "health_checks"
    REGISTER = "register"
    PICK_UP = "pick_up"
    OTHER = "other"


class MachineUse(StrEnum):
    """What a machine's time bought, from the provider's answer to the machine's end.

    boot           from the provider's answer until the machine was ready for the first time
    ready          from there until its job started, or until its end if it ran none
    job            its job
    end            from the end of its job to the machine's end
    failed_launch  the whole time of a machine that never became ready
    """

    BOOT = "boot"
    READY = "ready"
    JOB = "job"
    END = "end"
    FAILED_LAUNCH = "failed_launch"


@dataclass(frozen=True, slots=True)
class Usage:
    """What the time of machines bought on one day, of one SKU at one provider: one use, or the sum of several.

    `day` counts from 1970-01-01 in UTC. A use belongs to the day on which it ended. `repository` is that of the
    job, and empty for other uses. `times` is the number of uses: of jobs, boots or failed launches.
    """

    day: int
    provider: ProviderName
    sku: SkuName
    repository: str
    use: MachineUse
    seconds: Seconds
    dollars: float
    times: int = 1


def day_of(at: Instant) -> int:
    """Return the day of a moment, as `Usage` counts days."""
    return int(at // _DAY)


class FailureCause(StrEnum):
    """Why a job failed.

    infrastructure  its machine was interrupted, lost, shut down or terminated under it, or its runner hung or
                    was stopped
    code            any other job with the conclusion `failure`
    """

    INFRASTRUCTURE = "infrastructure"
    CODE = "code"


class RunState(StrEnum):
    """What a workflow run does: one of its jobs runs, or all of its open jobs wait for a runner."""

    RUNNING = "running"
    WAITING = "waiting"
