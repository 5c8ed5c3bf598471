"""Looks at a lab while it replays a push: how far each SKU is, and whether it is over.

It decides when waiting any longer is pointless, and changes nothing.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from autoscaler.model.machines import MachineState
from lab.github.records import Job, JobStatus
from lab.laboratory import Laboratory

_BOOTING = (MachineState.REQUESTED, MachineState.LAUNCHED, MachineState.BOOTED)


class Ending(Enum):
    """Why a replay is over."""

    FINISHED = "every job has ended and everything is gone"
    STUCK = "no job runs, and none has moved for {minutes:.0f} minutes"
    LEFT = "every job has ended, and for {minutes:.0f} minutes nothing more has gone"
    OVERDUE = "it takes far longer than it should"
    CONTROLLER_ENDED = "the controller has ended by itself"


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to wait. Lab seconds, but for `real_floor`: the least that each comes to, real seconds.

    `stuck`: no job runs and none moves. `left`: all jobs have ended, and what is left stays.
    `overdue`: the whole of it, beyond three times the shortest that it could take.
    """

    stuck: float = 900.0
    left: float = 600.0
    overdue: float = 7200.0
    real_floor: float = 30.0
    """On two cores with a load of 22, the first machines needed 13 s from the push to their jobs."""

    def at(self, scale: float) -> "Patience":
        """The same with the floor applied, for a lab of this scale."""
        floor = self.real_floor * scale
        return Patience(
            max(self.stuck, floor), max(self.left, floor), max(self.overdue, floor), self.real_floor
        )


@dataclass(frozen=True, slots=True)
class SkuProgress:
    """Jobs that wait, run and are done, machines that boot and are ready; `jobs` is all of them."""

    waiting: int
    booting: int
    ready: int
    running: int
    done: int
    jobs: int


@dataclass(frozen=True, slots=True)
class Progress:
    """How far it is. `seconds` are lab seconds since the push, `machines` those that EC2 has now."""

    seconds: float
    machines: int
    skus: Mapping[str, SkuProgress]

    @property
    def total(self) -> SkuProgress:
        """All SKUs together."""
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
    """One replay, begun now. `shortest` is what it takes at least, lab seconds."""

    def __init__(self, lab: Laboratory, patience: Patience, shortest: float) -> None:
        self._lab = lab
        self._patience = patience.at(lab.fleet.scale)
        self._shortest = shortest
        self._began = lab.clock.now()
        self._jobs: list[JobStatus] = []
        self._jobs_moved = self._began
        self._left: list[str] = []
        self._left_moved = self._began

    async def look(self) -> Progress:
        """How far it is now: jobs as GitHub has them, machines as the controller counts them."""
        metrics = await self._lab.controller.metrics()
        by_sku: dict[str, list[Job]] = {sku: [] for sku in self._lab.fleet.skus}
        for job in self._lab.github.jobs:
            by_sku[job.spec.labels[0]].append(job)
        return Progress(
            seconds=self._lab.clock.now() - self._began,
            machines=self._lab.ec2.instances.alive,
            skus={sku: _sku_progress(sku, jobs, metrics) for sku, jobs in by_sku.items()},
        )

    def ending(self) -> Ending | None:
        """Whether it is over, and why; to be asked often."""
        now = self._lab.clock.now()
        jobs = [job.status for job in self._lab.github.jobs]
        left = self._lab.left()
        if jobs != self._jobs:
            self._jobs, self._jobs_moved = jobs, now
        if left != self._left:
            self._left, self._left_moved = left, now
        if not self._lab.controller.running:
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
        """An ending in words."""
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
