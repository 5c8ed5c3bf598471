"""The structure of one entry of `skus` in fleet.yaml, with its defaults.

`checks` validates it against its providers and the other SKUs.
"""

from enum import StrEnum
from typing import Annotated

from pydantic import Field, field_validator

from autoscaler.config.problems import show
from autoscaler.config.settings import other_names
from autoscaler.config.settings.scalars import wrong
from autoscaler.config.settings.shapes import (
    AcceleratorModel,
    BranchGlob,
    Count,
    Cron,
    DriverVersion,
    Duration,
    DurationOrNone,
    Gibibytes,
    Glob,
    ImageName,
    ImageOwner,
    Label,
    Name,
    Percent,
    Positive,
    Section,
    Share,
    Text,
    TimeZone,
)
from autoscaler.model.catalogue import (
    DEFAULT_LIFETIME,
    Access,
    Architecture,
    Deadlines,
    IdlePolicy,
    OperatingSystem,
)

STOCK_DISK_GB = 40
"""The size of the root disk of a machine with a stock image, if fleet.yaml names none."""

_IDLE, _ACCESS = IdlePolicy(), Access(forks=False)


class AcceleratorVendor(StrEnum):
    """The vendor of the accelerators."""

    NVIDIA = "nvidia"
    AMD = "amd"


class Driver(StrEnum):
    """Whether the image contains the accelerator's driver, or the machine installs it."""

    PREINSTALLED = "preinstalled"
    INSTALL = "install"
    NONE = "none"


class StockImage(StrEnum):
    """A machine image of the operating system's publisher, without GitHub's runner."""

    UBUNTU_24_04 = "ubuntu-24.04"
    AMAZON_LINUX_2023 = "amazon-linux-2023"


class LaunchOptionSettings(Section):
    """One launch option of a SKU. Each kind of provider has further keys."""

    others = other_names.LAUNCH_OPTION

    provider: Name
    """A key of `providers`."""


class Accelerator(Section):
    """The accelerators that the machine must have. Its health checks compare them with those it has."""

    others = other_names.ACCELERATOR

    vendor: AcceleratorVendor
    """`nvidia` or `amd`."""
    count: Positive
    """The exact number of accelerators."""
    models: Annotated[tuple[AcceleratorModel, ...], Field(min_length=1, max_length=16)] | None = (
        None
    )
    """Accepted models: NVIDIA's product names (`NVIDIA A10G`), AMD's architectures (`gfx942`); default: any."""
    memory_gb: Gibibytes | None = None
    """The least memory of each accelerator, in GiB as the driver reports it (an A10G has 22); default: any."""
    driver_version: DriverVersion | None = None
    """The driver's version (AMD: the kernel module's, as `"7.1.3"`) or its beginning, in quotes: `"580"`
    accepts every 580.x; default: any."""


class Canary(Section):
    """A second image for a share of the launches."""

    name: ImageName
    """A glob over image names: `*` and `?`."""
    owner: ImageOwner = "self"
    """`self`, `amazon`, `aws-marketplace` or an account's 12 digits."""
    percent: Percent
    """The share of the launches with this image, 0 to 100."""


class Image(Section):
    """The newest machine image of this name, or a stock image."""

    others = other_names.IMAGE
    alone = ("stock", "name")

    name: ImageName | None = None
    """A glob over image names: `*` and `?`. Either this or `stock` is required."""
    stock: StockImage | None = None
    """`ubuntu-24.04` or `amazon-linux-2023`: the publisher's newest image. The agent installs the runner."""
    owner: ImageOwner = "self"
    """`self`, `amazon`, `aws-marketplace` or an account's 12 digits."""
    canary: Canary | None = None
    """Another image for a share of the launches: the newest of another name."""

    @field_validator("stock", mode="before")
    @classmethod
    def _has_python(cls, value: object) -> object:
        if isinstance(value, str) and value.startswith("windows"):
            what = f"{show(value)} is not built: a stock Windows has no Python for the agent"
            raise wrong(what, "build an image: autoscaler images bake windows (docs/images.md)")
        return value


class Schedule(Section):
    """A minimum of ready machines at certain times; of several at once, the largest counts."""

    cron: Cron
    """When it begins: minute, hour, day of month, month, weekday."""
    timezone: TimeZone = "UTC"
    """The time zone of `cron`."""
    duration: Duration = Field(default=3600.0, alias="for")
    """How long it lasts."""
    minimum: Count = Field(alias="min")
    """How many machines to keep ready during this time."""


