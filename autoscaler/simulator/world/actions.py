"""GitHub Actions: jobs, runners, and which job goes to which runner. The truth, without faults.

GitHub gives a job to any idle runner whose labels cover it; nothing pairs the two before. It knows
nothing of a controller.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from autoscaler.model.identifiers import Instant, JobId, RunnerName, Seconds
from autoscaler.model.jobs import JobState
from autoscaler.simulator.world.schedule import FaultKind, JobArrival
from autoscaler.simulator.world.weather import Weather
from autoscaler.simulator.world.webhooks import Word

LOCK_LASTS: Seconds = 600.0
"""A job fails ten minutes after its runner died (actions/runner JobDispatcher.cs: the lock's life)."""

REPOSITORY = "acme/widgets"

AGAIN = 1000
"""A run's job has its run's number; the one of each further attempt has so much more."""


@dataclass(eq=False, slots=True)
class Registration:
    """One runner as GitHub has it. `frozen` is a listener that takes no job just now."""

    id: int
    scope: str
    name: RunnerName
    labels: frozenset[str]
    created_at: Instant
    online_at: Instant | None = None
    offline_at: Instant | None = None
    busy_at: Instant | None = None
    deleted_at: Instant | None = None
    frozen: bool = False
    job: "SimulatedJob | None" = None
    over: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def idle(self) -> bool:
        """Whether it may be given a job."""
        there = self.online_at is not None and self.deleted_at is None
        return there and self.busy_at is None and not self.frozen

    def listed_by(self, moment: Instant) -> bool:
        """Whether GitHub listed it at that moment."""
        return self.created_at <= moment and not _by(self.deleted_at, moment)

    def online_by(self, moment: Instant) -> bool:
        """Whether it was online then."""
        return _by(self.online_at, moment) and not _by(self.offline_at, moment)

    def busy_by(self, moment: Instant) -> bool:
        """Whether it had a job then."""
        return _by(self.busy_at, moment)

    @property
    def works(self) -> bool:
        """Whether a job runs on it, whatever GitHub lists."""
        return self.job is not None and self.job.state is JobState.IN_PROGRESS


@dataclass(eq=False, slots=True)
class SimulatedJob:
    """A job as GitHub has it, the one of its run. `killed` says what took its machine from under it."""

    arrival: JobArrival
    state: JobState
    queued_at: Instant
    attempt: int = 1
    runner: Registration | None = None
    started_at: Instant | None = None
    completed_at: Instant | None = None
    conclusion: str | None = None
    killed: str = ""
    starts: int = 0
    timer: asyncio.TimerHandle | None = None
    words: list[tuple[Instant, Word]] = field(default_factory=list)

    @property
    def id(self) -> JobId:
        """Its number, another one in each attempt of its run."""
        return JobId(self.arrival.job + AGAIN * (self.attempt - 1))

    @property
    def run(self) -> int:
        """Its run's number."""
        return self.arrival.job

    def word(self) -> Word:
        """What GitHub says of it now."""
        return Word(
            self.id,
            self.run,
            self.attempt,
            self.state,
            REPOSITORY,
            self.arrival.labels,
            self.queued_at,
            self.runner.name if self.runner is not None else None,
            self.runner.id if self.runner is not None else None,
            self.started_at,
            self.completed_at,
            self.conclusion,
        )

    def word_at(self, moment: Instant) -> Word:
        """What GitHub said of it then, or first of all."""
        said = [word for at, word in self.words if at <= moment]
        return said[-1] if said else self.words[0][1]


class Actions:
    """All jobs and runners. `tell` is called with every word about a job."""

    def __init__(
        self, weather: Weather, now: Callable[[], Instant], tell: Callable[[Word], None]
    ) -> None:
        self.jobs: dict[JobId, SimulatedJob] = {}
        self.registrations: dict[RunnerName, Registration] = {}
        self.queued: dict[JobId, SimulatedJob] = {}
        self.latest: dict[int, SimulatedJob] = {}
        self._weather = weather
        self._now = now
        self._tell = tell

    def queue(self, arrival: JobArrival) -> None:
        """Somebody pushes."""
        gated = arrival.approved is not None
        state = JobState.WAITING if gated else JobState.QUEUED
        job = self._add(SimulatedJob(arrival, state, self._now()))
        loop = asyncio.get_running_loop()
        if arrival.cancelled is not None:
            loop.call_later(arrival.cancelled, self._cancel, job)
        if arrival.approved is not None:
            loop.call_later(arrival.approved, self._approve, job)
        self._say(job)
        if not gated:
            self._offer(job)

    def run_again(self, job: SimulatedJob) -> None:
        """One more attempt of a run that is over; nobody cancels that one."""
        arrival = replace(job.arrival, cancelled=None, approved=None)
        again = SimulatedJob(arrival, JobState.QUEUED, self._now(), job.attempt + 1)
        self._say(self._add(again))
        self._offer(again)

    def register(self, scope: str, name: RunnerName, labels: tuple[str, ...]) -> Registration:
        """A new offline runner; the name must be free."""
        made = Registration(
            len(self.registrations) + 1,
            scope,
            name,
            frozenset(label.lower() for label in labels),
            self._now(),
        )
        self.registrations[name] = made
        return made

    def listen(self, registration: Registration) -> None:
        """Its listener comes online."""
        registration.online_at = self._now()
        self.hand_out()

    def delete(self, registration: Registration) -> None:
        """It is listed no more, and gets no job."""
        registration.deleted_at = self._now()

    def take_machine(self, registration: Registration, reason: str) -> None:
        """Its machine is gone: a job on it fails once its lock has run out."""
        registration.frozen = True
        registration.offline_at = self._now()
        job = registration.job
        if job is not None and job.state is JobState.IN_PROGRESS:
            job.killed = reason
            if job.timer is not None:
                job.timer.cancel()
            job.timer = asyncio.get_running_loop().call_later(
                LOCK_LASTS, self._complete, job, "failure"
            )

    def hand_out(self) -> None:
        """Give queued jobs to idle runners."""
        for registration in [r for r in self.registrations.values() if r.idle]:
            fitting = [j for j in self.queued.values() if registration.labels >= _labels(j)]
            if fitting:
                self._start(self._chosen(fitting), registration)

    def _chosen(self, fitting: list[SimulatedJob]) -> SimulatedJob:
        oldest = min(fitting, key=lambda job: (job.queued_at, job.id))
        if len(fitting) == 1 or not self._weather.holding(FaultKind.STOLEN):
            return oldest
        thief = max(fitting, key=lambda job: (-len(job.arrival.labels), job.queued_at, job.id))
        self._weather.hits[FaultKind.STOLEN] += thief is not oldest
        return thief

    def _add(self, job: SimulatedJob) -> SimulatedJob:
        self.jobs[job.id] = self.latest[job.run] = job
        return job

    def _offer(self, job: SimulatedJob) -> None:
        self.queued[job.id] = job
        self.hand_out()

    def _approve(self, job: SimulatedJob) -> None:
        if job.state is JobState.WAITING:
            job.state = JobState.QUEUED
            self._say(job)
            self._offer(job)

    def _start(self, job: SimulatedJob, registration: Registration) -> None:
        del self.queued[job.id]
        now = self._now()
        job.state, job.runner, job.started_at = JobState.IN_PROGRESS, registration, now
        job.starts += 1
        registration.job, registration.busy_at = job, now
        self._say(job)
        job.timer = asyncio.get_running_loop().call_later(
            job.arrival.works, self._complete, job, "success"
        )

    def _cancel(self, job: SimulatedJob) -> None:
        if job.state is not JobState.COMPLETED and not job.killed:
            self._complete(job, "cancelled")

    def _complete(self, job: SimulatedJob, conclusion: str) -> None:
        self.queued.pop(job.id, None)
        if job.timer is not None:
            job.timer.cancel()
        job.state, job.conclusion, job.completed_at = JobState.COMPLETED, conclusion, self._now()
        registration = job.runner
        if registration is not None:
            registration.deleted_at = registration.deleted_at or self._now()
            registration.over.set()
        self._say(job)

    def _say(self, job: SimulatedJob) -> None:
        word = job.word()
        job.words.append((self._now(), word))
        self._tell(word)


def _by(event: Instant | None, moment: Instant) -> bool:
    return event is not None and event <= moment


def _labels(job: SimulatedJob) -> frozenset[str]:
    return frozenset(label.lower() for label in job.arrival.labels)
