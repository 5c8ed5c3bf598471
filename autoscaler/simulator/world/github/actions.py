"""GitHub Actions without faults: jobs, runners, and which runner gets which job.

GitHub assigns a job to any idle runner with its labels.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace

from autoscaler.model.identifiers import Instant, JobId, RunnerName, Seconds
from autoscaler.model.jobs.job import JobState
from autoscaler.model.jobs.labels import covers, label_set
from autoscaler.simulator.world.fault_schedule import FaultSchedule
from autoscaler.simulator.world.jobs import JobSnapshot, Registration, SimulatedJob
from autoscaler.simulator.world.schedule import FaultKind, JobArrival

LOCK_LASTS: Seconds = 600.0
"""A job fails ten minutes after its runner died (actions/runner JobDispatcher.cs: the lock's life)."""

PICKED_UP_WITHIN: Seconds = 60.0
"""GitHub queues a job again if its runner does not pick it up in this time (actions/scaleset README)."""

HOOK_TAKES: Seconds = 2.0
"""How long a job takes that the job hook of its machine refuses."""


class Actions:
    """All jobs and runners. `report` is called with each change of a job.

    `registrations` has the last one of each name, and `registered` has all of them in order.
    """

    def __init__(
        self,
        fault_schedule: FaultSchedule,
        now: Callable[[], Instant],
        report: Callable[[JobSnapshot], None],
    ) -> None:
        self.jobs: dict[JobId, SimulatedJob] = {}
        self.registrations: dict[RunnerName, Registration] = {}
        self.registered: list[Registration] = []
        self.queued: dict[JobId, SimulatedJob] = {}
        self.latest: dict[int, SimulatedJob] = {}
        self.repositories: dict[str, Instant] = {}
        self._fault_schedule = fault_schedule
        self._now = now
        self._report = report

    def queue(self, arrival: JobArrival) -> None:
        """Queue the job of a push."""
        self.repositories.setdefault(arrival.repository, self._now())
        gated = arrival.approved is not None
        state = JobState.WAITING if gated else JobState.QUEUED
        job = self._add(SimulatedJob(arrival, state, self._now()))
        loop = asyncio.get_running_loop()
        if arrival.cancelled is not None:
            loop.call_later(arrival.cancelled, self._cancel, job)
        if arrival.approved is not None:
            loop.call_later(arrival.approved, self._approve, job)
        self._report_state(job)
        if not gated:
            self._delay(job)
            self._enqueue(job)

    def run_again(self, job: SimulatedJob) -> None:
        """Start one more attempt of a completed run. This attempt is not cancelled."""
        arrival = replace(job.arrival, cancelled=None, approved=None)
        again = SimulatedJob(arrival, JobState.QUEUED, self._now(), job.attempt + 1)
        self._report_state(self._add(again))
        self._enqueue(again)

    def register(self, scope: str, name: RunnerName, labels: tuple[str, ...]) -> Registration:
        """Register an offline runner. The name must be free."""
        made = Registration(
            len(self.registered) + 1,
            scope,
            name,
            label_set(labels),
            self._now(),
        )
        self.registrations[name] = made
        self.registered.append(made)
        return made

    def listen(self, registration: Registration) -> None:
        """Connect the runner's listener, perhaps again, and give it a job if there is one."""
        registration.online_at, registration.offline_at = self._now(), None
        self.assign_jobs()

    def suspend(self, registration: Registration) -> None:
        """Stop the listener (SIGSTOP). GitHub does not notice, and may assign a job at this moment."""
        registration.suspended = True
        fitting = self._fitting_jobs(registration)
        if fitting:
            self._assign(self._choose(fitting), registration)

    def resume(self, registration: Registration) -> None:
        """Continue the listener, which picks up the job that was assigned meanwhile."""
        registration.suspended = False
        job, registration.assigned = registration.assigned, None
        if job is None or job.state is not JobState.QUEUED:
            self.assign_jobs()
        elif registration.idle:
            self.start(job, registration)
        else:
            self._enqueue(job)

    def delete(self, registration: Registration) -> None:
        """Delete the registration: it is not listed any more, and gets no job."""
        registration.deleted_at = self._now()

    def take_machine(self, registration: Registration, reason: str) -> None:
        """Disconnect the runner of a machine that ended. Its job fails when the job's lock expires."""
        registration.suspended = True
        registration.offline_at = self._now()
        job = registration.job
        if job is not None and job.state is JobState.IN_PROGRESS:
            job.killed = reason
            if job.timer is not None:
                job.timer.cancel()
            job.timer = asyncio.get_running_loop().call_later(
                LOCK_LASTS, self.complete, job, "failure"
            )

    def assign_jobs(self) -> None:
        """Give queued jobs to idle runners."""
        for registration in [r for r in self.registrations.values() if r.idle]:
            now = self._now()
            fitting = [job for job in self._fitting_jobs(registration) if job.held_until <= now]
            if fitting:
                self.start(self._choose(fitting), registration)

    def _fitting_jobs(self, registration: Registration) -> list[SimulatedJob]:
        return [job for job in self.queued.values() if covers(registration.labels, job.labels)]

    def _assign(self, job: SimulatedJob, registration: Registration) -> None:
        del self.queued[job.id]
        registration.assigned = job
        asyncio.get_running_loop().call_later(
            PICKED_UP_WITHIN, self._not_picked_up, job, registration
        )

    def _not_picked_up(self, job: SimulatedJob, registration: Registration) -> None:
        if registration.assigned is job:
            registration.assigned = None
            if job.state is JobState.QUEUED:
                self._enqueue(job)

    def _choose(self, fitting: list[SimulatedJob]) -> SimulatedJob:
        oldest = min(fitting, key=lambda job: (job.queued_at, job.id))
        if len(fitting) == 1 or not self._fault_schedule.active(FaultKind.STOLEN):
            return oldest
        stealer = max(fitting, key=lambda job: (-len(job.arrival.labels), job.queued_at, job.id))
        self._fault_schedule.hits[FaultKind.STOLEN] += stealer is not oldest
        return stealer

    def _add(self, job: SimulatedJob) -> SimulatedJob:
        self.jobs[job.id] = self.latest[job.run] = job
        return job

    def _delay(self, job: SimulatedJob) -> None:
        late = self._fault_schedule.hit(FaultKind.HANDED_OUT_LATE)
        if late is not None:
            job.held_until = self._now() + late.target
            asyncio.get_running_loop().call_later(late.target, self.assign_jobs)

    def _enqueue(self, job: SimulatedJob) -> None:
        self.queued[job.id] = job
        self.assign_jobs()

    def _approve(self, job: SimulatedJob) -> None:
        if job.state is JobState.WAITING:
            job.state = JobState.QUEUED
            self._report_state(job)
            self._enqueue(job)

    def start(self, job: SimulatedJob, registration: Registration) -> None:
        """Run a job on a runner for as long as it works."""
        self.queued.pop(job.id, None)
        now = self._now()
        job.state, job.runner, job.started_at = JobState.IN_PROGRESS, registration, now
        job.starts += 1
        registration.job, registration.busy_at = job, now
        self._report_state(job)
        refused = registration.refuses(job)
        works, conclusion = (HOOK_TAKES, "failure") if refused else (job.arrival.works, "success")
        loop = asyncio.get_running_loop()
        job.timer = loop.call_later(works, self.complete, job, conclusion)

    def _cancel(self, job: SimulatedJob) -> None:
        if job.state is not JobState.COMPLETED and not job.killed:
            self.complete(job, "cancelled")

    def complete(self, job: SimulatedJob, conclusion: str) -> None:
        """Complete a job. GitHub deletes its runner's registration."""
        self.queued.pop(job.id, None)
        if job.timer is not None:
            job.timer.cancel()
        job.state, job.conclusion, job.completed_at = JobState.COMPLETED, conclusion, self._now()
        registration = job.runner
        if registration is not None:
            registration.deleted_at = registration.deleted_at or self._now()
            registration.over.set()
        self._report_state(job)

    def _report_state(self, job: SimulatedJob) -> None:
        snapshot = job.snapshot()
        job.snapshots.append((self._now(), snapshot))
        self._report(snapshot)
