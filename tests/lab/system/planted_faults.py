"""The faults to plant in a laboratory at work, and what the first page has to say about each."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from tests.lab.system import fault_acts as act
from tests.lab.system.loaded_lab import LoadedLab, Settings

Act = Callable[[LoadedLab], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class PlantedFault:
    """A fault, and the patterns of its words on the first page, in any case.

    One entry of "What is wrong" has to have the `cause` and the `action`: what an operator does, or what the
    controller does next if no operator has to act. `wrong` are words that mislead. The page has `patience` lab
    seconds to name the cause: longer where something has to last before it is a fault. `log` are beginnings of
    events of the log, some with the value of a field. The first such line shows that the controller knows. If
    only a metric shows it, `metric` is the beginning of its name, and its value rises. Without either, nothing
    but the page shows it. `prepare` changes fleet.yaml before the start. `small_disk`: the store is on a disk
    of a few megabytes.
    """

    plant: Act
    cause: str
    action: str
    lift: Act = act.nothing
    log: tuple[str, ...] = ()
    metric: str = ""
    wrong: str = ""
    patience: float = 1200.0
    prepare: Callable[[Settings], None] = act.as_before
    small_disk: bool = False


FAULTS = {
    "out of capacity": PlantedFault(
        act.no_capacity,
        lift=act.capacity_again,
        log=("launch_failed",),
        cause=r"out of capacity|InsufficientInstanceCapacity",
        action=r"tries to launch|(another|other|more|add) (zones?|instance types?)",
    ),
    "quota 0": PlantedFault(
        act.no_quota,
        lift=act.quota_again,
        log=("launch_failed",),
        cause=r"quota",
        action=r"(ask|request)[^.;]*(quota|increase)|Service Quotas",
        wrong=r"a machine under the quota ends|ends when a machine ends",
    ),
    "failing GPU check": PlantedFault(
        act.gpus_missing,
        lift=act.gpus_again,
        log=("health_checks_failed", "machine_not_ready"),
        cause=r"gpu_count",
        action=r"(rebuild|replace|repair|fix|new)[^.;]*image|driver (in|of) (its|the) image",
    ),
    "webhooks lost": PlantedFault(
        act.webhooks_lost,
        lift=act.webhooks_again,
        log=("delivery_missed", "redeliver"),
        patience=3000.0,
        cause=r"webhook",
        action=r"Recent deliveries|webhook URL|Advanced|the App.s webhook",
    ),
    "secondary rate limit": PlantedFault(
        act.secondary_limit,
        lift=act.github_answers,
        log=("list_not_read", "registration_failed", "sync_delayed", "app_failing"),
        cause=r"secondary rate limit",
        action=r"tries (again|to register)|by itself|github\.registrations|another App|a second App|more Apps",
    ),
    "primary rate limit": PlantedFault(
        act.primary_limit,
        lift=act.limit_reset,
        log=("list_not_read", "registration_failed", "sync_delayed", "app_failing"),
        cause=r"rate limit|requests[^.]*left this hour",
        action=r"resets?\b|another App|a second App|more Apps|next hour",
    ),
    "wrong runner group": PlantedFault(
        act.group_excludes,
        lift=act.group_admits,
        log=("runner_exited_without_job",),
        cause=r"runner group|does not admit",
        action=r"Settings > Actions > Runner groups|repository access",
    ),
    "label typo": PlantedFault(
        act.typo,
        lift=act.jobs_cancelled,
        log=("job_unmatched",),
        cause=r"linux\.g5x",
        action=r"did you mean|runs-on|add (one|a SKU)|correct|similar",
    ),
    "access": PlantedFault(
        act.outside_access,
        lift=act.jobs_cancelled,
        log=("job_unmatched",),
        cause=r"access[^.]*(admit|gadgets)|gadgets[^.]*access",
        action=r"access\.repositories|see access|admit them with access",
    ),
    "fork": PlantedFault(
        act.from_fork,
        lift=act.jobs_cancelled,
        log=("job_refused",),
        cause=r"fork",
        action=r"access\.forks|admit them with access",
    ),
    "machines do not terminate": PlantedFault(
        act.no_termination,
        lift=act.termination_again,
        log=("machine_not_terminated",),
        cause=r"do not terminate|still exist",
        action=r"autoscaler unverified|EC2 console|aws ec2 terminate",
    ),
    "AWS credentials expired": PlantedFault(
        act.credentials_expired,
        lift=act.credentials_renewed,
        log=("launch_failed", "list_incomplete"),
        cause=r"credentials|RequestExpired",
        action=r"(renew|refresh|replace|check|rotate)[^.;]*credentials|instance profile",
    ),
    "controller slow": PlantedFault(
        act.slow,
        lift=act.fast_again,
        metric="autoscaler_event_loop_lag_max_seconds",
        cause=r"controller slow|for the controller",
        action=r"CPU|processor|cores|other programs|load of its host",
    ),
    "disk filling": PlantedFault(
        act.disk_fills,
        lift=act.disk_is_emptied,
        cause=r"disk",
        action=r"(free|make|clear)[^.;]*(room|space)|enlarge|larger disk",
        small_disk=True,
    ),
    "runner version refused": PlantedFault(
        act.old_runner,
        lift=act.new_runner,
        log=("circuit_opened", "runner_exited_without_job"),
        cause=r"GitHub refuses[^.]*actions/runner|runner version refused",
        action=r"(build|rebuild|bake|publish|new|newer|replace)[^.;]*image",
    ),
    "runner version expires": PlantedFault(
        act.version_expires,
        lift=act.new_runner,
        metric="autoscaler_runner_version_deadline_timestamp_seconds",
        cause=r"will give no more jobs to actions/runner|runner version expires",
        action=r"(build|rebuild|bake|publish|new|newer|replace)[^.;]*image",
    ),
    "flood by one repository": PlantedFault(
        act.flood,
        lift=act.jobs_cancelled,
        log=("jobs_wait max_machines",),
        cause=r"acme/tools",
        action=r"fair_share|max_machines|cancel",
        prepare=act.few_cpu_machines,
    ),
    "silent machines": PlantedFault(
        act.machines_fall_silent,
        cause=r"silent|no heartbeat|not reported|no request",
        action=r"terminate|console|quarantine",
    ),
    "cost limit": PlantedFault(
        act.cost_limit,
        lift=act.no_cost_limit,
        log=("jobs_wait fleet_dollars",),
        cause=r"limit of \$",
        action=r"limits\.dollars_per_hour",
    ),
    "forgotten pause": PlantedFault(
        act.pause,
        lift=act.resume,
        log=("held_by_operator",),
        cause=r"paused",
        action=r"autoscaler resume",
    ),
}  # fmt: skip

PAIRS = (
    ("out of capacity", "failing GPU check"),
    ("quota 0", "cost limit"),
    ("webhooks lost", "secondary rate limit"),
    ("forgotten pause", "flood by one repository"),
    ("label typo", "wrong runner group"),
)
"""Faults at once that are easily taken for one another, or for one fault."""
