"""The catalogue: SKUs, launch options, offerings, scopes, limits and rates.

It is built from the configuration and the providers' answers, and is read-only. `demand` has the rules
for which SKU may serve which job.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from autoscaler.model.identifiers import Installations, Instant, ProviderName, Seconds, SkuName

MINUTE: Seconds = 60.0
HOUR: Seconds = 3600.0
DEFAULT_LIFETIME: Seconds = 24 * HOUR

LARGEST_REQUEST = 1000
"""Machines in one launch request to a provider that is not in `Catalogue.largest_requests`."""


NO_RERUN = "no-rerun"
"""The label of a job that must not be rerun. Every SKU has it."""


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
    CAPACITY_BLOCK = "capacity-block"


@dataclass(frozen=True, slots=True, order=True)
class Offering:
    """One instance type in one zone as one capacity type, with its price and quota usage.

    `dollars_per_hour` is for the SKU's operating system. `quota` is the account's quota that limits
    the offering (on EC2 a vCPU family). One machine uses `quota_units` of it. `target` names what the
    machine is launched into (on EC2 a placement group or a capacity reservation), empty for nothing: what
    is short there is not short elsewhere. From `until` on, no job starts there, because the provider takes
    the machines back soon.
    """

    provider: ProviderName
    instance_type: str
    zone: str
    capacity_type: CapacityType
    dollars_per_hour: float
    quota: str
    quota_units: int
    target: str = ""
    until: Instant | None = None

    @property
    def key(self) -> str:
        """Return a stable name for cooldowns, history and metrics."""
        key = f"{self.provider}/{self.instance_type}/{self.zone}/{self.capacity_type}"
        return f"{key}/{self.target}" if self.target else key

    @property
    def quota_key(self) -> str:
        """Return the quota's name, unique across providers."""
        return f"{self.provider}/{self.quota}"


@dataclass(frozen=True, slots=True)
class LaunchOption:
    """One launch option of a SKU: a provider and its offerings in order of preference.

    `longest_wait` is how long a launched machine may wait for a host before it boots, such as a pod for a node.
    """

    provider: ProviderName
    capacity_types: tuple[CapacityType, ...]
    offerings: tuple[Offering, ...]
    longest_wait: Seconds = 0.0

    @property
    def until(self) -> Instant | None:
        """Return the moment from which on no job starts on its machines, or None."""
        ends = (one.until for one in self.offerings if one.until is not None)
        return min(ends, default=None)


@dataclass(frozen=True, slots=True)
class ScheduledMinimum:
    """Keep `minimum` machines ready for `duration` after each time that `cron` matches in `timezone`.

    `cron` has five fields.
    """

    cron: str
    timezone: str
    duration: Seconds
    minimum: int


@dataclass(frozen=True, slots=True)
class IdlePolicy:
    """How many ready machines to keep, and for how long a machine may be ready and unused."""

    minimum: int = 0
    timeout: Seconds = 10 * MINUTE
    schedule: tuple[ScheduledMinimum, ...] = ()
    max_age: Seconds = 24 * HOUR


@dataclass(frozen=True, slots=True)
class Deadlines:
    """How long a machine may take for each stage before its assignment."""

    boot: Seconds = 15 * MINUTE
    health_checks: Seconds = 10 * MINUTE
    ready_silence: Seconds = 5 * MINUTE


@dataclass(frozen=True, slots=True)
class Access:
    """Which jobs may use a SKU, as `access_rules` applies it.

    `repositories`: `fnmatch` globs for `owner/name`, case-insensitive. `forks`: whether jobs of forks may use
    it. A job is of a fork if its run's head repository is another repository.
    `public_repositories`: whether jobs of public repositories may use it. `branches`: `fnmatch` globs for the
    branch on which the run is, case-sensitive; empty for any run. `contact`: where the author of a refused job
    can ask.
    """

    repositories: tuple[str, ...] = ("*",)
    forks: bool = field(kw_only=True)
    contact: str = ""
    public_repositories: bool = True
    branches: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Sku:
    """A kind of runner.

    `labels` are its name and its extra labels, lower case. `fair_share` is the part of `max_machines`
    that one repository may use while others wait. `rerun_interrupted` is the maximum number of a run's
    attempts whose interrupted jobs are rerun.
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
    access: Access = field(kw_only=True)
    rerun_interrupted: int = 0

    @property
    def offered_labels(self) -> frozenset[str]:
        """Return every label that a job of this SKU may ask for, lower case."""
        return self.labels | {"self-hosted", self.os.value, self.arch.value, NO_RERUN}

    @property
    def share(self) -> int | None:
        """Return how many machines a repository may use while others wait; None for no limit."""
        if self.max_machines is None or self.fair_share >= 1.0:
            return None
        return max(1, math.floor(self.max_machines * self.fair_share + 1e-9))


@dataclass(frozen=True, slots=True)
class Scope:
    """Where runners are registered: an organization, or one repository if `repository` is set.

    `repositories` are globs for `owner/name` that narrow an organization's scope.
    """

    owner: str
    repository: str | None
    runner_group: str = "Default"
    repositories: tuple[str, ...] = ("*",)

    @property
    def key(self) -> str:
        """Return `org:acme` or `repo:acme/widgets`."""
        if self.repository is None:
            return f"org:{self.owner}"
        return f"repo:{self.owner}/{self.repository}"


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of the whole fleet; None for no limit. The keys of `quotas` are `Offering.quota_key`."""

    machines: int | None = None
    dollars_per_hour: float | None = None
    quotas: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Rate:
    """A token bucket: at most `burst` tokens, `per_second` more each second."""

    burst: int
    per_second: float

    def __post_init__(self) -> None:
        if self.burst < 1 or self.per_second <= 0:
            raise ValueError("a token bucket's burst must be at least 1, and its refill above 0")

    def refilled(self, level: float, elapsed: Seconds) -> float:
        """Return the level after `elapsed`: at most the burst. A negative `elapsed` counts as 0."""
        return min(float(self.burst), level + max(0.0, elapsed) * self.per_second)


