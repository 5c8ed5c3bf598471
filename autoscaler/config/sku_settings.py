"""The shape of one entry of `skus` in fleet.yaml, and what is in force where a key is left out.

Whether it fits its providers and its neighbours is decided in `checks`.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from autoscaler.config import shapes
from autoscaler.config.shapes import (
    Count,
    Dollars,
    Duration,
    Glob,
    Label,
    Name,
    Positive,
    Section,
    Text,
)
from autoscaler.model.catalogue import Architecture, CapacityType, OperatingSystem


class AcceleratorVendor(StrEnum):
    """Whose accelerators."""

    NVIDIA = "nvidia"
    AMD = "amd"


class Driver(StrEnum):
    """Whether the image carries the accelerator's driver, or the machine installs it."""

    PREINSTALLED = "preinstalled"
    INSTALL = "install"


class Pod(Section):
    """A runner's pod."""

    image: Text
    """The container image."""
    resources: Mapping[Text, Text] = Field(default_factory=dict)
    """Requests and limits by resource, as text: `cpu: "14"`."""
    node_selector: Mapping[Text, Text] = Field(default_factory=dict)
    """Labels that the node must carry."""


class RungSettings(Section):
    """One step of a SKU's ladder."""

    provider: Name
    """A key of `providers`."""
    instance_types: Annotated[tuple[shapes.InstanceType, ...], Field(min_length=1)] | None = None
    """EC2 instance types in the order of preference."""
    capacity: Annotated[tuple[CapacityType, ...], Field(min_length=1)] = (CapacityType.ON_DEMAND,)
    """`spot`, `on-demand` or both, in the order of preference (EC2)."""
    price: Dollars = 0.0
    """What a pod costs, dollars an hour (Kubernetes)."""
    pod: Pod | None = None
    """The runner's pod (Kubernetes)."""


class Accelerator(Section):
    """What the machine must have."""

    vendor: AcceleratorVendor
    """`nvidia` or `amd`."""
    count: Positive
    """How many."""


class Canary(Section):
    """An image on trial."""

    name: shapes.ImageName
    """A glob over image names: `*` and `?`."""
    owner: shapes.ImageOwner = "self"
    """`self`, `amazon`, `aws-marketplace` or an account's 12 digits."""
    percent: shapes.Percent
    """The share of the launches that take it, 0 to 100."""


class Image(Section):
    """The newest machine image of this name."""

    name: shapes.ImageName
    """A glob over image names: `*` and `?`."""
    owner: shapes.ImageOwner = "self"
    """`self`, `amazon`, `aws-marketplace` or an account's 12 digits."""
    canary: Canary | None = None
    """The newest image of another name, for a share of the launches."""


class Schedule(Section):
    """Keeps more machines parked for a while, again and again. Of several at once, the largest."""

    cron: shapes.Cron
    """When it begins: minute, hour, day, month, weekday."""
    timezone: shapes.TimeZone = "UTC"
    """Whose clock `cron` means."""
    duration: Duration = Field(default=3600.0, alias="for")
    """How long it lasts."""
    minimum: Count = Field(alias="min")
    """How many machines to keep parked meanwhile."""


class Idle(Section):
    """Machines that wait for jobs."""

    minimum: Count = Field(default=0, alias="min")
    """How many to keep parked at all times."""
    timeout: shapes.DurationOrNone = 600.0
    """How long one beyond the minimum may stay parked."""
    schedule: tuple[Schedule, ...] = ()
    """Other minimums at certain times."""
    max_age: Duration = 86400.0
    """When a parked machine is replaced."""


class DeadlineSettings(Section):
    """How long a machine may stay in each stage before it gets a runner."""

    boot: Duration | None = None
    """From launch to its first word; left out, 15m, Windows 30m."""
    gate: Duration | None = None
    """For its own checks; left out, 10m, with `driver: install` 45m."""
    parked_silence: Duration = 300.0
    """Parked without a word."""


class AccessSettings(Section):
    """Who may use a SKU."""

    repositories: Annotated[tuple[Glob, ...], Field(min_length=1)] = ("*",)
    """Globs over `owner/name`, without regard to case."""
    forks: bool = False
    """Whether jobs may whose run's head repository is a fork, as a pull request's from one is."""


class SkuSettings(Section):
    """A kind of runner."""

    ladder: Annotated[tuple[RungSettings, ...], Field(min_length=1)] = Field(alias="on")
    """Where its machines come from, tried in order."""
    os: OperatingSystem = OperatingSystem.LINUX
    """`linux` or `windows`."""
    arch: Architecture = Architecture.X64
    """`x64` or `arm64`."""
    accelerator: Accelerator | None = None
    """What the machine must have."""
    image: Image | None = None
    """The machine image; needed on EC2."""
    driver: Driver = Driver.PREINSTALLED
    """`preinstalled`, or `install` on a stock image at boot."""
    disk_gb: shapes.Gibibytes | None = None
    """The root disk in GiB; never smaller than the image's own, which it is when left out."""
    labels: tuple[Label, ...] = ()
    """Labels beside the SKU's name."""
    unlabelled: bool = False
    """Whether jobs that name no label of ours are this SKU's."""
    max_machines: Count | None = None
    """How many at once; left out, no cap."""
    fair_share: shapes.Share = 1.0
    """The part of `max_machines` that one repository may have while others wait; 1 is no bound."""
    idle: Idle = Idle()
    """Machines that wait for jobs."""
    deadlines: DeadlineSettings = DeadlineSettings()
    """How long each stage before the runner may take."""
    lifetime: Duration = 86400.0
    """From the moment it is given a runner to its end, whatever it does: at least the longest job."""
    access: AccessSettings = AccessSettings()
    """Who may use it."""
    rerun_interrupted: Count = 0
    """How often the jobs of a run are run again that died with their machines; 0, never."""