class Idle(Section):
    """Machines that wait for jobs."""

    others = other_names.IDLE
    alone = ("min", "timeout")

    minimum: Count = Field(default=_IDLE.minimum, alias="min")
    """How many machines to keep ready at all times."""
    timeout: DurationOrNone = _IDLE.timeout
    """How long a machine beyond the minimum may stay ready."""
    schedule: tuple[Schedule, ...] = ()
    """Other minimums at certain times; of several, the largest counts. All SKUs have at most 300 together."""
    max_age: Duration = _IDLE.max_age
    """The age at which a ready machine is replaced."""


class DeadlineSettings(Section):
    """How long a machine may stay in each stage before it gets a runner."""

    boot: Duration | None = None
    """From the launch to the first request of the agent; default: 15m, Windows 30m."""
    health_checks: Duration | None = None
    """For the health checks; default: 10m, and 10m more with `image.stock`, 35m more with `driver: install`."""
    ready_silence: Duration = Deadlines().ready_silence
    """How long a ready machine may send no request."""


class AccessSettings(Section):
    """Which jobs may use a SKU."""

    repositories: Annotated[tuple[Glob, ...], Field(min_length=1)] = _ACCESS.repositories
    """Globs over `owner/name`, case-insensitive: at most 500; all SKUs have at most 5000 together."""
    forks: bool = _ACCESS.forks
    """Whether to serve jobs whose run comes from a fork, such as a pull request's."""
    public_repositories: bool = _ACCESS.public_repositories
    """Whether to serve jobs of public repositories."""
    branches: Annotated[tuple[BranchGlob, ...], Field(min_length=1)] = _ACCESS.branches
    """Globs over branches, case-sensitive: only runs on such a branch, no pull request's. At most 500."""
    contact: Text | None = None
    """Where to ask for access, such as a URL: the author of a refused job sees it."""


class SkuSettings(Section):
    """A kind of runner."""

    others = other_names.SKU

    launch_options: Annotated[tuple[LaunchOptionSettings, ...], Field(min_length=1)] = Field(
        alias="on"
    )
    """Where its machines may run, tried in order: at most 20; all SKUs have at most 2000 together."""
    os: OperatingSystem = OperatingSystem.LINUX
    """`linux` or `windows`."""
    arch: Architecture = Architecture.X64
    """`x64` or `arm64`."""
    accelerator: Accelerator | None = None
    """The accelerators that the machine must have; default on EC2: the GPUs of NVIDIA or AMD of its type."""
    image: Image | None = None
    """The machine image; required on EC2."""
    driver: Driver = Driver.PREINSTALLED
    """`preinstalled`; `install`: the agent installs the driver on a stock image at boot; `none`: the image
    has no driver, and GPUs are not checked."""
    disk_gb: Gibibytes | None = None
    """The size of the root disk in GiB, at least the image's own; default: that, or 40 with `stock`."""
    labels: tuple[Label, ...] = ()
    """Labels in addition to the SKU's name: at most 100; all SKUs have at most 5000 together."""
    unlabelled: bool = False
    """Whether the SKU also serves jobs that have no label of any SKU."""
    max_machines: Count | None = None
    """The largest number of machines; default: no limit."""
    fair_share: Share = 1.0
    """The part of `max_machines` that one repository may use while others wait; 1 is no limit."""
    idle: Idle = Idle()
    """Machines that wait for jobs."""
    deadlines: DeadlineSettings = DeadlineSettings()
    """How long each stage before the runner may take."""
    lifetime: Duration = DEFAULT_LIFETIME
    """The time after registration at which a machine is terminated, even during a job. Longer than any job."""
    access: AccessSettings = AccessSettings()
    """Which jobs may use the SKU."""
    rerun_interrupted: Count = 0
    """Maximum number of attempts of a run whose interrupted jobs are re-run; 0: never."""

    @property
    def stock(self) -> StockImage | None:
        """The stock image of the machines, on which the agent installs the runner; None without one."""
        return self.image.stock if self.image is not None else None

    @property
    def root_disk_gb(self) -> int | None:
        """The size of the root disk in GiB. Stock images have 8, which jobs fill."""
        return STOCK_DISK_GB if self.disk_gb is None and self.stock is not None else self.disk_gb
