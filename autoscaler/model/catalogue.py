"""What can be launched, for whom and within which bounds: SKUs, launch_options, scopes, limits.

Built once from the configuration and the providers' answers, then read only. It decides
nothing about demand; see `demand` for which SKU may serve which job.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from autoscaler.model.identifiers import ProviderName, Seconds, SkuName
from autoscaler.model.installations import Installations
from autoscaler.model.interruptions import NO_RERUN

MINUTE: Seconds = 60.0
HOUR: Seconds = 3600.0
DEFAULT_LIFETIME: Seconds = 24 * HOUR


class OperatingSystem(StrEnum):
    """The runner's operating system, spelled as GitHub's default label."""

    LINUX = "linux"
    WINDOWS = "windows"


class Architecture(StrEnum):
    """The runner's processor architecture, spelled as GitHub's default label."""

    X64 = "x64"
    ARM64 = "arm64"


class CapacityType(StrEnum):
    """How a machine is bought."""

    SPOT = "spot"
    ON_DEMAND = "on-demand"


@dataclass(frozen=True, slots=True, order=True)
class Offering:
    """One thing a provider sells: instance type x zone x capacity type, with its price and weight.

    `dollars_per_hour` is for the SKU's operating system. `quota` names what limits it in the
    account (on EC2 a vCPU family), and `quota_units` is how much of it one machine takes.
    """

    provider: ProviderName
    instance_type: str
    zone: str
    capacity_type: CapacityType
    dollars_per_hour: float
    quota: str
    quota_units: int

    @property
    def key(self) -> str:
        """A stable name for cooldowns, history and metrics."""
        return f"{self.provider}/{self.instance_type}/{self.zone}/{self.capacity_type}"

    @property
    def quota_key(self) -> str:
        """The quota's name, unique across providers."""
        return f"{self.provider}/{self.quota}"


@dataclass(frozen=True, slots=True)
class LaunchOption:
    """One step of a launch_options: a provider and its offerings in the order of preference."""

    provider: ProviderName
    capacity_types: tuple[CapacityType, ...]
    offerings: tuple[Offering, ...]


@dataclass(frozen=True, slots=True)
class ScheduledMinimum:
    """From each firing of `cron` (five fields, in `timezone`) on, keep `minimum` ready for a while."""

    cron: str
    timezone: str
    duration: Seconds
    minimum: int


@dataclass(frozen=True, slots=True)
class IdlePolicy:
    """How many ready machines to keep, and how long one may stand ready."""

    minimum: int = 0
    timeout: Seconds = 10 * MINUTE
    schedule: tuple[ScheduledMinimum, ...] = ()
    max_age: Seconds = 24 * HOUR


@dataclass(frozen=True, slots=True)
class Deadlines:
    """How long a machine may stay in each stage before its assignment."""

    boot: Seconds = 15 * MINUTE
    health_checks: Seconds = 10 * MINUTE
    ready_silence: Seconds = 5 * MINUTE


@dataclass(frozen=True, slots=True)
class Access:
    """Which repositories may use a SKU: `fnmatch` globs over `owner/name`, without regard to case.

    `forks`: whether jobs may whose run's head repository is another one. The configuration says
    false unless fleet.yaml says true.
    """

    repositories: tuple[str, ...] = ("*",)
    forks: bool = True


@dataclass(frozen=True, slots=True)
class Sku:
    """A kind of runner. `labels` are its own (its name and the extra ones), lower case.

    `fair_share` is the part of `max_machines` that one repository may have while others wait.
    `rerun_interrupted` is how often a run's jobs are run again that died with their machines.
    """

    name: SkuName
    labels: frozenset[str]
    os: OperatingSystem
    arch: Architecture
    launch_options: tuple[LaunchOption, ...]
    unlabelled: bool = False
    max_machines: int | None = None
    fair_share: float = 1.0
    idle: IdlePolicy = field(default_factory=IdlePolicy)
    deadlines: Deadlines = field(default_factory=Deadlines)
    lifetime: Seconds = DEFAULT_LIFETIME
    access: Access = field(default_factory=Access)
    rerun_interrupted: int = 0

    @property
    def offered_labels(self) -> frozenset[str]:
        """Every label that a job of this SKU may ask for, lower case."""
        return self.labels | {"self-hosted", self.os.value, self.arch.value, NO_RERUN}

    @property
    def share(self) -> int | None:
        """How many machines a repository may have while others wait; None is no bound."""
        if self.max_machines is None or self.fair_share >= 1.0:
            return None
        return max(1, math.floor(self.max_machines * self.fair_share + 1e-9))


