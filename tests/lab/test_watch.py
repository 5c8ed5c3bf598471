"""When the demo gives up on a replay."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

from lab.github.records import JobStatus
from lab.watch import Ending, Patience, Watch

if TYPE_CHECKING:
    from lab.laboratory import Laboratory


@dataclass
class StillLab:
    """The part of a laboratory that a Watch reads. Nothing in it changes by itself."""

    time: float = 0.0
    statuses: list[JobStatus] = field(default_factory=lambda: [JobStatus.QUEUED])
    there: list[str] = field(default_factory=list)
    fleet: SimpleNamespace = field(default_factory=lambda: SimpleNamespace(scale=80.0, skus={}))
    ec2: None = None
    pods: None = None
    controllers: SimpleNamespace = field(default_factory=lambda: SimpleNamespace(failed=None))

    @property
    def clock(self) -> SimpleNamespace:
        return SimpleNamespace(now=lambda: self.time)

    @property
    def github(self) -> SimpleNamespace:
        jobs = [SimpleNamespace(status=status) for status in self.statuses]
        return SimpleNamespace(jobs=jobs, unfinished=True)

    def left(self) -> list[str]:
        return list(self.there)


def test_a_replay_with_slow_boots_is_not_aborted() -> None:
    """On a host with a load of 22 a boot takes 13 real seconds, each 80 seconds of lab time."""
    lab = StillLab()
    watch = Watch(cast("Laboratory", lab), Patience(), 600.0)
    assert watch.ending() is None
    lab.time += 2 * 13.0 * 80.0
    assert watch.ending() is None
    lab.statuses = [JobStatus.IN_PROGRESS]
    lab.time += 4000.0
    assert watch.ending() is None


def test_a_replay_in_which_no_job_changes_is_aborted() -> None:
    """The machines still come and go, for example if GitHub lost a job."""
    lab = StillLab()
    watch = Watch(cast("Laboratory", lab), Patience(), 600.0)
    assert watch.ending() is None
    lab.there = ["machine i-1 (gpu, running)"]
    lab.time += 90.0 * 80.0
    assert watch.ending() is None
    lab.time += 1.0
    assert watch.ending() is Ending.STUCK
    assert "for 120 minutes no job ran" in watch.why(Ending.STUCK)
