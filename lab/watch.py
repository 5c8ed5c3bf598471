"""Follows a replay: the progress of each SKU, and whether the replay has ended.

It only reads. It also decides when to give up.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from autoscaler.model.machines.machine import MachineState
from lab.first_steps import FirstSteps
from lab.github.records import Job, JobStatus
from lab.laboratory import Laboratory

_BOOTING = (MachineState.REQUESTED, MachineState.LAUNCHED, MachineState.BOOTED)


class Ending(Enum):
    """Why a replay ended."""

    FINISHED = "every job ended, and no machine, volume, pod or registration is left"
    STUCK = "for {minutes:.0f} minutes no job ran and no job changed its state"
    LEFT = "every job ended, but nothing that is left was removed for {minutes:.0f} minutes"
    OVERDUE = "the replay took far longer than expected"
    CONTROLLER_ENDED = "a controller exited before the replay ended"


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to wait before giving up, in lab seconds.

    `stuck`: while no job runs and no job changes its state. `left`: while all jobs have ended and
    nothing more is removed. `overdue`: for the whole replay, on top of three times its shortest
    possible duration. `real_floor`: the minimum of the first two limits in real seconds, and a tenth of
    that of `overdue`.
    """

    stuck: float = 900.0
    left: float = 600.0
    overdue: float = 7200.0
    real_floor: float = 90.0
    """With a load of 30 on two cores, no job of the second phase started in the first 50 s."""

    def at(self, scale: float) -> "Patience":
        """Return these limits with the floor applied, for a lab of this scale."""
        floor = self.real_floor * scale
        return Patience(
            max(self.stuck, floor),
            max(self.left, floor),
            max(self.overdue, 10 * floor),
            self.real_floor,
        )


@dataclass(frozen=True, slots=True)
class SkuProgress:
    """The number of jobs in each state and in all (`jobs`), and of machines that boot and are ready."""

    waiting: int
    booting: int
    ready: int
    running: int
    done: int
    jobs: int


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a replay: lab `seconds` since the push, and `machines` that exist at EC2 now.

    `pods` that have not ended are None if the lab has no cluster. `steps` are lines of `FirstSteps`, and those
    that were noted, since the progress before.
    """

    seconds: float
    machines: int
    skus: Mapping[str, SkuProgress]
    pods: int | None = None
    steps: tuple[str, ...] = ()

    @property
    def total(self) -> SkuProgress:
        """Return the progress of all SKUs together."""
        rows = self.skus.values()
        return SkuProgress(
            waiting=sum(row.waiting for row in rows),
            booting=sum(row.booting for row in rows),
            ready=sum(row.ready for row in rows),
            running=sum(row.running for row in rows),
            done=sum(row.done for row in rows),
            jobs=sum(row.jobs for row in rows),
        )


class Watch:
    """Watches one replay that begins now. `shortest` is its shortest possible duration in lab seconds."""

    def __init__(self, lab: Laboratory, patience: Patience, shortest: float) -> None:
        self._lab = lab
        self._patience = patience.at(lab.fleet.scale)
        self._shortest = shortest
        self._steps = FirstSteps(lab.github, lab.ec2, lab.pods, lab.fleet.skus, lab.fleet.scale)
        self._began = lab.clock.now()
        self._jobs: list[JobStatus] = []
        self._jobs_moved = self._began
        self._left: list[str] = []
        self._left_moved = self._began
        self._noted: list[str] = []

    def note(self, line: str) -> None:
        """Have the next progress show this line as a step."""
        self._noted.append(line)

    def started(self) -> float:
        """Return the share of the jobs that were started."""
        jobs = self._lab.github.jobs
        return sum(bool(job.starts) for job in jobs) / len(jobs)

    async def look(self) -> Progress:
        """Return the progress now: jobs as GitHub shows them, machines as the controller counts them."""
        metrics = await self._lab.controllers.metrics()
        noted, self._noted = self._noted, []
        by_sku: dict[str, list[Job]] = {sku: [] for sku in self._lab.fleet.skus}
        for job in self._lab.github.jobs:
            by_sku[job.spec.labels[0]].append(job)
        return Progress(
            seconds=self._lab.clock.now() - self._began,
            machines=self._lab.ec2.instances.alive,
            pods=None if self._lab.pods is None else self._lab.pods.alive,
            skus={sku: _sku_progress(sku, jobs, metrics) for sku, jobs in by_sku.items()},
            steps=(*self._steps.new(metrics), *noted),
        )

    def ending(self) -> Ending | None:
        """Return why the replay has ended, or None while it goes on. Call it often."""
        now = self._lab.clock.now()
        jobs = [job.status for job in self._lab.github.jobs]
        left = self._lab.left()
        if jobs != self._jobs:
            self._jobs, self._jobs_moved = jobs, now
        if left != self._left:
            self._left, self._left_moved = left, now
        if self._lab.controllers.failed is not None:
            return Ending.CONTROLLER_ENDED
        if now - self._began > self._patience.overdue + 3 * self._shortest:
            return Ending.OVERDUE
        if self._lab.github.unfinished:
            return self._stuck(now)
        if not left:
            return Ending.FINISHED
        since = max(self._jobs_moved, self._left_moved)
        return Ending.LEFT if now - since > self._patience.left else None

    def why(self, ending: Ending) -> str:
        """Return an ending in words."""
        patience = self._patience
        seconds = patience.stuck if ending is Ending.STUCK else patience.left
        return ending.value.format(minutes=seconds / 60)

    def _stuck(self, now: float) -> Ending | None:
        if JobStatus.IN_PROGRESS in self._jobs:
            return None
        return Ending.STUCK if now - self._jobs_moved > self._patience.stuck else None


def _sku_progress(sku: str, jobs: list[Job], metrics: Mapping[str, float]) -> SkuProgress:
    status = Counter(job.status for job in jobs)

    def machines(*states: MachineState) -> int:
        names = [f'autoscaler_machines{{sku="{sku}",state="{state.value}"}}' for state in states]
        return int(sum(metrics.get(name, 0.0) for name in names))

    return SkuProgress(
        waiting=status[JobStatus.QUEUED] + status[JobStatus.WAITING],
        booting=machines(*_BOOTING),
        ready=machines(MachineState.READY),
        running=status[JobStatus.IN_PROGRESS],
        done=status[JobStatus.COMPLETED],
        jobs=len(jobs),
    )
