"""Matches queued jobs with idle runners by class of labels and group.

Pure except for `pick`. Identifies jobs and runners by ID only.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Generic, TypeVar

from autoscaler.model.jobs.labels import covers
from lab.github.records import JobClass, RunnerClass

K = TypeVar("K")


def fits(runner: RunnerClass, job: JobClass) -> bool:
    """Return True if the runner has all labels and the requested group, which admits the job."""
    if runner.organization != job.organization:
        return False
    if runner.repository is not None and runner.repository != job.repository:
        return False
    if job.group is not None and (runner.repository is not None or runner.group != job.group):
        return False
    if runner.group_repositories is not None and job.repository not in runner.group_repositories:
        return False
    if runner.group_workflows is not None and job.workflow not in runner.group_workflows:
        return False
    return covers(runner.labels, job.labels)


class _Line(Generic[K]):
    """The waiting jobs or runners of one class, oldest first. Their numbers order all classes."""

    __slots__ = ("kind", "waiting")

    def __init__(self, kind: K) -> None:
        self.kind = kind
        self.waiting: OrderedDict[int, int] = OrderedDict()


def _oldest(lines: Iterable[_Line[K]]) -> int | None:
    found: tuple[int, int] | None = None
    for line in lines:
        if line.waiting:
            head, order = next(iter(line.waiting.items()))
            if found is None or order < found[0]:
                found = (order, head)
    return None if found is None else found[1]


def _nth(lines: Iterable[_Line[K]], index: int) -> int | None:
    for line in lines:
        if index < len(line.waiting):
            return next(islice(line.waiting, index, None))
        index -= len(line.waiting)
    return None


class Matching:
    """Queued jobs and idle runners. A call costs time in proportion to the number of classes.

    `pick` gets the number of matches (at least 1) and returns an index. None takes the oldest.
    """

    def __init__(self, pick: Callable[[int], int] | None = None) -> None:
        self._pick = pick
        self._jobs: dict[JobClass, _Line[JobClass]] = {}
        self._runners: dict[RunnerClass, _Line[RunnerClass]] = {}
        self._jobs_of: dict[RunnerClass, list[_Line[JobClass]]] = {}
        self._runners_of: dict[JobClass, list[_Line[RunnerClass]]] = {}
        self._idle_order = 0

    def add_job(self, kind: JobClass, job: int, order: int, *, first: bool = False) -> None:
        """Queue a job. `first` puts a job that comes back at the head of its class."""
        line = self._job_line(kind)
        line.waiting[job] = order
        if first:
            line.waiting.move_to_end(job, last=False)

    def remove_job(self, kind: JobClass, job: int) -> None:
        """Remove a job from the queue. Does nothing if it is not queued."""
        self._job_line(kind).waiting.pop(job, None)

    def add_runner(self, kind: RunnerClass, runner: int) -> None:
        """Add an idle runner."""
        self._idle_order += 1
        self._runner_line(kind).waiting[runner] = self._idle_order

    def remove_runner(self, kind: RunnerClass, runner: int) -> None:
        """Remove a runner from the idle ones. Does nothing if it was not idle."""
        self._runner_line(kind).waiting.pop(runner, None)

    def runner_for(self, kind: JobClass) -> int | None:
        """Return an idle runner for this class of job, or None. It stays idle until it is removed."""
        self._job_line(kind)
        return self._choose(self._runners_of[kind])

    def job_for(self, kind: RunnerClass) -> int | None:
        """Return a queued job for this class of runner, or None. It stays queued until it is removed."""
        self._runner_line(kind)
        return self._choose(self._jobs_of[kind])

    def _choose(self, lines: list[_Line[K]]) -> int | None:
        if self._pick is None:
            return _oldest(lines)
        count = sum(len(line.waiting) for line in lines)
        return _nth(lines, self._pick(count)) if count else None

    def _job_line(self, kind: JobClass) -> _Line[JobClass]:
        line = self._jobs.get(kind)
        if line is None:
            line = self._jobs[kind] = _Line(kind)
            self._runners_of[kind] = []
            for runner, runners in self._runners.items():
                if fits(runner, kind):
                    self._runners_of[kind].append(runners)
                    self._jobs_of[runner].append(line)
        return line

    def _runner_line(self, kind: RunnerClass) -> _Line[RunnerClass]:
        line = self._runners.get(kind)
        if line is None:
            line = self._runners[kind] = _Line(kind)
            self._jobs_of[kind] = []
            for job, jobs in self._jobs.items():
                if fits(kind, job):
                    self._jobs_of[kind].append(jobs)
                    self._runners_of[job].append(line)
        return line
