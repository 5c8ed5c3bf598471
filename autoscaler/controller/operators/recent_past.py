"""Keeps the last hours in memory for the console: starts and ends of jobs, counts of jobs and machines.

Everything here is bounded. A restart forgets it, except the starts of jobs that are still in memory.
"""

from collections import OrderedDict, deque
from collections.abc import Iterator, Sequence

from autoscaler.controller.journal import Journal
from autoscaler.ledger.records.state import LedgerState
from autoscaler.model.changes import HistoryRow
from autoscaler.model.events import Event, JobObserved
from autoscaler.model.identifiers import Instant, JobId, Seconds, SkuName
from autoscaler.model.jobs.job import Job, JobState
from autoscaler.model.machines.machine import BOOTING_STATES, MachineState
from autoscaler.model.wait_objectives import Starts, WaitObjective, objective_of
from autoscaler.views.grid import Commit
from autoscaler.views.overview import Sample

SAMPLE_EVERY: Seconds = 60.0
SAMPLES = 361
"""Six hours, and the sample at their start."""

BUCKET: Seconds = 600.0
BUCKETS = 144
"""A day of buckets of starts."""

ENDED_JOBS = 5_000
"""Ended jobs that are kept for the grids of repositories, about 1 KB each."""

COMMITS = 10_000
"""Runs whose commits are kept, about 300 bytes each."""

HOUR: Seconds = 3600.0
DAY: Seconds = 86_400.0

_ENDING = (MachineState.EXITED, MachineState.TERMINATING)


class RecentPast:
    """Listens to the journal's history. Each change of records costs O(1); one a minute O(SKUs x states)."""

    def __init__(self, journal: Journal, objectives: tuple[WaitObjective, ...]) -> None:
        """Starts of SKUs without an objective are not counted."""
        self._journal = journal
        self.objectives = objectives
        self.since: Instant = journal.now
        self._samples: deque[Sample] = deque(maxlen=SAMPLES)
        self._starts: deque[tuple[Instant, dict[SkuName, list[int]]]] = deque(maxlen=BUCKETS)
        self._late_at: dict[SkuName, Instant] = {}
        """When the last late job of each SKU started."""
        self._ended: OrderedDict[JobId, Job] = OrderedDict()
        self.commits: OrderedDict[int, Commit] = OrderedDict()
        """By run. In memory only: after a restart, GitHub's next word about a run brings its commit back."""
        self.changes = 0
        """Grows with each change of a record."""
        journal.on_history(self._listen)
        journal.on_event(self._listen_to_event)

    def resume(self) -> None:
        """Count the starts of the jobs that the store still had. Call it once, after the records are there."""
        jobs = (job for job in self._state.jobs.values() if job.started_at is not None)
        for job in sorted(jobs, key=lambda one: one.started_at or 0.0):
            self._count_start(job, job.started_at or 0.0)
        for job in self._state.jobs.values():
            self._keep_if_ended(job)
        self._sample(self._journal.now)

    def jobs(self) -> Iterator[Job]:
        """Yield the jobs in the ledger's memory, and those that ended in the last hours."""
        known = self._state.jobs
        yield from known.values()
        yield from (job for job in self._ended.values() if job.id not in known)

    def starts(self, span: Seconds) -> dict[str, Starts]:
        """Return the starts of jobs in the last `span` seconds by SKU, in whole buckets."""
        after = self._journal.now - span
        counts: dict[str, list[int]] = {}
        for begin, by_sku in self._starts:
            if begin + BUCKET <= after:
                continue
            for sku, (started, late) in by_sku.items():
                known = counts.setdefault(sku, [0, 0])
                known[0] += started
                known[1] += late
        found: dict[str, Starts] = {}
        for name, (started, late) in counts.items():
            objective = objective_of(self.objectives, name)
            if objective is not None:
                late_at = self._late_at.get(SkuName(name)) if late else None
                found[name] = Starts(started, late, objective.target, late_at=late_at)
        return found

    def samples(self) -> tuple[Sample, ...]:
        """Return the samples of the last six hours, oldest first, with one of now at the end."""
        now = self._journal.now
        kept = tuple(one for one in self._samples if one.at > now - SAMPLES * SAMPLE_EVERY)
        return (*kept, sample(self._state, now))

    @property
    def _state(self) -> LedgerState:
        return self._journal.ledger.state

    def _listen(self, rows: Sequence[HistoryRow]) -> None:
        self.changes += len(rows)
        for row, job in self._journal.jobs_in(rows):
            if row.event == JobState.IN_PROGRESS:
                self._count_start(job, row.at)
            self._keep_if_ended(job)
        now = self._journal.now
        if not self._samples or now >= self._samples[-1].at + SAMPLE_EVERY:
            self._sample(now)

    def _listen_to_event(self, event: Event) -> None:
        if isinstance(event, JobObserved) and event.run_id is not None and event.head_sha:
            self.commits[event.run_id] = Commit(event.head_sha, event.head_branch)
            if len(self.commits) > COMMITS:
                self.commits.popitem(last=False)

    def _keep_if_ended(self, job: Job) -> None:
        if job.state is JobState.COMPLETED:
            self._ended[job.id] = job
            if len(self._ended) > ENDED_JOBS:
                self._ended.popitem(last=False)

    def _sample(self, now: Instant) -> None:
        self._samples.append(sample(self._state, now))

    def _count_start(self, job: Job, at: Instant) -> None:
        if job.demand is None or job.runner_name is None:
            return
        sku = job.demand.skus[0]
        objective = objective_of(self.objectives, sku)
        if objective is None:
            return
        begin = at - at % BUCKET
        if not self._starts or self._starts[-1][0] < begin:
            self._starts.append((begin, {}))
        known = self._starts[-1][1].setdefault(sku, [0, 0])
        known[0] += 1
        if (job.started_at or at) - job.queued_at > objective.seconds:
            known[1] += 1
            self._late_at[sku] = at


def sample(state: LedgerState, now: Instant) -> Sample:
    """Return the counts of now. O(classes + SKUs x states)."""
    by_state: dict[MachineState, int] = dict.fromkeys(MachineState, 0)
    for (_, at), machines in state.by_state.items():
        by_state[at] += len(machines)
    return Sample(
        at=now,
        waiting=sum(map(state.waiting_for, state.catalogue.skus)),
        booting=sum(by_state[at] for at in BOOTING_STATES),
        ready=by_state[MachineState.READY],
        working=by_state[MachineState.ASSIGNED],
        ending=sum(by_state[at] for at in _ENDING),
    )
