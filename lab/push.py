"""Reads and checks the push file that the demo replays, and turns it into the lab's jobs."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import ErrorDetails

from autoscaler.config.reading.wording import phrase
from autoscaler.model.catalogue import Architecture, OperatingSystem
from lab.github.settings import JobSpec

MOST_BYTES = 1 << 20
MOST_JOBS = 1000

NODE_ACCELERATORS = 16
"""Accelerators on each node of the lab's cluster, such as the halves of eight MI350."""

Word = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
Text = Annotated[str, Field(min_length=1, max_length=200)]
Count = Annotated[int, Field(ge=1, le=MOST_JOBS)]


class PushError(ValueError):
    """The push file is not valid. The message names the file and every wrong key."""


class _Section(BaseModel):
    # Not strict: YAML has no enums, and `minutes: 45` is as valid as 45.0.
    model_config = ConfigDict(frozen=True, extra="forbid")


class PushSku(_Section):
    """The machines that run the jobs of one label. `disk_gb` is in GiB."""

    instance_type: Word
    os: OperatingSystem
    arch: Architecture
    disk_gb: Annotated[int, Field(ge=1, le=65536)]


class PushPods(_Section):
    """The pods that run the jobs of one label: how many of an accelerator's resource each has."""

    resource: Annotated[str, Field(pattern=r"^(amd|nvidia)\.com/[A-Za-z0-9._-]{1,63}$")]
    count: Annotated[int, Field(ge=1, le=NODE_ACCELERATORS)]
    dollars_per_hour: Annotated[float, Field(ge=0, le=10_000)]

    @property
    def vendor(self) -> str:
        """Return the accelerator's vendor, as fleet.yaml names it."""
        return self.resource.partition(".")[0]


class PushJobs(_Section):
    """A number of equal jobs. `minutes` is the duration of one job in lab time."""

    label: Word
    count: Count
    minutes: Annotated[float, Field(gt=0, le=7200)]


class Phase(_Section):
    """Jobs that are queued together, once every job of the phase before has succeeded."""

    name: Word
    jobs: Annotated[tuple[PushJobs, ...], Field(min_length=1, max_length=200)]


class OnPods(_Section):
    """How `with_pods` replays jobs: the phase, the minutes of each job, and its pod."""

    phase: Word
    minutes: Annotated[float, Field(gt=0, le=7200)]
    pod: PushPods


class NotReplayed(_Section):
    """Jobs of the same push that are not replayed on EC2, and the reason."""

    label: Word
    count: Count
    why: Text
    on_pods: OnPods | None = None