@dataclass(frozen=True, slots=True)
class RegistrationRate(Rate):
    """A token bucket for one account's runner registrations at GitHub.

    GitHub allows 1,500 registrations in 5 minutes, 10,000 an hour, and 900 points a minute of
    which one costs 5 (docs.github.com: REST API rate limits; Actions limits). The default
    stays below all three in any window, with a margin for delayed requests.
    """

    burst: int = 25
    per_second: float = 2.5


@dataclass(frozen=True, slots=True)
class LaunchRate:
    """How many launch requests a provider accepts, and machines in them if these are limited, too."""

    calls: Rate
    machines: Rate | None = None

    def refilled(self, tokens: "LaunchTokens", elapsed: Seconds) -> "LaunchTokens":
        """Return the tokens after `elapsed`."""
        if self.machines is None:
            return LaunchTokens(self.calls.refilled(tokens.calls, elapsed))
        return LaunchTokens(
            self.calls.refilled(tokens.calls, elapsed),
            self.machines.refilled(tokens.machines, elapsed),
        )

    @property
    def full(self) -> "LaunchTokens":
        """Return full token buckets."""
        machines = float(self.machines.burst) if self.machines is not None else math.inf
        return LaunchTokens(float(self.calls.burst), machines)

    def wait(self, tokens: "LaunchTokens") -> Seconds:
        """Return how long it takes until one request for one machine may be sent."""
        wait = max(0.0, 1.0 - tokens.calls) / self.calls.per_second
        if self.machines is None:
            return wait
        return max(wait, (1.0 - tokens.machines) / self.machines.per_second)


@dataclass(frozen=True, slots=True)
class LaunchTokens:
    """How many launch requests a provider accepts now, and how many machines."""

    calls: float
    machines: float = math.inf

    @property
    def enough(self) -> bool:
        """Return True if one request for one machine may be sent."""
        return self.calls >= 1.0 and self.machines >= 1.0

    def less(self, calls: int, machines: int) -> "LaunchTokens":
        """Return what is left after this many requests and machines."""
        return LaunchTokens(self.calls - calls, self.machines - machines)


@dataclass(frozen=True, slots=True)
class Catalogue:
    """Everything that the planner may choose from. `skus` keeps the configured order.

    A provider that is not in `launch_rates` has no rate limit. `largest_requests` are the maximum
    numbers of machines in one launch request, by provider.
    """

    fleet: str
    installations: Installations
    skus: Mapping[SkuName, Sku]
    scopes: tuple[Scope, ...]
    limits: Limits = field(default_factory=Limits)
    registration: RegistrationRate = field(default_factory=RegistrationRate)
    launch_rates: Mapping[ProviderName, LaunchRate] = field(default_factory=dict)
    largest_requests: Mapping[ProviderName, int] = field(default_factory=dict)

    def largest_request(self, provider: ProviderName) -> int:
        """Return how many machines one launch request to a provider may contain."""
        return self.largest_requests.get(provider, LARGEST_REQUEST)

    def with_installations(self, installations: Installations) -> "Catalogue":
        """Return a copy for these installation IDs."""
        return replace(self, installations=installations)


def most_units(offerings: Iterable[Offering]) -> dict[str, int]:
    """Return, for each quota, the maximum that one machine of any of these offerings uses."""
    units: dict[str, int] = {}
    for offering in offerings:
        known = units.get(offering.quota_key, 0)
        units[offering.quota_key] = max(known, offering.quota_units)
    return units