@dataclass(frozen=True, slots=True)
class Scope:
    """Where runners are registered: an organisation, or one repository when `repository` is set.

    `repositories` are globs over `owner/name` that narrow an organisation's scope.
    """

    owner: str
    repository: str | None
    runner_group: str = "Default"
    repositories: tuple[str, ...] = ("*",)

    @property
    def key(self) -> str:
        """`org:acme` or `repo:acme/widgets`."""
        if self.repository is None:
            return f"org:{self.owner}"
        return f"repo:{self.owner}/{self.repository}"


@dataclass(frozen=True, slots=True)
class Limits:
    """Caps over the whole fleet; `None` is no cap. `quotas` is keyed by `Offering.quota_key`."""

    machines: int | None = None
    dollars_per_hour: float | None = None
    quotas: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Rate:
    """A token bucket: `burst` at once, `per_second` more each second."""

    burst: int
    per_second: float

    def refilled(self, level: float, elapsed: Seconds) -> float:
        """The level after a while: never above the burst, and time does not run backwards."""
        return min(float(self.burst), level + max(0.0, elapsed) * self.per_second)


@dataclass(frozen=True, slots=True)
class RegistrationRate(Rate):
    """A token bucket for one account's runner registrations at GitHub.

    GitHub allows 1,500 registrations in 5 minutes, 10,000 an hour, and 900 points a minute of
    which one costs 5 (docs.github.com: REST API rate limits; Actions limits). The default
    stays under all three in any window, with some room for calls that leave late.
    """

    burst: int = 25
    per_second: float = 2.5


@dataclass(frozen=True, slots=True)
class LaunchRate:
    """How fast a provider takes launches: calls, and the machines in them where that is limited."""

    calls: Rate
    machines: Rate | None = None

    def refilled(self, tokens: "LaunchTokens", elapsed: Seconds) -> "LaunchTokens":
        """What may be launched after a while."""
        if self.machines is None:
            return LaunchTokens(self.calls.refilled(tokens.calls, elapsed))
        return LaunchTokens(
            self.calls.refilled(tokens.calls, elapsed),
            self.machines.refilled(tokens.machines, elapsed),
        )

    @property
    def full(self) -> "LaunchTokens":
        """What may be launched where nothing was for long."""
        machines = float(self.machines.burst) if self.machines is not None else math.inf
        return LaunchTokens(float(self.calls.burst), machines)

    def wait(self, tokens: "LaunchTokens") -> Seconds:
        """How long until there is a call with a machine in it."""
        wait = max(0.0, 1.0 - tokens.calls) / self.calls.per_second
        if self.machines is None:
            return wait
        return max(wait, (1.0 - tokens.machines) / self.machines.per_second)


@dataclass(frozen=True, slots=True)
class LaunchTokens:
    """How many calls a provider takes now, and how many machines."""

    calls: float
    machines: float = math.inf

    @property
    def enough(self) -> bool:
        """Whether there is a call with a machine in it."""
        return self.calls >= 1.0 and self.machines >= 1.0

    def less(self, calls: int, machines: int) -> "LaunchTokens":
        """What is left after so many."""
        return LaunchTokens(self.calls - calls, self.machines - machines)


@dataclass(frozen=True, slots=True)
class Catalogue:
    """Everything the planner may choose from. `skus` keeps the configured order.

    `launch_rates` is how fast a provider takes launches; one that is not named takes any.
    """

    fleet: str
    installations: Installations
    skus: Mapping[SkuName, Sku]
    scopes: tuple[Scope, ...]
    limits: Limits = field(default_factory=Limits)
    registration: RegistrationRate = field(default_factory=RegistrationRate)
    launch_rates: Mapping[ProviderName, LaunchRate] = field(default_factory=dict)

    def with_installations(self, installations: Installations) -> "Catalogue":
        """The same for an installation of these ids."""
        return replace(self, installations=installations)


def most_units(offerings: Iterable[Offering]) -> dict[str, int]:
    """What one machine from any of these takes at most of each quota that it may count against."""
    units: dict[str, int] = {}
    for offering in offerings:
        known = units.get(offering.quota_key, 0)
        units[offering.quota_key] = max(known, offering.quota_units)
    return units