class Push(_Section):
    """A whole push. `skus` are by label, and so are `pods`; at least one job uses each."""

    about: Text
    repository: Annotated[str, Field(pattern=r"^[A-Za-z0-9-]{1,39}/[A-Za-z0-9._-]{1,100}$")]
    skus: Annotated[Mapping[Word, PushSku], Field(min_length=1, max_length=100)]
    pods: Annotated[Mapping[Word, PushPods], Field(max_length=100)] = Field(default_factory=dict)
    phases: Annotated[tuple[Phase, ...], Field(min_length=1, max_length=20)]
    not_replayed: tuple[NotReplayed, ...] = ()

    @model_validator(mode="after")
    def _check(self) -> Self:
        asked = {jobs.label for phase in self.phases for jobs in phase.jobs}
        if unknown := sorted(asked - set(self.labels)):
            raise ValueError(f"`skus` lacks labels that jobs use: {', '.join(unknown)}")
        if idle := sorted(set(self.labels) - asked):
            raise ValueError(f"no job uses {', '.join(idle)}")
        if both := sorted(set(self.skus) & set(self.pods)):
            raise ValueError(f"both in `skus` and in `pods`: {', '.join(both)}")
        names = [phase.name for phase in self.phases]
        if len(set(names)) < len(names):
            raise ValueError("two phases have the same name")
        for one in self.not_replayed:
            if one.on_pods is not None and one.on_pods.phase not in names:
                raise ValueError(f"there is no phase {one.on_pods.phase}")
        if self.count > MOST_JOBS:
            raise ValueError(f"{self.count} jobs; at most {MOST_JOBS} can be replayed")
        return self

    def with_pods(self) -> "Push":
        """Return the push with the jobs that can run on pods, and are not replayed otherwise.

        Raises PushError if there are none.
        """
        moved = {one.label: (one.count, one.on_pods) for one in self.not_replayed if one.on_pods}
        if not moved and not self.pods:
            raise PushError("no job of this push runs on pods: write `pods`, or `on_pods`")
        more: dict[str, list[PushJobs]] = {phase.name: [] for phase in self.phases}
        for label, (count, on) in moved.items():
            more[on.phase].append(PushJobs(label=label, count=count, minutes=on.minutes))
        return Push(
            about=self.about,
            repository=self.repository,
            skus=self.skus,
            pods={**self.pods, **{label: on.pod for label, (_, on) in moved.items()}},
            phases=tuple(
                Phase(name=phase.name, jobs=(*phase.jobs, *more[phase.name]))
                for phase in self.phases
            ),
            not_replayed=tuple(one for one in self.not_replayed if one.on_pods is None),
        )

    @property
    def labels(self) -> list[str]:
        """The labels of all machines, those on EC2 first."""
        return [*self.skus, *self.pods]

    @property
    def count(self) -> int:
        """The number of jobs."""
        return sum(jobs.count for phase in self.phases for jobs in phase.jobs)

    @property
    def jobs_by_label(self) -> Counter[str]:
        """The number of jobs by label, in the order of `labels`."""
        counts = Counter(dict.fromkeys(self.labels, 0))
        for phase in self.phases:
            for jobs in phase.jobs:
                counts[jobs.label] += jobs.count
        return counts

    @property
    def shortest_minutes(self) -> float:
        """The shortest possible duration: the sum of the longest jobs of all phases."""
        return sum(max(jobs.minutes for jobs in phase.jobs) for phase in self.phases)

    @property
    def most_at_once(self) -> int:
        """The number of jobs of the largest phase."""
        return max(sum(jobs.count for jobs in phase.jobs) for phase in self.phases)

    def job_specs(self) -> list[JobSpec]:
        """Return the jobs. A job's name is `PHASE / LABEL NUMBER`; its only label is the SKU's name."""
        specs: list[JobSpec] = []
        needs: tuple[str, ...] = ()
        for phase in self.phases:
            names: list[str] = []
            numbers: Counter[str] = Counter()
            for jobs in phase.jobs:
                for _ in range(jobs.count):
                    numbers[jobs.label] += 1
                    names.append(f"{phase.name} / {jobs.label} {numbers[jobs.label]}")
                    labels, seconds = (jobs.label,), jobs.minutes * 60
                    specs.append(JobSpec(names[-1], self.repository, labels, seconds, needs))
            needs = tuple(names)
        return specs


def read_push(path: Path) -> Push:
    """Read a push file. Raises PushError."""
    try:
        with path.open("rb") as file:
            text = file.read(MOST_BYTES + 1)
        if len(text) > MOST_BYTES:
            raise PushError(f"{path}: larger than {MOST_BYTES} bytes")
        content = yaml.safe_load(text)
    except OSError as error:
        raise PushError(f"{path}: cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise PushError(f"{path}: not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict):
        raise PushError(f"{path}: not a mapping")
    try:
        return Push.model_validate(content)
    except ValidationError as error:
        problems = [_problem(one) for one in error.errors(include_url=False)]
        raise PushError("\n".join(f"{path}: {problem}" for problem in problems)) from error


def read_example() -> Push:
    """Return the push of the demo, examples/trunk_push.yaml."""
    return read_push(Path(__file__).parents[1] / "examples" / "trunk_push.yaml")


def _problem(error: ErrorDetails) -> str:
    where = ".".join(str(part) for part in error["loc"])
    return f"{where}: {phrase(error)}" if where else phrase(error)
